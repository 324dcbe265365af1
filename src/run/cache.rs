//! The cache of built chains: who makes, uses or removes one, and an upper bound for all of them.
//!
//! A chain is the folder `KEY`. The file `KEY.lock` beside it is locked by whoever makes, uses or removes it, and carries
//! the time of its last use. It stays when the chain goes, since somebody may be waiting for it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use tokio_util::sync::CancellationToken;

use super::RunError;

/// Bytes on disk that all chains together may take: those used least lately go when another one is made.
pub(crate) const BYTES_MAX: u64 = 2 << 30;
/// Longest wait for somebody else who makes the same chain.
pub(super) const BUILD_MAX: Duration = Duration::from_secs(300);
/// A chain half made is left alone for so long; its maker is dead then.
const HALF_MADE_MAX: Duration = Duration::from_secs(3600);

/// A chain in use, which nobody removes as long as this lives.
#[derive(Debug)]
pub(crate) struct InUse {
    _lock: File,
}

/// What was removed, or could be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Chains.
    pub(crate) chains: u64,
    /// Their bytes on disk.
    pub(crate) bytes: u64,
}

impl Room {
    fn and(&mut self, built: &Built) {
        self.chains += 1;
        self.bytes += built.bytes;
    }
}

/// Waits until nobody else makes, uses or removes this chain.
pub(super) async fn make(cache: &Path, key: &str, cancel: &CancellationToken) -> Result<File, RunError> {
    lock(cache, key, FlockOperation::NonBlockingLockExclusive, cancel).await
}

/// Waits until nobody makes or removes this chain, whether it is there or not.
pub(crate) async fn used(cache: &Path, key: &str, cancel: &CancellationToken) -> Result<InUse, RunError> {
    Ok(InUse { _lock: lock(cache, key, FlockOperation::NonBlockingLockShared, cancel).await? })
}

async fn lock(
    cache: &Path,
    key: &str,
    operation: FlockOperation,
    cancel: &CancellationToken,
) -> Result<File, RunError> {
    let path = lock_path(cache, key);
    let fail = |reason: String| RunError::Fixture { folder: path.clone(), reason };
    fs::create_dir_all(cache).map_err(|e| fail(e.to_string()))?;
    let file = File::create(&path).map_err(|e| fail(e.to_string()))?;
    let now = || file.set_modified(SystemTime::now()).map_err(|e| fail(e.to_string()));
    let wait = async {
        while flock(&file, operation).is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = cancel.cancelled() => Err(RunError::Interrupted),
        locked = tokio::time::timeout(BUILD_MAX, wait) => match locked {
            Ok(()) => now().map(|()| file),
            Err(_) => Err(fail("another run has been building the same chain for too long".to_owned())),
        },
    }
}

fn lock_path(cache: &Path, key: &str) -> PathBuf {
    cache.join(format!("{key}.lock"))
}

/// What [`trim`] to nothing would remove now.
pub(crate) fn removable(cache: &Path) -> Room {
    let mut room = Room::default();
    built(cache).iter().filter(|built| built.nobodys(cache).is_some()).for_each(|built| room.and(built));
    room
}

/// Removes chains that nobody uses, those used least lately first, until all together have at most `most` bytes. What
/// cannot be removed stays: it is in the way of nothing but room.
pub(crate) fn trim(cache: &Path, most: u64) -> Room {
    let mut room = Room::default();
    let all = built(cache);
    let mut bytes: u64 = all.iter().map(|built| built.bytes).sum();
    for built in &all {
        let half_made = built.half_made && built.used.elapsed().is_ok_and(|age| age > HALF_MADE_MAX);
        if bytes <= most && !half_made {
            continue;
        }
        let Some(_lock) = built.nobodys(cache) else { continue };
        if fs::remove_dir_all(&built.folder).is_ok() {
            bytes -= built.bytes;
            room.and(built);
        }
    }
    room
}

