//! Changes of a file by path, such as `app_state.gov.params.voting_period` in a genesis or `grpc.enable` in `app.toml`: what a
//! node's own command line made is kept but for the values named.

use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table};

use super::ChainError;

/// Sets a value in a JSON document. All but the last step of the path must be there; a number steps into a list.
pub(super) fn json(document: &mut Value, path: &str, value: Value) -> Result<(), ChainError> {
    let (folders, last) = path.rsplit_once('.').map_or(("", path), |(folders, last)| (folders, last));
    let mut place = document;
    for step in folders.split('.').filter(|step| !step.is_empty()) {
        place = match place {
            Value::Array(list) => step.parse().ok().and_then(|at: usize| list.get_mut(at)),
            other => other.get_mut(step),
        }
        .ok_or_else(|| no_such(path, step))?;
    }
    match place {
        Value::Object(map) => {
            map.insert(last.to_owned(), value);
            Ok(())
        }
        Value::Array(list) => {
            let slot = last.parse().ok().and_then(|at: usize| list.get_mut(at)).ok_or_else(|| no_such(path, last))?;
            *slot = value;
            Ok(())
        }
        _ => Err(no_such(path, last)),
    }
}

/// Sets a value in a TOML document, keeping its comments; tables that are not there are made.
pub(super) fn toml(document: &mut DocumentMut, path: &str, value: &Value) -> Result<(), ChainError> {
    let (folders, last) = path.rsplit_once('.').map_or(("", path), |(folders, last)| (folders, last));
    let mut table: &mut Table = document.as_table_mut();
    for step in folders.split('.').filter(|step| !step.is_empty()) {
        table = table
            .entry(step)
            .or_insert_with(|| Item::Table(Table::new()))
            .as_table_mut()
            .ok_or_else(|| no_such(path, step))?;
    }
    let value = toml_value(value)
        .ok_or_else(|| ChainError::new(format!("set `{path}`: {value} cannot be written in this file")))?;
    match table.get_mut(last) {
        // In place, so that what stands before the key stays.
        Some(item) => *item = Item::Value(value),
        None => drop(table.insert(last, Item::Value(value))),
    }
    Ok(())
}

/// Reads a TOML file.
pub(super) fn read_toml(name: &str, bytes: &[u8]) -> Result<DocumentMut, ChainError> {
    let text = std::str::from_utf8(bytes).map_err(|e| ChainError::new(format!("read {name}: {e}")))?;
    text.parse().map_err(|e| ChainError::new(format!("read {name}: {e}")))
}

/// Lays every value of `over` over `document`.
pub(super) fn toml_over(document: &mut Table, over: &Table) {
    for (key, item) in over {
        match (document.get_mut(key).and_then(Item::as_table_mut), item.as_table()) {
            (Some(below), Some(above)) => toml_over(below, above),
            _ => match document.get_mut(key) {
                Some(below) => *below = item.clone(),
                None => drop(document.insert(key, item.clone())),
            },
        }
    }
}

fn toml_value(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64()?.into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(list) => {
            toml_edit::Value::Array(list.iter().map(toml_value).collect::<Option<toml_edit::Array>>()?)
        }
        Value::Null | Value::Object(_) => return None,
    })
}

fn no_such(path: &str, step: &str) -> ChainError {
    ChainError::new(format!("set `{path}`: there is no `{step}` in what the node's command line made"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn json_is_changed_at_a_path_and_nowhere_else() {
        let mut document = value!({ "a": { "b": [1, { "c": 2 }] }, "d": 3 });
        json(&mut document, "a.b.1.c", value!("x")).expect("set");
        json(&mut document, "a.b.0", value!(null)).expect("set");
        json(&mut document, "a.new", value!(true)).expect("set");
        assert_eq!(document, value!({ "a": { "b": [null, { "c": "x" }], "new": true }, "d": 3 }));
        let error = json(&mut document, "a.x.c", value!(1)).expect_err("an error");
        assert_eq!(error.0, "set `a.x.c`: there is no `x` in what the node's command line made");
        assert!(json(&mut document, "a.b.7", value!(1)).is_err());
        assert!(json(&mut document, "d.e", value!(1)).is_err());
    }

    #[test]
    fn toml_keeps_its_comments_and_what_is_not_named() {
        let mut document =
            read_toml("app.toml", b"# top\na = 1\n[grpc]\n# why\nenable = true\naddress = \"x\"\n").expect("TOML");
        toml(&mut document, "grpc.enable", &value!(false)).expect("set");
        toml(&mut document, "store.streamers", &value!(["a", "b"])).expect("set");
        assert!(toml(&mut document, "a.b", &value!(1)).is_err());
        assert!(toml(&mut document, "b", &value!({})).is_err());
        assert_eq!(
            document.to_string(),
            "# top\na = 1\n[grpc]\n# why\nenable = false\naddress = \"x\"\n\n[store]\nstreamers = [\"a\", \"b\"]\n"
        );
    }

    #[test]
    fn one_file_is_laid_over_another() {
        let mut document = read_toml("below", b"a = 1\nb = 2\n[t]\nc = 3\nd = 4\n").expect("TOML");
        let over = read_toml("above", b"b = 5\n[t]\nd = 6\n[u]\ne = 7\n").expect("TOML");
        toml_over(document.as_table_mut(), over.as_table());
        assert_eq!(document.to_string(), "a = 1\nb = 5\n[t]\nc = 3\nd = 6\n[u]\ne = 7\n");
        assert!(read_toml("broken", b"a = \n").expect_err("an error").0.starts_with("read broken: "));
    }
}
