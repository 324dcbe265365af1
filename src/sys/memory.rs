//! Reads another process's memory: the bytes of a write, the path of a rename.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest path that is read.
const PATH_MAX: usize = 4096;
/// Reads of a path stop at these boundaries, since the page behind it may not be mapped.
const PAGE: u64 = 4096;
/// Most pieces of one vectored write that are read (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

/// Set once `process_vm_readv` was refused: a container's system-call filter does not change its mind.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Reads up to `length` bytes at `address` of the process that thread `tid` belongs to. Shorter where memory ends.
///
/// Docker's default filter refuses `process_vm_readv` to containers without `CAP_SYS_PTRACE`. The memory file in `/proc`
/// asks the kernel for the same right, that to trace the process, and no filter stands before it.
pub fn read(tid: i32, address: u64, length: usize) -> io::Result<Vec<u8>> {
    if REFUSED.load(Ordering::Relaxed) {
        return read_file(tid, address, length);
    }
    match read_directly(tid, address, length) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
            let bytes = read_file(tid, address, length)?;
            REFUSED.store(true, Ordering::Relaxed);
            Ok(bytes)
        }
        done => done,
    }
}

/// Reads through the memory file.
fn read_file(tid: i32, address: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let got = File::open(format!("/proc/{tid}/mem"))?.read_at(&mut bytes, address)?;
    bytes.truncate(got);
    Ok(bytes)
}

fn read_directly(tid: i32, address: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::<u8>::with_capacity(length);
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
    // SAFETY: `local` describes the spare capacity of `bytes`, which the kernel may write to; `remote` is an address
    // in the other process, which the kernel checks.
    let got = unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has initialised the first `got` bytes, which are at most `length`.
    unsafe { bytes.set_len(got as usize) };
    Ok(bytes)
}

/// Reads a zero-terminated string, without the zero.
pub fn read_string(tid: i32, address: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut at = address;
    while text.len() < PATH_MAX {
        let piece = read(tid, at, (PAGE - at % PAGE) as usize)?;
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&piece[..end]);
            return Ok(text);
        }
        at += piece.len() as u64;
        text.extend_from_slice(&piece);
        if piece.is_empty() {
            break;
        }
    }
    Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
}

/// Reads the bytes behind an array of `count` `iovec`s, at most `length_max` in all.
pub fn read_vector(tid: i32, address: u64, count: usize, length_max: usize) -> io::Result<Vec<u8>> {
    let size = size_of::<libc::iovec>();
    let raw = read(tid, address, count.min(PIECES_MAX) * size)?;
    let mut bytes = Vec::new();
    for piece in raw.chunks_exact(size) {
        let (base, length) = piece.split_at(8);
        let base = u64::from_ne_bytes(base.try_into().expect("eight bytes"));
        let length = u64::from_ne_bytes(length.try_into().expect("eight bytes"));
        let wanted = usize::try_from(length).unwrap_or(usize::MAX).min(length_max - bytes.len());
        if wanted > 0 {
            bytes.extend(read(tid, base, wanted)?);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn reads_what_is_there() {
        let text = c"data/priv_validator_state.json";
        let address = text.as_ptr() as u64;
        assert_eq!(read(me(), address, 4).unwrap(), b"data");
        assert_eq!(read_string(me(), address).unwrap(), text.to_bytes());
        read(me(), 8, 8).unwrap_err();
        assert_eq!(read_file(me(), address, 4).unwrap(), read_directly(me(), address, 4).unwrap());
        read_file(me(), 8, 8).unwrap_err();
    }

    #[test]
    fn reads_all_pieces_of_a_vector_up_to_the_limit() {
        let (one, two) = (b"first ".to_vec(), b"second".to_vec());
        let vector = [
            libc::iovec { iov_base: one.as_ptr() as *mut _, iov_len: one.len() },
            libc::iovec { iov_base: two.as_ptr() as *mut _, iov_len: two.len() },
        ];
        let address = vector.as_ptr() as u64;
        assert_eq!(read_vector(me(), address, 2, 100).unwrap(), b"first second");
        assert_eq!(read_vector(me(), address, 2, 8).unwrap(), b"first se");
    }
}
