//! What `/proc` tells about the thread behind a held call: open flags, paths, states. What was read counts only if the call
//! still waits afterwards, since a thread id may be reused.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use crate::sys::call::PathAt;
use crate::sys::memory;

/// `AT_FDCWD`: relative to the working folder.
const HERE: i32 = -100;
const O_NONBLOCK: i32 = 0o4000;
/// `O_SYNC` and `O_DSYNC` as `fdinfo` shows them.
const SYNCED_FLAGS: u32 = 0o4_010_000;

/// Opens the file behind a descriptor of the node anew. Reading is enough for a sync; a file that may not be read is
/// opened for writing.
pub(crate) fn open(tid: i32, fd: i32) -> io::Result<File> {
    let path = format!("/proc/{tid}/fd/{fd}");
    let reading = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(&path);
    match reading {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&path)
        }
        other => other,
    }
}

/// Whether a descriptor is open with `O_SYNC` or `O_DSYNC`.
pub(crate) fn is_synced(tid: i32, fd: i32) -> bool {
    let Ok(info) = fs::read_to_string(format!("/proc/{tid}/fdinfo/{fd}")) else { return false };
    info.lines()
        .find_map(|line| line.strip_prefix("flags:"))
        .and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok())
        .is_some_and(|flags| flags & SYNCED_FLAGS != 0)
}

/// The path that an argument names, absolute, its folder without symbolic links.
pub(crate) fn named(tid: i32, at: PathAt) -> io::Result<PathBuf> {
    let text = memory::read_string(tid, at.address)?;
    let given = PathBuf::from(std::ffi::OsString::from_vec(text));
    let whole = if given.is_absolute() {
        given
    } else if at.folder == HERE {
        fs::read_link(format!("/proc/{tid}/cwd"))?.join(given)
    } else {
        fs::read_link(format!("/proc/{tid}/fd/{}", at.folder))?.join(given)
    };
    let whole = flatten(&whole);
    match (whole.parent().map(fs::canonicalize), whole.file_name()) {
        (Some(Ok(folder)), Some(name)) => Ok(folder.join(name)),
        _ => Ok(whole),
    }
}

/// Takes `.` and `..` out of a path.
fn flatten(path: &Path) -> PathBuf {
    let mut flat = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                flat.pop();
            }
            other => flat.push(other),
        }
    }
    flat
}

/// The file that is mapped at an address.
pub(crate) fn mapped(tid: i32, address: u64) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{tid}/maps")).ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        let path = rest.find('/').map(|at| PathBuf::from(rest[at..].trim_end_matches(" (deleted)")));
        (from..to).contains(&address).then_some(path).flatten()
    })
}

/// Threads of a process that are neither stopped nor dead; empty when the process is gone.
pub(crate) fn moving(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
        .filter(|tid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            !matches!(state, None | Some('T' | 't' | 'Z' | 'X'))
        })
        .collect()
}

/// What a thread does, for diagnosing one that does not stop: its state, where in the kernel it waits, and its call.
pub(crate) fn doing(pid: i32, tid: i32) -> String {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let stat = read("stat");
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?');
    format!("thread {tid} state {state}, waits in {}, call {}", read("wchan"), read("syscall"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn me() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn a_synced_descriptor_is_told_from_a_plain_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let plain = File::create(&path).unwrap();
        assert!(!is_synced(me(), plain.as_raw_fd()));
        for flag in [0o10_000, 0o4_010_000] {
            let synced = OpenOptions::new().write(true).custom_flags(flag).open(&path).unwrap();
            assert!(is_synced(me(), synced.as_raw_fd()));
        }
    }

    #[test]
    fn named_paths_are_absolute_and_without_links() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap().join("real");
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, folder.path().join("link")).unwrap();
        let text = std::ffi::CString::new(format!("{}/link/../link/./new", folder.path().display())).unwrap();
        let at = PathAt { folder: HERE, address: text.as_ptr() as u64 };
        assert_eq!(named(me(), at).unwrap(), real.join("new"));
        let open = File::open(&real).unwrap();
        let at = PathAt { folder: open.as_raw_fd(), address: c"new".as_ptr() as u64 };
        assert_eq!(named(me(), at).unwrap(), real.join("new"));
    }

    #[test]
    fn this_process_moves() {
        assert!(!moving(me()).is_empty());
        assert!(moving(i32::MAX).is_empty());
    }
}
