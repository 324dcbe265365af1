//! A timeline to try the report on.

use crate::timeline::Record;

/// The records of `tests/data/quickstart.ndjson`.
pub(super) fn records() -> Vec<Record> {
    let text = include_str!("../../tests/data/quickstart.ndjson");
    text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}
