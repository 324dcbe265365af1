//! The three heights in a copy of a node's databases, read while the node is down.
//!
//! Each database is one redb file with one table `kv` of bytes to bytes; under the key `height` stands the height of its
//! last commit as decimal text. A file that is not there, an empty table or an absent key is height 0. Opening repairs
//! a file that a kill left open, so only copies are opened.

use std::path::Path;

use redb::{Database, ReadableDatabase as _, TableDefinition, TableError};

use crate::chain::ChainError;
use crate::timeline::Heights;

const TABLE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("kv");

/// Application, state and block store, in the order of [`Heights`].
pub(super) const PATHS: [&str; 3] = ["data/application.db", "data/state.db", "data/blockstore.db"];

/// Reads the heights below `copy`.
pub(super) fn heights(copy: &Path) -> Result<Heights, ChainError> {
    let [app, state, store] = PATHS.map(|path| height(&copy.join(path)));
    Ok(Heights::new(app?, state?, store?))
}

fn height(path: &Path) -> Result<u64, ChainError> {
    let failed = |why: String| ChainError::new(format!("read the height in {}: {why}", path.display()));
    if !path.exists() {
        return Ok(0);
    }
    let database = Database::open(path).map_err(|e| failed(e.to_string()))?;
    let transaction = database.begin_read().map_err(|e| failed(e.to_string()))?;
    let table = match transaction.open_table(TABLE) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(0),
        Err(other) => return Err(failed(other.to_string())),
    };
    let Some(value) = table.get(b"height".as_slice()).map_err(|e| failed(e.to_string()))? else {
        return Ok(0);
    };
    let text = std::str::from_utf8(value.value()).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| failed("it is not decimal text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, value: &[u8]) {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let database = Database::create(path).expect("a database");
        let transaction = database.begin_write().expect("a transaction");
        transaction.open_table(TABLE).expect("a table").insert(b"height".as_slice(), value).expect("inserted");
        transaction.commit().expect("committed");
    }

    #[test]
    fn heights_come_from_three_files_and_absent_ones_are_nought() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(heights(folder.path()).expect("heights"), Heights::new(0, 0, 0));
        write(&folder.path().join("data/application.db"), b"1381");
        write(&folder.path().join("data/blockstore.db"), b"1412");
        assert_eq!(heights(folder.path()).expect("heights"), Heights::new(1381, 0, 1412));
        write(&folder.path().join("data/state.db"), b"1381");
        assert_eq!(heights(folder.path()).expect("heights"), Heights::new(1381, 1381, 1412));
    }

    #[test]
    fn what_is_no_height_is_an_error_with_the_path() {
        let folder = tempfile::tempdir().expect("a folder");
        write(&folder.path().join("data/state.db"), b"x");
        let error = heights(folder.path()).expect_err("an error");
        assert!(error.0.contains("data/state.db") && error.0.contains("decimal"), "{error}");
        std::fs::write(folder.path().join("data/application.db"), b"not a database").expect("written");
        assert!(heights(folder.path()).expect_err("an error").0.contains("application.db"));
    }
}
