//! How node families spell the same things in their answers: envelopes, integers, hashes.
//!
//! Lenient where nodes and versions are known to differ: with or without a JSON-RPC envelope, numbers as numbers or text,
//! hashes in hex of either case or in base64, absent, `null` and empty all meaning that there is no hash. Strict where leniency
//! would invent facts: an error object, a `null` answer or a missing height is an error, never height 0; and the field decides
//! the encoding of a hash, never a guess, since some values read as both.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// An answer makes no sense, or is the node's own error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WireError {
    /// What is wrong, in words.
    pub message: String,
    /// The node understood, and has no such data.
    pub absent: bool,
}

/// How a field spells bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Hexadecimal in either case, `0x` allowed.
    Hex,
    /// Standard base64 with padding.
    Base64,
}

/// A JSON object.
pub type Object = Map<String, Value>;

impl WireError {
    /// Something is wrong with the answer.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), absent: false }
    }

    fn absent(message: impl Into<String>) -> Self {
        Self { message: message.into(), absent: true }
    }
}

/// What an answer says, out of its envelope where it has one.
pub fn answer(body: &[u8]) -> Result<Object, WireError> {
    let answer: Value = serde_json::from_slice(body)
        .map_err(|e| WireError::new(format!("the answer is no JSON ({e}): {}", text(body))))?;
    unwrap(answer)
}

/// The same for an answer that is parsed already.
pub fn unwrap(answer: Value) -> Result<Object, WireError> {
    let Value::Object(mut answer) = answer else {
        return Err(WireError::new(format!("the answer is no object: {}", brief(Some(&answer)))));
    };
    if let Some(error) = answer.get("error").filter(|e| !e.is_null()) {
        return Err(node_error(error));
    }
    if answer.contains_key("code") && answer.contains_key("message") {
        // An error without envelope, which Tenderdash sends with HTTP status 200.
        return Err(node_error(&Value::Object(answer)));
    }
    match answer.remove("result") {
        Some(Value::Object(result)) => Ok(result),
        Some(Value::Null) => Err(WireError::absent("the node has no such data: result null")),
        Some(other) => Err(WireError::new(format!("the node has no such data: result {}", brief(Some(&other))))),
        None if answer.contains_key("jsonrpc") => Err(WireError::new("the answer has neither result nor error")),
        None => Ok(answer),
    }
}

fn node_error(error: &Value) -> WireError {
    let part = |name: &str| match error.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let (message, data) = (part("message"), part("data"));
    if message.is_empty() && data.is_empty() {
        return WireError::absent(format!("the node answers with an error: {}", brief(Some(error))));
    }
    let between = if message.is_empty() || data.is_empty() { "" } else { ": " };
    WireError::absent(format!("the node answers: {message}{between}{data}"))
}

/// A field that has to be there.
pub fn field<'a>(object: &'a Object, name: &str) -> Result<&'a Value, WireError> {
    object.get(name).ok_or_else(|| WireError::new(format!("`{name}` is missing")))
}

/// A field under one of two names.
pub fn either<'a>(object: &'a Object, name: &str, other: &str) -> Result<&'a Value, WireError> {
    object.get(name).or_else(|| object.get(other)).ok_or_else(|| WireError::new(format!("`{name}` is missing")))
}

/// A value as an object; `name` is for the message.
pub fn object<'a>(value: &'a Value, name: &str) -> Result<&'a Object, WireError> {
    value.as_object().ok_or_else(|| WireError::new(format!("`{name}` is no object: {}", brief(Some(value)))))
}

/// A number, or a number as text, which is how CometBFT writes 64-bit integers.
pub fn number(object: &Object, name: &str) -> Result<u64, WireError> {
    let value = field(object, name)?;
    integer(value).ok_or_else(|| WireError::new(format!("`{name}` is no height or count: {}", brief(Some(value)))))
}

