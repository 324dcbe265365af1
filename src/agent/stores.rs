//! Which store a file belongs to.

use std::path::Path;

use crate::timeline::Layout;

/// Position of a store in its layout.
pub(crate) type StoreIndex = usize;

/// The stores of one node, ready for looking up paths.
#[derive(Debug)]
pub(crate) struct Stores {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    folders: Vec<String>,
    names: Vec<String>,
    except: Vec<String>,
}

impl Stores {
    /// Reads the patterns of a layout.
    pub(crate) fn new(layout: &Layout) -> Self {
        let entries = layout.stores.iter().map(|store| {
            let (folders, names) = store.paths.iter().cloned().partition(|path| path.ends_with('/'));
            Entry { folders, names, except: store.except.clone() }
        });
        Self { entries: entries.collect() }
    }

    /// The store of a file, by its path relative to home.
    pub(crate) fn find(&self, relative: &str) -> Option<StoreIndex> {
        let file = Path::new(relative).file_name()?.to_str()?;
        self.entries.iter().position(|entry| {
            let inside = entry.folders.iter().any(|folder| relative.starts_with(folder.as_str()))
                || entry.names.iter().any(|name| matches(name, relative));
            inside && !entry.except.iter().any(|pattern| matches(pattern, file))
        })
    }
}

/// Whether `text` is `pattern`, in which each `*` stands for any characters but `/`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let part_end = rest.find('/').unwrap_or(rest.len());
            (0..=part_end).filter(|end| rest.is_char_boundary(*end)).any(|end| matches(after, &rest[end..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Store;

    fn stores() -> Stores {
        let store = |name: &str, paths: &[&str], except: &[&str]| Store {
            name: name.to_owned(),
            paths: paths.iter().map(|p| (*p).to_owned()).collect(),
            except: except.iter().map(|p| (*p).to_owned()).collect(),
        };
        Stores::new(&Layout {
            stores: vec![
                store("blockstore.db", &["data/blockstore.db/"], &["LOG", "MANIFEST-*", "*.ldb"]),
                store("cs.wal", &["data/cs.wal/wal*"], &[]),
                store("sign", &["data/priv_validator_state.json", "data/write-file-atomic-*"], &[]),
            ],
            ..Layout::default()
        })
    }

    #[test]
    fn a_folder_takes_what_is_below_it_and_nothing_beside_it() {
        let stores = stores();
        assert_eq!(stores.find("data/blockstore.db/000001.log"), Some(0));
        assert_eq!(stores.find("data/blockstore.db"), None);
        assert_eq!(stores.find("data/blockstore.db.bak/000001.log"), None);
    }

    #[test]
    fn exceptions_are_by_file_name() {
        let stores = stores();
        for name in ["LOG", "MANIFEST-000004", "000007.ldb"] {
            assert_eq!(stores.find(&format!("data/blockstore.db/{name}")), None, "{name}");
        }
        assert_eq!(stores.find("data/blockstore.db/LOG.old"), Some(0));
    }

    #[test]
    fn a_star_stays_within_one_folder() {
        let stores = stores();
        assert_eq!(stores.find("data/cs.wal/wal"), Some(1));
        assert_eq!(stores.find("data/cs.wal/wal.000"), Some(1));
        assert_eq!(stores.find("data/cs.wal/wal/deeper"), None);
        assert_eq!(stores.find("data/write-file-atomic-77"), Some(2));
        assert_eq!(stores.find("data/priv_validator_state.json.old"), None);
    }
}
