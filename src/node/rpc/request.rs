//! Arguments of a call, from a query string or a JSON body, by name or by position.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::answer::RpcError;

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Argument {
    /// From a query string, percent-decoded: numbers may be quoted, bytes are `0x…` or quoted text.
    Query(String),
    /// From a body: numbers may be text, bytes are base64 or hex as the field wants.
    Json(Value),
}

/// The arguments of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Params(BTreeMap<String, Argument>);

impl Params {
    /// From a decoded query string.
    pub(super) fn from_query(query: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(query.into_iter().map(|(name, value)| (name, Argument::Query(value))).collect())
    }

    /// From the `params` of a body; `names` are the method's parameters in order.
    pub(super) fn from_json(params: Option<Value>, names: &[&str]) -> Result<Self, RpcError> {
        let all: BTreeMap<String, Argument> = match params {
            None | Some(Value::Null) => BTreeMap::new(),
            Some(Value::Object(all)) => all.into_iter().map(|(name, value)| (name, Argument::Json(value))).collect(),
            Some(Value::Array(all)) if all.len() <= names.len() => {
                names.iter().zip(all).map(|(&name, value)| (name.to_owned(), Argument::Json(value))).collect()
            }
            Some(Value::Array(all)) => {
                return Err(RpcError::params(format!(
                    "expected at most {} parameters, got {}",
                    names.len(),
                    all.len()
                )));
            }
            Some(_) => return Err(RpcError::params("params must be an object or an array")),
        };
        Ok(Self(all))
    }

    /// A number from 0; absent, `null` and empty text are `None`.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, RpcError> {
        let text = match self.0.get(name) {
            None | Some(Argument::Json(Value::Null)) => return Ok(None),
            Some(Argument::Query(text)) => unquoted(text).to_owned(),
            Some(Argument::Json(Value::String(text))) => text.clone(),
            Some(Argument::Json(other)) => other.to_string(),
        };
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| RpcError::params(format!("`{name}` is no number from 0: {}", brief(&text))))
    }

    /// Bytes that a body gives in base64: a transaction. Absent is empty.
    pub(super) fn base64(&self, name: &str) -> Result<Vec<u8>, RpcError> {
        match self.0.get(name) {
            Some(Argument::Json(Value::String(text))) => {
                STANDARD.decode(text).map_err(|e| RpcError::params(format!("`{name}` is no base64: {e}")))
            }
            other => Self::query_bytes(name, other),
        }
    }

    /// Bytes that a body gives in hex: a key of a query. Absent is empty.
    pub(super) fn hex(&self, name: &str) -> Result<Vec<u8>, RpcError> {
        match self.0.get(name) {
            Some(Argument::Json(Value::String(text))) => {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                hex::decode(digits).map_err(|e| RpcError::params(format!("`{name}` is no hex: {e}")))
            }
            other => Self::query_bytes(name, other),
        }
    }

    /// `0x…`, or quoted text taken as its bytes.
    fn query_bytes(name: &str, argument: Option<&Argument>) -> Result<Vec<u8>, RpcError> {
        match argument {
            None | Some(Argument::Json(Value::Null)) => Ok(Vec::new()),
            Some(Argument::Query(text)) => match text.strip_prefix("0x") {
                Some(digits) => hex::decode(digits).map_err(|e| RpcError::params(format!("`{name}` is no hex: {e}"))),
                None if text.is_empty() => Ok(Vec::new()),
                None if unquoted(text) != text => Ok(unquoted(text).as_bytes().to_vec()),
                None => Err(RpcError::params(format!("`{name}` is neither 0x… nor quoted text: {}", brief(text)))),
            },
            Some(Argument::Json(other)) => {
                Err(RpcError::params(format!("`{name}` is no text: {}", brief(&other.to_string()))))
            }
        }
    }
}

/// Text without the double quotes around it, where there are two.
fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

fn brief(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn query(name: &str, value: &str) -> Params {
        Params::from_query([(name.to_owned(), value.to_owned())])
    }

    fn body(params: Value) -> Params {
        Params::from_json(Some(params), &["height", "tx"]).expect("parameters")
    }

    #[test]
    fn numbers_in_every_spelling() {
        for params in [
            query("height", "5"),
            query("height", "\"5\""),
            body(json!({ "height": "5" })),
            body(json!({ "height": 5 })),
            body(json!([5])),
        ] {
            assert_eq!(params.number("height"), Ok(Some(5)), "{params:?}");
        }
        for params in [query("height", ""), body(json!({ "height": null })), body(json!([])), Params::default()] {
            assert_eq!(params.number("height"), Ok(None), "{params:?}");
        }
        for params in [query("height", "-1"), query("height", "x"), body(json!({ "height": 1.5 })), body(json!([[]]))] {
            assert!(params.number("height").is_err(), "{params:?}");
        }
    }

    #[test]
    fn bytes_in_every_spelling() {
        assert_eq!(query("tx", "0x613D62").base64("tx"), Ok(b"a=b".to_vec()));
        assert_eq!(query("tx", "\"a=b\"").base64("tx"), Ok(b"a=b".to_vec()));
        assert_eq!(body(json!({ "tx": "YT1i" })).base64("tx"), Ok(b"a=b".to_vec()));
        assert_eq!(body(json!([1, "YT1i"])).base64("tx"), Ok(b"a=b".to_vec()));
        assert_eq!(body(json!({ "tx": "613d62" })).hex("tx"), Ok(b"a=b".to_vec()));
        assert_eq!(Params::default().base64("tx"), Ok(Vec::new()));
        assert!(query("tx", "a=b").base64("tx").is_err());
        assert!(query("tx", "0x6").base64("tx").is_err());
        assert!(body(json!({ "tx": "*" })).base64("tx").is_err());
        assert!(body(json!({ "tx": 5 })).base64("tx").is_err());
    }

    #[test]
    fn too_many_positions_and_no_parameters_at_all() {
        assert!(Params::from_json(Some(json!([1, 2, 3])), &["height", "tx"]).is_err());
        assert!(Params::from_json(Some(json!("5")), &["height"]).is_err());
        assert_eq!(Params::from_json(None, &["height"]), Ok(Params::default()));
    }
}
