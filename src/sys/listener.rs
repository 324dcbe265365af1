//! The listener of a seccomp filter: receives held calls and answers them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Room for what the kernel writes on a receive. The kernel says how much it needs; see [`Listener::new`].
const RECEIVE_BYTES: usize = 512;

/// A system call that the kernel holds until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Names this one call in answers.
    pub id: u64,
    /// The calling thread, in this process's pid namespace; 0 if it cannot be seen from here.
    pub tid: i32,
    /// Number of the call.
    pub nr: i32,
    /// Interface of the call, as in `seccomp_data.arch`.
    pub arch: u32,
    /// Arguments as they lay in registers.
    pub args: [u64; 6],
}

/// What a held call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel goes on with the call.
    Continue,
    /// The call is not made and returns this value.
    Value(i64),
    /// The call is not made and fails with this errno.
    Errno(i32),
}

/// Receiving end of one filter.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

#[repr(C, align(8))]
struct Room([u8; RECEIVE_BYTES]);

impl Listener {
    /// Takes the descriptor that installing the filter gave. Refuses a kernel whose structures do not fit.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let mut sizes = libc::seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
        // SAFETY: the kernel writes one `seccomp_notif_sizes` to the pointer, which is valid for it.
        let done = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_GET_NOTIF_SIZES,
                0,
                std::ptr::from_mut(&mut sizes).cast::<libc::c_void>(),
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        let response = size_of::<libc::seccomp_notif_resp>();
        if usize::from(sizes.seccomp_notif) > RECEIVE_BYTES || usize::from(sizes.seccomp_notif_resp) > response {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's seccomp structures are larger"));
        }
        let listener = Self { fd };
        listener.wake_on_same_cpu();
        Ok(listener)
    }

    /// Asks for the faster hand-over (since 6.6): the one who answers yields its CPU to the one who waits.
    fn wake_on_same_cpu(&self) {
        const SYNC_WAKE_UP: u64 = 1;
        // SAFETY: the argument of this ioctl is a plain number.
        let _older_kernels_refuse =
            unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
    }

    /// Takes the next held call. `None` when it went away meanwhile (a signal, its thread's death), or when a
    /// signal came to this thread: ask again after a `poll`.
    pub fn receive(&self) -> io::Result<Option<Held>> {
        let mut room = Room([0; RECEIVE_BYTES]);
        // SAFETY: the buffer is zeroed as the kernel demands, aligned for the structure, and at least as large as
        // the kernel's own, which `new` has checked.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, room.0.as_mut_ptr()) };
        if done != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: the kernel has filled the beginning of the buffer with a `seccomp_notif`, for which it is aligned
        // and large enough; every bit pattern is a valid one.
        let got = unsafe { room.0.as_ptr().cast::<libc::seccomp_notif>().read() };
        Ok(Some(Held { id: got.id, tid: got.pid as i32, nr: got.data.nr, arch: got.data.arch, args: got.data.args }))
    }

    /// Answers a held call; `false` when it is not waiting any more.
    pub fn answer(&self, id: u64, answer: Answer) -> io::Result<bool> {
        let (val, error, flags) = match answer {
            Answer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Value(value) => (value, 0, 0),
            Answer::Errno(errno) => (0, -errno, 0),
        };
        let mut response = libc::seccomp_notif_resp { id, val, error, flags };
        // SAFETY: the kernel reads one `seccomp_notif_resp` from the pointer, whose size `new` has checked.
        let done = unsafe {
            libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, std::ptr::from_mut(&mut response))
        };
        Self::waiting(done)
    }

    /// Whether a held call still waits: only then what `/proc` said about its thread was about the right thread.
    pub fn is_waiting(&self, id: u64) -> io::Result<bool> {
        let mut id = id;
        // SAFETY: the kernel reads one number from the pointer.
        let done = unsafe {
            libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, std::ptr::from_mut(&mut id))
        };
        Self::waiting(done)
    }

    fn waiting(done: libc::c_int) -> io::Result<bool> {
        if done == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ENOENT) { Ok(false) } else { Err(error) }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
