//! One database with an overlay in memory over it.
//!
//! Everything is first put into the overlay; [`Store::commit`] writes the overlay as one batch, all or nothing, with one
//! sync, and only the last write to each key. When that happens is the ledger's affair, which is all that the storage
//! disciplines differ in. The owner reads through the overlay; a [`Reader`] sees the version on disk alone.

mod backend;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use redb::{Builder, Database, ReadableDatabase, TableDefinition, TableError};

pub use backend::{Disk, FileDisk, Gate};

use super::types::Height;

/// The only table of every database.
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("kv");
/// The key of a database's height, whose value is ASCII decimal.
const HEIGHT: &[u8] = b"height";
/// Cache of one database. Half of it buffers a batch; what is above is written to the file before the batch ends.
const CACHE_BYTES: usize = 24 << 20;

/// The three databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreName {
    /// Blocks and their commits.
    Blocks,
    /// The state after each block, and results.
    State,
    /// The application's.
    App,
}

impl StoreName {
    /// All of them, in the order in which a flush writes them.
    pub const ALL: [Self; 3] = [Self::Blocks, Self::State, Self::App];

    /// File name below `data/`.
    pub fn file(self) -> &'static str {
        match self {
            Self::Blocks => "blockstore.db",
            Self::State => "state.db",
            Self::App => "application.db",
        }
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file())
    }
}

/// A database could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{action} {store}: {source}")]
pub struct StoreError {
    /// Which.
    pub store: StoreName,
    /// `open`, `read` or `write`.
    pub action: &'static str,
    /// Why.
    pub source: Box<redb::Error>,
}

impl StoreError {
    fn of<E: Into<redb::Error>>(store: StoreName, action: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self { store, action, source: Box::new(error.into()) }
    }

    /// A value that cannot be what this node wrote.
    pub(crate) fn corrupt(store: StoreName, what: impl Into<String>) -> Self {
        Self { store, action: "read", source: Box::new(redb::Error::Corrupted(what.into())) }
    }
}

/// The version on disk. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Reader {
    name: StoreName,
    db: Arc<Database>,
}

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Rows of a range, in order of their keys.
pub type Rows = Vec<Row>;

impl Reader {
    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(None, |table| Ok(table.get(key)?.map(|value| value.value().to_vec())))
    }

    /// The height, 0 when there is none.
    pub fn height(&self) -> Result<Height, StoreError> {
        parse_height(self.name, self.get(HEIGHT)?)
    }

    /// All rows with this prefix, in order.
    pub fn scan(&self, prefix: &[u8]) -> Result<Rows, StoreError> {
        self.with(Rows::new(), |table| {
            let mut rows = Rows::new();
            for row in table.range(prefix..)? {
                let (key, value) = row?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                rows.push((key.value().to_vec(), value.value().to_vec()));
            }
            Ok(rows)
        })
    }

    /// Calls `each` on every row of one version of the database, in order.
    pub fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
        self.with((), |table| {
            for row in table.range::<&[u8]>(..)? {
                let (key, value) = row?;
                each(key.value(), value.value());
            }
            Ok(())
        })
    }

    /// The last row whose key has this prefix and is not above `key`.
    pub fn last_until(&self, prefix: &[u8], key: &[u8]) -> Result<Option<Row>, StoreError> {
        self.with(None, |table| {
            let row = table.range::<&[u8]>((Bound::Included(prefix), Bound::Included(key)))?.next_back().transpose()?;
            Ok(row.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())))
        })
    }

    /// Reads from the table, which is not there before the first commit.
    fn with<T>(
        &self,
        empty: T,
        read: impl FnOnce(&redb::ReadOnlyTable<&'static [u8], &'static [u8]>) -> Result<T, redb::StorageError>,
    ) -> Result<T, StoreError> {
        let transaction = self.db.begin_read().map_err(StoreError::of(self.name, "read"))?;
        match transaction.open_table(TABLE) {
            Ok(table) => read(&table).map_err(StoreError::of(self.name, "read")),
            Err(TableError::TableDoesNotExist(_)) => Ok(empty),
            Err(error) => Err(StoreError::of(self.name, "read")(error)),
        }
    }
}

fn parse_height(name: StoreName, value: Option<Vec<u8>>) -> Result<Height, StoreError> {
    let Some(value) = value else { return Ok(0) };
    let text = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| StoreError::corrupt(name, format!("height is {}", String::from_utf8_lossy(&value))))
}

/// A database and what is held over it.
pub struct Store {
    reader: Reader,
    gate: Arc<Gate>,
    held: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    held_bytes: u64,
}

impl Store {
    /// Opens or creates it; after a kill this checks and repairs the file, which writes.
    pub fn open(disk: &dyn Disk, name: StoreName) -> Result<Self, StoreError> {
        let gate = Gate::new();
        let backend = backend::Gated::open(disk, name, Arc::clone(&gate))
            .map_err(|error| StoreError::of(name, "open")(redb::StorageError::Io(error)))?;
        let db = Builder::new()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(backend)
            .map_err(StoreError::of(name, "open"))?;
        Ok(Self { reader: Reader { name, db: Arc::new(db) }, gate, held: BTreeMap::new(), held_bytes: 0 })
    }