/// A chain that is there.
#[derive(Debug)]
struct Built {
    folder: PathBuf,
    key: String,
    bytes: u64,
    used: SystemTime,
    half_made: bool,
}

impl Built {
    /// Its lock, if nobody has it. Whoever makes a chain works in a folder without one.
    fn nobodys(&self, cache: &Path) -> Option<File> {
        if self.half_made {
            return (self.used.elapsed().ok()? > HALF_MADE_MAX).then(|| File::open(&self.folder).ok()).flatten();
        }
        let path = lock_path(cache, &self.key);
        let file = File::options().write(true).create(true).truncate(false).open(path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(file)
    }
}

/// All chains, those used least lately first.
fn built(cache: &Path) -> Vec<Built> {
    let one = |entry: fs::DirEntry| {
        let folder = entry.path();
        let data = fs::symlink_metadata(&folder).ok().filter(fs::Metadata::is_dir)?;
        let key = entry.file_name().to_string_lossy().into_owned();
        let lock = fs::metadata(lock_path(cache, &key)).and_then(|lock| lock.modified());
        let used = lock.or_else(|_| data.modified()).ok()?;
        let half_made = HALF_MADE.iter().any(|prefix| key.starts_with(prefix));
        Some(Built { bytes: bytes(&folder), folder, key, used, half_made })
    };
    let mut all: Vec<Built> = fs::read_dir(cache).into_iter().flatten().flatten().filter_map(one).collect();
    all.sort_by_key(|built| built.used);
    all
}

/// How the folders begin in which chains are made.
pub(crate) const HALF_MADE: [&str; 2] = ["building-", "growing-"];

/// Bytes on disk of all below a folder.
fn bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let one = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    };
    fs::read_dir(folder).into_iter().flatten().flatten().map(one).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &Path, key: &str, age: u64) {
        fs::create_dir_all(cache.join(key).join("data")).unwrap();
        fs::write(cache.join(key).join("data/blocks"), [7; 10_000]).unwrap();
        let lock = File::create(lock_path(cache, key)).unwrap();
        lock.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }

    fn left(cache: &Path) -> Vec<String> {
        let mut keys: Vec<String> = built(cache).into_iter().map(|built| built.key).collect();
        keys.sort();
        keys
    }

    #[tokio::test]
    async fn what_was_used_least_lately_goes_first_and_what_is_in_use_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path();
        for (key, age) in [("a", 10), ("b", 40), ("c", 30), ("d", 20)] {
            put(cache, key, age);
        }
        let each = built(cache)[0].bytes;
        assert!(each >= 10_000);
        assert_eq!(trim(cache, 4 * each), Room::default(), "all have room");
        assert_eq!(trim(cache, 3 * each), Room { chains: 1, bytes: each });
        assert_eq!(left(cache), ["a", "c", "d"]);
        let cancel = CancellationToken::new();
        let oldest = used(cache, "c", &cancel).await.unwrap();
        let shared = used(cache, "c", &cancel).await.unwrap();
        assert_eq!(removable(cache), Room { chains: 2, bytes: 2 * each });
        assert_eq!(trim(cache, 0), Room { chains: 2, bytes: 2 * each });
        assert_eq!(left(cache), ["c"]);
        drop((oldest, shared));
        assert_eq!(trim(cache, 0).chains, 1);
        drop(make(cache, "c", &cancel).await.unwrap());
        assert_eq!(removable(&cache.join("nowhere")), Room::default());
    }

    #[test]
    fn a_chain_half_made_stays_until_its_maker_is_dead_for_sure() {
        let folder = tempfile::tempdir().unwrap();
        let half = folder.path().join("building-x");
        fs::create_dir(&half).unwrap();
        assert_eq!(trim(folder.path(), 0).chains, 0);
        File::open(&half).unwrap().set_modified(SystemTime::now() - 2 * HALF_MADE_MAX).unwrap();
        assert_eq!(trim(folder.path(), BYTES_MAX).chains, 1);
    }
}
