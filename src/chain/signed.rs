//! The file in which a validator keeps what it signed last, as the families write it.

use std::path::Path;

use serde_json::Value;

use crate::timeline::wire::{Object, number};
use crate::timeline::{LastSigned, SignedAt};

/// `priv_validator_state.json` of CometBFT and tm2: `height` as text, `round` as a number or as text, `step` as a number; height 0
/// before anything is signed.
pub(super) fn privval(path: &Path) -> LastSigned {
    read(path, |state| {
        let step = number(state, "step").map_err(|e| e.message)?;
        at(state, u8::try_from(step).map_err(|_| format!("`step` is {step}"))?)
    })
}

/// `sign_state.json` of the reference node: `position` with `height`, `round`, and `step` as a word.
pub(super) fn position(path: &Path) -> LastSigned {
    read(path, |state| {
        let position = state.get("position").and_then(Value::as_object).ok_or("`position` is missing")?;
        let step = match position.get("step").and_then(Value::as_str) {
            Some("propose") => 1,
            Some("prevote") => 2,
            Some("precommit") => 3,
            other => return Err(format!("`step` is `{}`", other.unwrap_or("no text"))),
        };
        at(position, step)
    })
}

fn at(state: &Object, step: u8) -> Result<LastSigned, String> {
    let part = |name| number(state, name).map_err(|e| e.message);
    let place = SignedAt { height: part("height")?, round: part("round")?, step };
    Ok(if place.height == 0 { LastSigned::Nothing } else { LastSigned::At(place) })
}

fn read(path: &Path, meaning: impl Fn(&Object) -> Result<LastSigned, String>) -> LastSigned {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return LastSigned::Nothing,
        Err(error) => return LastSigned::Unreadable(error.to_string()),
    };
    if text.is_empty() {
        return LastSigned::Unreadable("empty, 0 bytes".to_owned());
    }
    match serde_json::from_slice(&text) {
        Ok(Value::Object(state)) => meaning(&state).unwrap_or_else(LastSigned::Unreadable),
        Ok(_) => LastSigned::Unreadable("no JSON object".to_owned()),
        Err(error) => LastSigned::Unreadable(format!("no whole JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(read: fn(&Path) -> LastSigned, text: &str) -> LastSigned {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state.json");
        std::fs::write(&path, text).expect("written");
        read(&path)
    }

    #[test]
    fn both_spellings() {
        let at = LastSigned::At(SignedAt { height: 17, round: 1, step: 3 });
        let comet = r#"{"height": "17", "round": 1, "step": 3, "signature": "x", "signbytes": "AB"}"#;
        assert_eq!(read_text(privval, comet), at);
        let own = r#"{"position":{"height":17,"round":1,"step":"precommit"},"bytes":"ab","signature":"cd"}"#;
        assert_eq!(read_text(position, own), at);
        assert_eq!(read_text(privval, r#"{"height":"0","round":0,"step":0}"#), LastSigned::Nothing);
        assert_eq!(privval(Path::new("/nowhere/state.json")), LastSigned::Nothing);
    }

    #[test]
    fn what_makes_no_sense_is_said_and_never_taken_for_nothing() {
        for text in ["", "{\"position\":{\"height\":", "[]", "{}", r#"{"position":{"height":3,"round":0,"step":"x"}}"#]
        {
            assert!(matches!(read_text(position, text), LastSigned::Unreadable(_)), "{text}");
            assert!(matches!(read_text(privval, text), LastSigned::Unreadable(_)), "{text}");
        }
    }
}