    /// The version on disk.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Counts of writes and syncs.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Bytes in the overlay.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Puts a row into the overlay.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.hold(key.into(), Some(value.into()));
    }

    /// Puts the absence of a row into the overlay.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) {
        self.hold(key.into(), None);
    }

    fn hold(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let size = |key: &[u8], value: &Option<Vec<u8>>| (key.len() + value.as_ref().map_or(0, Vec::len)) as u64;
        let added = size(&key, &value);
        let length = key.len() as u64;
        if let Some(old) = self.held.insert(key, value) {
            self.held_bytes -= length + old.map_or(0, |value| value.len() as u64);
        }
        self.held_bytes += added;
    }

    /// Puts the height into the overlay.
    pub fn put_height(&mut self, height: Height) {
        self.put(HEIGHT, height.to_string());
    }

    /// The value of a key, held or on disk.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.held.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.reader.get(key),
        }
    }

    /// The last row whose key has this prefix and is not above `key`, held or on disk. No row of the prefix is ever
    /// deleted in the overlay.
    pub fn last_until(&self, prefix: &[u8], key: &[u8]) -> Result<Option<Row>, StoreError> {
        let range = (Bound::Included(prefix), Bound::Included(key));
        let held = self.held.range::<[u8], _>(range).next_back();
        let disk = self.reader.last_until(prefix, key)?;
        Ok(match (held, disk) {
            (Some((key, Some(value))), Some(disk)) if *key >= disk.0 => Some((key.clone(), value.clone())),
            (Some((key, Some(value))), None) => Some((key.clone(), value.clone())),
            (_, disk) => disk,
        })
    }

    /// All rows with this prefix, held or on disk, in order.
    pub fn scan(&self, prefix: &[u8]) -> Result<Rows, StoreError> {
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = self.reader.scan(prefix)?.into_iter().collect();
        let held = self.held.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        for (key, value) in held.take_while(|(key, _)| key.starts_with(prefix)) {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        Ok(rows.into_iter().collect())
    }

    /// Writes what is held as one batch with one sync. Without anything held it writes nothing.
    ///
    /// After an error the file holds the old version or the new one, nobody knows which: the caller must stop.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        if self.held.is_empty() {
            return Ok(());
        }
        let name = self.reader.name;
        let transaction = self.reader.db.begin_write().map_err(StoreError::of(name, "write"))?;
        {
            let mut table = transaction.open_table(TABLE).map_err(StoreError::of(name, "write"))?;
            for (key, value) in &self.held {
                match value {
                    Some(value) => table.insert(key.as_slice(), value.as_slice()).map(drop),
                    None => table.remove(key.as_slice()).map(drop),
                }
                .map_err(StoreError::of(name, "write"))?;
            }
        }
        transaction.commit().map_err(StoreError::of(name, "write"))?;
        self.held.clear();
        self.held_bytes = 0;
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.gate.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &tempfile::TempDir) -> Store {
        Store::open(&FileDisk::new(dir.path(), true), StoreName::App).unwrap()
    }

    #[test]
    fn the_owner_reads_what_is_held_and_others_what_is_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(&dir);
        store.put("k/a", "1");
        store.put("k/b", "2");
        store.put_height(7);
        assert_eq!(store.reader().get(b"k/a").unwrap(), None);
        assert_eq!(store.reader().height().unwrap(), 0);
        store.commit().unwrap();
        assert_eq!(store.reader().height().unwrap(), 7);
        store.delete("k/a");
        store.put("k/c", "3");
        assert_eq!(store.get(b"k/a").unwrap(), None);
        assert_eq!(store.reader().get(b"k/a").unwrap(), Some(b"1".to_vec()));
        let keys: Vec<_> = store.scan(b"k/").unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [b"k/b", b"k/c"]);
        assert_eq!(store.last_until(b"k/", b"k/bb").unwrap().unwrap().0, b"k/b");
        assert_eq!(store.last_until(b"k/", b"k/z").unwrap().unwrap().0, b"k/c");
    }

    #[test]
    fn a_commit_is_one_sync_and_holds_the_last_write_to_each_key() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(&dir);
        let syncs = store.gate().syncs();
        store.commit().unwrap();
        assert_eq!(store.gate().syncs(), syncs, "nothing held, nothing written");
        for value in ["1", "22", "333"] {
            store.put("k", value);
        }
        assert_eq!(store.held_bytes(), 4);
        store.commit().unwrap();
        assert_eq!(store.gate().syncs(), syncs + 1);
        assert_eq!(store.held_bytes(), 0);
        assert_eq!(store.reader().get(b"k").unwrap(), Some(b"333".to_vec()));
    }

    #[test]
    fn dropping_a_store_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(&dir);
        store.put("k", "1");
        store.commit().unwrap();
        store.put("k", "2");
        let before = std::fs::read(dir.path().join("application.db")).unwrap();
        drop(store);
        assert_eq!(std::fs::read(dir.path().join("application.db")).unwrap(), before);
        assert_eq!(open(&dir).get(b"k").unwrap(), Some(b"1".to_vec()));
    }

    #[test]
    fn a_second_owner_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = open(&dir);
        let second = Store::open(&FileDisk::new(dir.path(), true), StoreName::App);
        assert!(second.err().unwrap().to_string().contains("another process"));
    }
}
