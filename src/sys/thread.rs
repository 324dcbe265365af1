//! Signals for one thread.

use std::io;

/// Sends SIGSTOP to one thread of a process, by which the whole process stops. A thread that is gone is no error.
///
/// # Errors
///
/// What the kernel says, such as `EPERM` for a process of another user.
pub fn stop(pid: i32, tid: i32) -> io::Result<()> {
    // SAFETY: `tgkill` takes three numbers and touches no memory of ours. The kernel checks that the thread belongs to the
    // process, so that a reused id of a thread elsewhere is not hit.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGSTOP) };
    if sent == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        gone if gone.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        error => Err(error),
    }
}