/// An integer as a number or as text.
pub fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// A hash as lower-case hex; absent, `null` and empty text all mean that there is none.
pub fn hash(object: &Object, name: &str, encoding: Encoding) -> Result<String, WireError> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => hash_text(text, encoding).ok_or_else(|| {
            WireError::new(format!("`{name}` is no hash in {}: {}", encoding.words(), brief_text(text)))
        }),
        other => Err(WireError::new(format!("`{name}` is no hash in {}: {}", encoding.words(), brief(other)))),
    }
}

/// A hash as lower-case hex; `None` where the text is not in that encoding.
pub fn hash_text(text: &str, encoding: Encoding) -> Option<String> {
    match encoding {
        Encoding::Hex => {
            let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
            let good = digits.len().is_multiple_of(2) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            good.then(|| digits.to_ascii_lowercase())
        }
        Encoding::Base64 => STANDARD.decode(text).ok().map(hex::encode),
    }
}

impl Encoding {
    /// `hex`, `base64`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Hex => "hex",
            Self::Base64 => "base64",
        }
    }
}

/// At most 80 characters of a value, for messages.
pub fn brief(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), |value| text(value.to_string().as_bytes()))
}

fn brief_text(value: &str) -> String {
    brief(Some(&Value::String(value.to_owned())))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hash_in_all_its_spellings() {
        let wanted = "0e5a083112771cc7dd7772fab73bb71566b2803695bf9a377a45c2ae7e90c085";
        for (value, encoding) in [
            (wanted.to_ascii_uppercase().as_str(), Encoding::Hex),
            (wanted, Encoding::Hex),
            (&format!("0x{wanted}"), Encoding::Hex),
            ("DloIMRJ3HMfdd3L6tzu3FWaygDaVv5o3ekXCrn6QwIU=", Encoding::Base64),
        ] {
            assert_eq!(hash_text(value, encoding).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn the_field_decides_the_encoding() {
        let both = "DEADBEEF";
        assert_eq!(hash_text(both, Encoding::Hex).as_deref(), Some("deadbeef"));
        assert_eq!(hash_text(both, Encoding::Base64).as_deref(), Some("0c4003044105"));
        assert_eq!(hash_text("abc", Encoding::Hex), None);
        assert_eq!(hash_text("!!!!", Encoding::Base64), None);
    }

    #[test]
    fn no_hash_however_it_is_written() {
        let object: Object = serde_json::from_str(r#"{"empty":"","null":null,"number":7}"#).unwrap();
        for name in ["empty", "null", "absent"] {
            assert_eq!(hash(&object, name, Encoding::Base64).as_deref(), Ok(""));
        }
        assert!(hash(&object, "number", Encoding::Hex).is_err());
    }

    #[test]
    fn integers_as_numbers_or_text() {
        let object: Object =
            serde_json::from_str(r#"{"a":7,"b":"18446744073709551615","c":"-1","d":1.5,"e":""}"#).unwrap();
        assert_eq!((number(&object, "a"), number(&object, "b")), (Ok(7), Ok(u64::MAX)));
        assert!(["c", "d", "e", "f"].iter().all(|name| number(&object, name).is_err()));
    }

    #[test]
    fn envelopes_errors_and_bare_answers() {
        assert!(answer(br#"{"jsonrpc":"2.0","id":"","result":{"a":1}}"#).is_ok());
        assert!(answer(br#"{"a":1}"#).is_ok());
        for (body, absent) in [
            (&br#"{"jsonrpc":"2.0","id":-1,"result":null}"#[..], true),
            (br#"{"code":-32603,"message":"Internal error","data":"asked height 50, have 7"}"#, true),
            (br#"{"jsonrpc":"2.0","id":-1,"error":{"code":-32603,"message":"x","data":"y"}}"#, true),
            (br#"{"jsonrpc":"2.0","id":-1}"#, false),
            (b"404 page not found", false),
            (b"[]", false),
        ] {
            assert_eq!(answer(body).unwrap_err().absent, absent, "{}", text(body));
        }
    }
}
