//! What a held call means: its number and registers as a typed value.

use super::filter::native_arch;
use super::listener::Held;

/// Where the bytes of a write lie in the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// One buffer.
    Buffer {
        /// Its address.
        address: u64,
        /// Its length.
        length: usize,
    },
    /// An array of `iovec`s.
    Vector {
        /// Its address.
        address: u64,
        /// How many there are.
        count: usize,
    },
    /// Another file: the bytes never lie in the caller's memory.
    File,
}

/// A path argument: relative to a folder's descriptor, or to the working folder for `AT_FDCWD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAt {
    /// The folder's descriptor.
    pub folder: i32,
    /// Address of the text.
    pub address: u64,
}

/// A held call by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `fsync`, or `fdatasync` where `data_only`.
    Sync {
        /// The file.
        fd: i32,
        /// Only what is needed to read the data back.
        data_only: bool,
    },
    /// `msync` with `MS_SYNC`.
    SyncMap {
        /// First address of the range.
        address: u64,
    },
    /// `sync_file_range`: starts or awaits write-back, and makes nothing durable.
    SyncRange {
        /// The file.
        fd: i32,
    },
    /// `syncfs` or `sync`: everything on a file system, or on all.
    SyncAll,
    /// Any call that puts bytes into a file.
    Write {
        /// The file.
        fd: i32,
        /// The bytes.
        source: Source,
        /// `RWF_SYNC` or `RWF_DSYNC` is set for this one call.
        synced: bool,
    },
    /// `ftruncate` or `fallocate`.
    Resize {
        /// The file.
        fd: i32,
    },
    /// `truncate`.
    ResizePath(PathAt),
    /// An open with one of the flags that the filter asks for.
    Open {
        /// What is opened.
        path: PathAt,
        /// Its flags; `None` where they lie in the caller's memory at this address (`openat2`).
        flags: Result<i32, u64>,
    },
    /// A rename.
    Rename {
        /// The old name.
        from: PathAt,
        /// The new one.
        to: PathAt,
    },
    /// A hard link: the new name.
    Link(PathAt),
    /// An unlink.
    Unlink(PathAt),
    /// A writable, shared map of a file: its later writes cannot be seen.
    Map {
        /// The file.
        fd: i32,
    },
    /// `io_uring_setup`: what comes through the ring cannot be seen.
    Ring,
    /// `io_submit`: its writes and syncs are not looked into.
    Aio,
    /// A call through the i386 or x32 interface.
    Foreign,
    /// Nothing of the above.
    Other,
}

impl Call {
    /// Reads a held call.
    pub fn of(held: &Held) -> Self {
        if held.arch != native_arch() || held.nr < 0 || held.nr & 0x4000_0000 != 0 {
            return Self::Foreign;
        }
        let args = held.args;
        let fd = args[0] as i32;
        match libc::c_long::from(held.nr) {
            libc::SYS_fsync => Self::Sync { fd, data_only: false },
            libc::SYS_fdatasync => Self::Sync { fd, data_only: true },
            libc::SYS_msync => Self::SyncMap { address: args[0] },
            libc::SYS_sync_file_range => Self::SyncRange { fd },
            libc::SYS_syncfs | libc::SYS_sync => Self::SyncAll,
            libc::SYS_write | libc::SYS_pwrite64 => {
                let source = Source::Buffer { address: args[1], length: args[2] as usize };
                Self::Write { fd, source, synced: false }
            }
            libc::SYS_writev | libc::SYS_pwritev => {
                Self::Write { fd, source: Source::Vector { address: args[1], count: args[2] as usize }, synced: false }
            }
            libc::SYS_pwritev2 => {
                let synced = args[5] as i32 & (libc::RWF_SYNC | libc::RWF_DSYNC) != 0;
                Self::Write { fd, source: Source::Vector { address: args[1], count: args[2] as usize }, synced }
            }
            libc::SYS_sendfile => Self::Write { fd, source: Source::File, synced: false },
            libc::SYS_copy_file_range | libc::SYS_splice => {
                Self::Write { fd: args[2] as i32, source: Source::File, synced: false }
            }
            libc::SYS_ftruncate | libc::SYS_fallocate => Self::Resize { fd },
            libc::SYS_truncate => Self::ResizePath(PathAt { folder: libc::AT_FDCWD, address: args[0] }),
            libc::SYS_openat => Self::Open { path: at(args, 0), flags: Ok(args[2] as i32) },
            libc::SYS_openat2 => Self::Open { path: at(args, 0), flags: Err(args[2]) },
            libc::SYS_renameat | libc::SYS_renameat2 => Self::Rename { from: at(args, 0), to: at(args, 2) },
            libc::SYS_linkat => Self::Link(at(args, 2)),
            libc::SYS_unlinkat => Self::Unlink(at(args, 0)),
            libc::SYS_mmap => Self::Map { fd: args[4] as i32 },
            libc::SYS_io_uring_setup => Self::Ring,
            libc::SYS_io_submit => Self::Aio,
            _ => Self::of_old(held),
        }
    }

    /// Calls that only x86-64 has.
    #[cfg(target_arch = "x86_64")]
    fn of_old(held: &Held) -> Self {
        let args = held.args;
        let here = |address| PathAt { folder: libc::AT_FDCWD, address };
        match libc::c_long::from(held.nr) {
            libc::SYS_rename => Self::Rename { from: here(args[0]), to: here(args[1]) },
            libc::SYS_link => Self::Link(here(args[1])),
            libc::SYS_unlink => Self::Unlink(here(args[0])),
            libc::SYS_open => Self::Open { path: here(args[0]), flags: Ok(args[1] as i32) },
            libc::SYS_creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                Self::Open { path: here(args[0]), flags: Ok(flags) }
            }
            _ => Self::Other,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of_old(_held: &Held) -> Self {
        Self::Other
    }
}

fn at(args: [u64; 6], first: usize) -> PathAt {
    PathAt { folder: args[first] as i32, address: args[first + 1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(nr: libc::c_long, args: [u64; 6]) -> Call {
        Call::of(&Held { id: 1, tid: 1, nr: i32::try_from(nr).unwrap(), arch: native_arch(), args })
    }

    #[test]
    fn reads_the_descriptor_that_is_written() {
        assert_eq!(call(libc::SYS_fdatasync, [7, 0, 0, 0, 0, 0]), Call::Sync { fd: 7, data_only: true });
        let copied = call(libc::SYS_copy_file_range, [3, 0, 9, 0, 100, 0]);
        assert_eq!(copied, Call::Write { fd: 9, source: Source::File, synced: false });
        let source = Source::Vector { address: 64, count: 2 };
        let synced = call(libc::SYS_pwritev2, [5, 64, 2, 0, 0, libc::RWF_DSYNC as u64]);
        assert_eq!(synced, Call::Write { fd: 5, source, synced: true });
    }

    #[test]
    fn a_foreign_call_is_never_read_as_a_native_one() {
        let i386 = Held { id: 1, tid: 1, nr: 118, arch: 0x4000_0003, args: [0; 6] };
        assert_eq!(Call::of(&i386), Call::Foreign);
        let x32 = Held { id: 1, tid: 1, nr: 0x4000_0000 | 74, arch: native_arch(), args: [0; 6] };
        assert_eq!(Call::of(&x32), Call::Foreign);
    }
}
