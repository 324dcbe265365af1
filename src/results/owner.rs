//! Who writes a run folder, and whether that process still lives.
//!
//! The owner holds an exclusive lock on `owner.json`. The kernel drops it with the process, however that ends, so
//! that no process id can be mistaken for another one, and a page in a container, which sees other process ids, can
//! still tell. Process id and start time are kept for people and for file systems without locks.

use std::fs::{File, TryLockError};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ResultsError;

/// Name of the file in a run folder.
pub(super) const OWNER: &str = "owner.json";

/// The process that writes a run folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Process id, as the owner sees it.
    pub pid: u32,
    /// When the process started, in clock ticks since boot; `None` where the system does not tell.
    pub start_ticks: Option<u64>,
    /// Identity of this boot; `None` where the system does not tell.
    pub boot_id: Option<String>,
}

/// Whether the owner of a run folder lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The owner's process exists.
    Alive,
    /// It does not.
    Gone,
}

impl Owner {
    /// This process.
    pub(super) fn this() -> Self {
        let pid = std::process::id();
        Self { pid, start_ticks: start_ticks(pid), boot_id: boot_id() }
    }

    /// Whether a process with this id and start time exists now.
    fn exists(&self) -> bool {
        let same_boot = self.boot_id.is_none() || self.boot_id == boot_id();
        same_boot && self.start_ticks.is_some() && start_ticks(self.pid) == self.start_ticks
    }
}

/// Takes ownership of a folder, for as long as the returned file is open.
pub(super) fn take(folder: &Path) -> Result<File, ResultsError> {
    let path = folder.join(OWNER);
    let text = serde_json::to_vec(&Owner::this()).map_err(ResultsError::at("write", &path))?;
    let mut file = File::create_new(&path).map_err(ResultsError::at("create", &path))?;
    std::io::Write::write_all(&mut file, &text).map_err(ResultsError::at("write", &path))?;
    // Blocking: only a reader's look at the lock, which lasts microseconds, can be in the way.
    // A file system without locks leaves the process id as the only sign.
    if let Err(error) = file.lock() {
        tracing::warn!(path = %path.display(), %error, "cannot lock the run folder");
    }
    Ok(file)
}

/// Whether the owner of this run folder lives.
pub fn ownership(folder: &Path) -> Ownership {
    let path = folder.join(OWNER);
    let Ok(file) = File::open(&path) else { return Ownership::Gone };
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => return Ownership::Alive,
        Ok(()) => return Ownership::Gone,
        Err(TryLockError::Error(_)) => {}
    }
    let owner: Option<Owner> = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if owner.is_some_and(|owner| owner.exists()) { Ownership::Alive } else { Ownership::Gone }
}

/// Field 22 of `/proc/PID/stat`; the name in field 2 may hold spaces and brackets.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_lives_as_long_as_it_holds_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(ownership(folder.path()), Ownership::Gone, "nobody took it");
        let held = take(folder.path()).unwrap();
        assert_eq!(ownership(folder.path()), Ownership::Alive);
        assert_eq!(ownership(folder.path()), Ownership::Alive, "looking does not take the lock away");
        drop(held);
        assert_eq!(ownership(folder.path()), Ownership::Gone);
    }

    #[test]
    fn a_process_id_that_now_belongs_to_another_process_is_not_the_owner() {
        let this = Owner::this();
        assert!(this.exists());
        assert!(!Owner { start_ticks: this.start_ticks.map(|t| t + 1), ..this.clone() }.exists());
        assert!(!Owner { boot_id: Some("another boot".to_owned()), ..this }.exists());
    }
}
