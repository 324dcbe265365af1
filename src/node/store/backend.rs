//! How a database reaches its file: plain positioned writes and one fdatasync a commit.
//!
//! Two things are between the database and its file. A gate closes for good when the node stops, so that closing a database
//! writes nothing that a kill would not have written. And the file is longer than the database asks for: it grows in
//! large steps and never shrinks, since each step costs one more sync, in the middle of a flush, that is not a commit's.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redb::StorageBackend;

use super::StoreName;

/// Length of a new file. It is a hole until it is written.
const FILE_ROOM: u64 = 8 << 20;
/// How long an owner that is going away may take.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_POLL: Duration = Duration::from_millis(10);

/// What databases lie on.
pub trait Disk: Send + Sync {
    /// Opens the storage of one database and takes it for this process alone.
    fn open(&self, name: StoreName) -> io::Result<Box<dyn StorageBackend>>;

    /// Whether a commit is to be synced. Without, a power cut may leave anything.
    fn syncs(&self) -> bool;

    /// Bytes that a new file has at least: a multiple of 4096.
    fn room(&self) -> u64;
}

/// Files in a folder.
#[derive(Debug)]
pub struct FileDisk {
    data: PathBuf,
    sync: bool,
}

impl FileDisk {
    /// Files in `data`, synced or not.
    pub fn new(data: &Path, sync: bool) -> Self {
        Self { data: data.to_owned(), sync }
    }
}

impl Disk for FileDisk {
    fn open(&self, name: StoreName) -> io::Result<Box<dyn StorageBackend>> {
        std::fs::create_dir_all(&self.data)?;
        let path = self.data.join(name.file());
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        take(&file)?;
        Ok(Box::new(FileBackend { file }))
    }

    fn syncs(&self) -> bool {
        self.sync
    }

    fn room(&self) -> u64 {
        FILE_ROOM
    }
}

/// Locks the file. A process that was killed gives its locks back only once it is gone, a moment after the signal: that
/// long is waited for.
fn take(file: &File) -> io::Result<()> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(LOCK_POLL),
            Err(TryLockError::WouldBlock) => return Err(io::Error::other("another process has it open")),
        }
    }
}

#[derive(Debug)]
struct FileBackend {
    file: File,
}

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }
}

/// Whether a database may still write, and what it wrote.
#[derive(Debug)]
pub struct Gate {
    open: AtomicBool,
    syncs: AtomicU64,
    writes: AtomicU64,
}

impl Gate {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { open: AtomicBool::new(true), syncs: AtomicU64::new(0), writes: AtomicU64::new(0) })
    }

    /// Refuses every later write.
    pub(super) fn close(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// Syncs since the database was opened.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Writes since the database was opened.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    fn pass(&self) -> io::Result<()> {
        if self.open.load(Ordering::Acquire) { Ok(()) } else { Err(io::Error::other("the node has stopped")) }
    }
}

/// What is known about a file's length.
#[derive(Clone, Copy, Debug)]
struct Length {
    /// What the database believes.
    asked: u64,
    /// What the file has, never less.
    given: u64,
    /// Whether anything was written, or the file was made longer, since the last sync.
    unsynced: bool,
}

/// A backend behind its gate.
pub(super) struct Gated {
    inner: Box<dyn StorageBackend>,
    gate: Arc<Gate>,
    syncs: bool,
    room: u64,
    length: Mutex<Length>,
}

impl Gated {
    pub(super) fn open(disk: &dyn Disk, name: StoreName, gate: Arc<Gate>) -> io::Result<Self> {
        let inner = disk.open(name)?;
        let given = inner.len()?;
        let length = Mutex::new(Length { asked: given, given, unsynced: false });
        Ok(Self { inner, gate, syncs: disk.syncs(), room: disk.room(), length })
    }

    fn length(&self) -> std::sync::MutexGuard<'_, Length> {
        self.length.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl StorageBackend for Gated {
    fn len(&self) -> io::Result<u64> {
        Ok(self.length().asked)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    /// A database that was not closed takes its layout from the file's length, so that a file may have any number of pages.
    /// What an earlier, longer version left in a page that is asked for again is like what any free page holds.
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.gate.pass()?;
        let mut length = self.length();
        length.asked = len;
        if len > length.given {
            length.given = if len > self.room { len.next_power_of_two() * 2 } else { self.room };
            length.unsynced = true;
            self.inner.set_len(length.given)?;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass()?;
        let mut length = self.length();
        if !self.syncs || !length.unsynced {
            return Ok(());
        }
        self.gate.syncs.fetch_add(1, Ordering::Relaxed);
        self.inner.sync_data()?;
        length.unsynced = false;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.gate.pass()?;
        self.gate.writes.fetch_add(1, Ordering::Relaxed);
        self.length().unsynced = true;
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }
}
