//! The classic BPF program that decides in the kernel which system calls are told to the agent.
//!
//! Calls that are not in the table cost nothing: the kernel sees that they are always allowed and skips the
//! program (since 5.11). Those in the table are looked at by their arguments first, so that what cannot matter
//! (an eventfd wake-up, an open for reading, a private map) goes on at once.

use libc::sock_filter;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Syncs, renames, truncations, opens with `O_SYNC` or `O_DSYNC`, and what would escape the filter.
    Syncs,
    /// Also writes, creates and unlinks.
    Writes,
}

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xC000_00B7;

/// Calls of the x32 interface are native ones with this bit set.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Bytes of an eventfd wake-up: three quarters of a Go node's writes. No store is known to write eight bytes by
/// `write` alone; `pwrite64` is not filtered by length.
const WAKE_UP: u32 = 8;

/// When a call in the table is told.
#[derive(Clone, Copy)]
enum When {
    Always,
    /// Unless this argument has this value.
    UnlessEqual(usize, u32),
    /// If any of these bits is set in this argument.
    AnyBit(usize, u32),
    /// Unless arguments 1 to 3 are all zero: Pebble's and goleveldb's question whether the call exists.
    UnlessProbe,
    /// A writable, shared map of a file.
    SharedMap,
}

/// The native architecture of this build, as `seccomp_data.arch` has it.
pub const fn native_arch() -> u32 {
    NATIVE
}

