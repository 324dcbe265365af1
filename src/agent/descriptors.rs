//! Which file a descriptor of the node is, asked anew for each call.
//!
//! A descriptor number is used again as soon as it is closed, and `close` is not intercepted, so that the kernel is asked every
//! time. What is remembered only makes the question cheap: the folder of a thread's descriptors in `/proc`, kept open, and what
//! each answer means. An open folder of `/proc` stands for one thread: when that is gone, nothing is found in it, whoever has
//! its number by then.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, readlinkat_raw};
use rustix::io::Errno;

use super::stores::StoreIndex;

/// Folders kept open. A node has tens of threads that write; beyond this all are opened anew.
const FOLDERS_MAX: usize = 256;
/// Answers remembered.
const ANSWERS_MAX: usize = 4096;
/// Longest path that the kernel gives.
const PATH_MAX: usize = 4096;
/// What the kernel adds to the path of a file that has been unlinked.
const DELETED: &[u8] = b" (deleted)";

/// The file that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its store; `None` where only an observer wants to know.
    pub(crate) store: Option<StoreIndex>,
    /// Its path, absolute.
    pub(crate) path: Arc<Path>,
}

/// What is remembered.
#[derive(Default)]
pub(crate) struct Descriptors {
    kept: Mutex<Kept>,
}

struct Kept {
    folders: BTreeMap<i32, OwnedFd>,
    answers: BTreeMap<Vec<u8>, Option<Target>>,
    room: Vec<u8>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { folders: BTreeMap::new(), answers: BTreeMap::new(), room: vec![0; PATH_MAX] }
    }
}

impl Descriptors {
    /// The file behind a descriptor as `meaning` reads its path, which must give the same for the same path. `None` for a socket,
    /// a pipe and whatever else has no path.
    pub(crate) fn target(
        &self,
        tid: i32,
        fd: i32,
        meaning: impl FnOnce(PathBuf) -> Option<Target>,
    ) -> io::Result<Option<Target>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let length = kept.read(tid, fd)?;
        if let Some(known) = kept.answers.get(&kept.room[..length]) {
            return Ok(known.clone());
        }
        let target = path(&kept.room[..length]).and_then(meaning);
        if kept.answers.len() >= ANSWERS_MAX {
            kept.answers.clear();
        }
        let link = kept.room[..length].to_vec();
        kept.answers.insert(link, target.clone());
        Ok(target)
    }
}

impl Kept {
    /// Reads the link of a descriptor into the room: through the folder that is open, else through a new one. Its length.
    fn read(&mut self, tid: i32, fd: i32) -> io::Result<usize> {
        let name = rustix::path::DecInt::new(fd);
        if let Some(folder) = self.folders.get(&tid) {
            match readlinkat_raw(folder, name.as_c_str(), &mut self.room[..]) {
                // Not open, or the thread is another one by now: a new folder tells.
                Err(Errno::NOENT | Errno::SRCH) => drop(self.folders.remove(&tid)),
                read => return Ok(read?),
            }
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(format!("/proc/{tid}/fd"), flags, Mode::empty())?;
        let length = readlinkat_raw(&folder, name.as_c_str(), &mut self.room[..])?;
        if self.folders.len() >= FOLDERS_MAX {
            self.folders.clear();
        }
        self.folders.insert(tid, folder);
        Ok(length)
    }
}

/// The path that a link tells, alive or not.
fn path(link: &[u8]) -> Option<PathBuf> {
    let path = link.strip_suffix(DELETED).unwrap_or(link);
    link.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;

    fn me() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    fn path_of(descriptors: &Descriptors, tid: i32, fd: i32) -> io::Result<Option<PathBuf>> {
        let meaning = |path: PathBuf| Some(Target { store: None, path: path.into() });
        descriptors.target(tid, fd, meaning).map(|target| target.map(|target| target.path.to_path_buf()))
    }

    #[test]
    fn a_file_has_a_path_also_when_it_is_unlinked_and_a_pipe_has_none() {
        let descriptors = Descriptors::default();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("000001.log");
        let file = File::create(&path).unwrap();
        for _ in 0..2 {
            assert_eq!(path_of(&descriptors, me(), file.as_raw_fd()).unwrap(), Some(path.clone()));
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(path_of(&descriptors, me(), file.as_raw_fd()).unwrap(), Some(path));
        let (pipe, _other) = io::pipe().unwrap();
        assert_eq!(path_of(&descriptors, me(), pipe.as_raw_fd()).unwrap(), None);
        assert_eq!(path_of(&descriptors, me(), -1).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_number_that_is_used_again_is_the_new_file() {
        let descriptors = Descriptors::default();
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let file = File::create(folder.join("a")).unwrap();
        let number = file.as_raw_fd();
        assert_eq!(path_of(&descriptors, me(), number).unwrap(), Some(folder.join("a")));
        let other = File::create(folder.join("b")).unwrap();
        // Puts the second file behind the first one's number, as `close` and `open` would.
        let mut file = std::os::fd::OwnedFd::from(file);
        rustix::io::dup2(&other, &mut file).unwrap();
        assert_eq!(path_of(&descriptors, me(), number).unwrap(), Some(folder.join("b")));
    }
}