fn table(depth: Depth) -> Vec<(libc::c_long, When)> {
    let synced = (libc::O_DSYNC | libc::O_SYNC) as u32;
    let changing = (libc::O_CREAT | libc::O_TRUNC) as u32;
    let open = match depth {
        Depth::Syncs => synced,
        Depth::Writes => synced | changing,
    };
    let mut calls = vec![
        (libc::SYS_fsync, When::Always),
        (libc::SYS_fdatasync, When::Always),
        (libc::SYS_msync, When::AnyBit(2, libc::MS_SYNC as u32)),
        (libc::SYS_sync_file_range, When::UnlessProbe),
        (libc::SYS_syncfs, When::Always),
        (libc::SYS_sync, When::Always),
        (libc::SYS_renameat, When::Always),
        (libc::SYS_renameat2, When::Always),
        (libc::SYS_ftruncate, When::Always),
        (libc::SYS_fallocate, When::Always),
        (libc::SYS_openat, When::AnyBit(2, open)),
        (libc::SYS_openat2, When::Always),
        (libc::SYS_mmap, When::SharedMap),
        (libc::SYS_io_uring_setup, When::Always),
        (libc::SYS_io_submit, When::Always),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([(libc::SYS_rename, When::Always), (libc::SYS_open, When::AnyBit(1, open))]);
    if depth == Depth::Writes {
        calls.extend([
            (libc::SYS_write, When::UnlessEqual(2, WAKE_UP)),
            (libc::SYS_writev, When::Always),
            (libc::SYS_pwrite64, When::Always),
            (libc::SYS_pwritev, When::Always),
            (libc::SYS_pwritev2, When::Always),
            (libc::SYS_copy_file_range, When::Always),
            (libc::SYS_sendfile, When::Always),
            (libc::SYS_splice, When::Always),
            (libc::SYS_truncate, When::Always),
            (libc::SYS_unlinkat, When::Always),
            (libc::SYS_linkat, When::Always),
        ]);
        #[cfg(target_arch = "x86_64")]
        calls.extend([
            (libc::SYS_unlink, When::Always),
            (libc::SYS_link, When::Always),
            (libc::SYS_creat, When::Always),
        ]);
    }
    calls
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const BITS: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const OFFSET_NR: u32 = 0;
const OFFSET_ARCH: u32 = 4;

const fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

const fn allow() -> sock_filter {
    op(RETURN, libc::SECCOMP_RET_ALLOW)
}

const fn tell() -> sock_filter {
    op(RETURN, libc::SECCOMP_RET_USER_NOTIF)
}

/// Loads the low half of an argument. Both supported architectures are little-endian.
const fn argument(index: usize) -> sock_filter {
    op(LOAD, 16 + 8 * index as u32)
}

/// The instructions behind "the number matches"; they always end in a return.
fn decide(when: When) -> Vec<sock_filter> {
    match when {
        When::Always => vec![tell()],
        When::UnlessEqual(index, value) => vec![argument(index), jump(EQUAL, value, 0, 1), allow(), tell()],
        When::AnyBit(index, bits) => vec![argument(index), jump(BITS, bits, 1, 0), allow(), tell()],
        When::UnlessProbe => vec![
            argument(1),
            jump(EQUAL, 0, 0, 5),
            argument(2),
            jump(EQUAL, 0, 0, 3),
            argument(3),
            jump(EQUAL, 0, 0, 1),
            allow(),
            tell(),
        ],
        When::SharedMap => vec![
            argument(2),
            jump(BITS, libc::PROT_WRITE as u32, 0, 4),
            argument(3),
            jump(BITS, libc::MAP_ANONYMOUS as u32, 2, 0),
            jump(BITS, libc::MAP_SHARED as u32, 0, 1),
            tell(),
            allow(),
        ],
    }
}

/// The whole program. Calls of a foreign interface (i386, x32) are all told, so that they can be reported
/// instead of slipping through.
pub fn program(depth: Depth) -> Vec<sock_filter> {
    let mut code = vec![op(LOAD, OFFSET_ARCH), jump(EQUAL, NATIVE, 1, 0), tell(), op(LOAD, OFFSET_NR)];
    #[cfg(target_arch = "x86_64")]
    code.extend([jump(AT_LEAST, X32, 0, 1), tell()]);
    #[cfg(not(target_arch = "x86_64"))]
    let _x86_only = AT_LEAST;
    for (number, when) in table(depth) {
        let block = decide(when);
        code.push(jump(EQUAL, number as u32, 0, block.len() as u8));
        code.extend(block);
    }
    code.push(allow());
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel would.
    fn run(code: &[sock_filter], arch: u32, nr: libc::c_long, args: [u64; 6]) -> bool {
        let mut data = Vec::new();
        data.extend((nr as u32).to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend(0u64.to_le_bytes());
        for arg in args {
            data.extend(arg.to_le_bytes());
        }
        let (mut at, mut acc) = (0usize, 0u32);
        for _ in 0..code.len() {
            let now = code[at];
            at += 1;
            let (jt, jf) = (usize::from(now.jt), usize::from(now.jf));
            match now.code {
                LOAD => acc = u32::from_le_bytes(data[now.k as usize..][..4].try_into().unwrap()),
                EQUAL => at += if acc == now.k { jt } else { jf },
                AT_LEAST => at += if acc >= now.k { jt } else { jf },
                BITS => at += if acc & now.k != 0 { jt } else { jf },
                RETURN => return now.k == libc::SECCOMP_RET_USER_NOTIF,
                other => panic!("instruction {other}"),
            }
        }
        panic!("the program does not end");
    }

    fn told(depth: Depth, nr: libc::c_long, args: [u64; 6]) -> bool {
        run(&program(depth), NATIVE, nr, args)
    }

    #[test]
    fn syncs_are_told_in_both_depths() {
        for depth in [Depth::Syncs, Depth::Writes] {
            for nr in [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_syncfs, libc::SYS_sync, libc::SYS_renameat2] {
                assert!(told(depth, nr, [3, 0, 0, 0, 0, 0]), "{nr}");
            }
            for nr in [libc::SYS_read, libc::SYS_futex, libc::SYS_close, libc::SYS_execve, libc::SYS_sendmsg] {
                assert!(!told(depth, nr, [3, 1, 1, 1, 1, 1]), "{nr}");
            }
        }
    }

    #[test]
    fn a_probe_for_sync_file_range_is_no_sync() {
        assert!(!told(Depth::Writes, libc::SYS_sync_file_range, [5, 0, 0, 0, 0, 0]));
        for args in [[5, 1, 0, 0, 0, 0], [5, 0, 4096, 0, 0, 0], [5, 0, 0, 2, 0, 0]] {
            assert!(told(Depth::Writes, libc::SYS_sync_file_range, args));
        }
    }

    #[test]
    fn writes_are_told_only_when_asked_and_never_a_wake_up() {
        assert!(!told(Depth::Syncs, libc::SYS_write, [3, 0, 4096, 0, 0, 0]));
        assert!(told(Depth::Writes, libc::SYS_write, [3, 0, 4096, 0, 0, 0]));
        assert!(!told(Depth::Writes, libc::SYS_write, [3, 0, 8, 0, 0, 0]));
        assert!(told(Depth::Writes, libc::SYS_pwrite64, [3, 0, 8, 0, 0, 0]));
    }

    #[test]
    fn opens_and_maps_are_told_by_their_flags() {
        let open = |depth, flags: i32| told(depth, libc::SYS_openat, [0, 0, flags as u64, 0, 0, 0]);
        assert!(open(Depth::Syncs, libc::O_WRONLY | libc::O_SYNC));
        assert!(open(Depth::Syncs, libc::O_RDWR | libc::O_DSYNC));
        assert!(!open(Depth::Syncs, libc::O_WRONLY | libc::O_CREAT));
        assert!(open(Depth::Writes, libc::O_WRONLY | libc::O_CREAT));
        assert!(!open(Depth::Writes, libc::O_RDWR | libc::O_CLOEXEC));
        let map = |prot: i32, flags: i32| told(Depth::Writes, libc::SYS_mmap, [0, 9, prot as u64, flags as u64, 4, 0]);
        let both = libc::PROT_READ | libc::PROT_WRITE;
        assert!(map(both, libc::MAP_SHARED));
        assert!(map(both, libc::MAP_SHARED_VALIDATE));
        assert!(!map(both, libc::MAP_PRIVATE));
        assert!(!map(both, libc::MAP_SHARED | libc::MAP_ANONYMOUS));
        assert!(!map(libc::PROT_READ, libc::MAP_SHARED));
    }

    #[test]
    fn a_foreign_interface_never_slips_through() {
        let code = program(Depth::Syncs);
        assert!(run(&code, 0x4000_0003, libc::SYS_read, [0; 6]), "i386");
        #[cfg(target_arch = "x86_64")]
        assert!(run(&code, NATIVE, libc::SYS_read | libc::c_long::from(X32), [0; 6]), "x32");
    }
}
