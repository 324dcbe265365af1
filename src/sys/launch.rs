//! Starts a program under a filter: fork, filter, hand over the listener, exec.
//!
//! `std::process::Command` cannot do it: its child waits for `exec` in ways that a filter may hold. Everything
//! that the child needs is made before the fork, since after it, in a process that had other threads, only
//! async-signal-safe calls are allowed.

use std::ffi::{CString, OsStr, c_char};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{Pid, PidfdFlags, WaitOptions};

use super::filter::{self, Depth};
use super::listener::Listener;

/// How long the child may take from fork to exec.
const EXEC_DEADLINE: Duration = Duration::from_secs(10);

/// A program to start.
#[derive(Debug)]
pub struct Program<'a> {
    /// Absolute path.
    pub path: &'a Path,
    /// Arguments, the program's own name first.
    pub arguments: &'a [String],
    /// Environment as `KEY=value`, complete.
    pub environment: &'a [String],
    /// Working folder.
    pub folder: &'a Path,
    /// Becomes its standard input.
    pub input: &'a OwnedFd,
    /// Becomes its standard output and error.
    pub output: &'a OwnedFd,
    /// How much is told; `None` installs no filter.
    pub depth: Option<Depth>,
}

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    /// Its process id, also the id of its process group.
    pub pid: Pid,
    /// Its descriptor.
    pub pidfd: OwnedFd,
    /// Its filter's listener.
    pub listener: Option<Listener>,
    /// A received call can only be interrupted by a fatal signal.
    pub wait_killable: bool,
}

/// The step of a start that failed. Reads after "failed to".
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct LaunchError {
    /// The step, in words.
    pub step: &'static str,
    /// What the kernel said.
    pub source: io::Error,
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> LaunchError {
    move |source| LaunchError { step, source }
}

/// Steps that the child can fail at, by the number that it reports.
const STEPS: [&str; 5] =
    ["tie the node to the agent", "prepare the node's descriptors", "enter the node's folder", FILTER, "execute"];
const FILTER: &str = "install the seccomp filter";

/// What the child reads after the fork. All pointers stay valid, since the parent's memory is copied.
struct Prepared {
    parent: libc::pid_t,
    path: CString,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    folder: CString,
    input: RawFd,
    output: RawFd,
    report: RawFd,
    filter: Option<Vec<libc::sock_filter>>,
}

/// Starts a program in its own process group and waits until it runs. It is killed when the calling *thread* ends:
/// call this from a thread that lives as long as the agent.
pub fn launch(program: &Program<'_>) -> Result<Running, LaunchError> {
    let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(|e| failed("read the command")(e.into()));
    let texts = |list: &[String]| list.iter().map(|t| text(OsStr::new(t))).collect::<Result<Vec<_>, _>>();
    let (arguments, environment) = (texts(program.arguments)?, texts(program.environment)?);
    let pointers = |list: &[CString]| list.iter().map(|t| t.as_ptr()).chain([std::ptr::null()]).collect();
    let (ours, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| failed("make a socket pair")(e.into()))?;
    let prepared = Prepared {
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        path: text(program.path.as_os_str())?,
        argv: pointers(&arguments),
        envp: pointers(&environment),
        folder: text(program.folder.as_os_str())?,
        input: program.input.as_raw_fd(),
        output: program.output.as_raw_fd(),
        report: theirs.as_raw_fd(),
        filter: program.depth.map(filter::program),
    };
    // SAFETY: the child runs `child`, which makes only async-signal-safe calls and never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: this is the child of a fork, and all that `prepared` points to has been copied with it.
        unsafe { child(&prepared) }
    }
    drop(theirs);
    let pid = Pid::from_raw(pid).filter(|pid| pid.as_raw_nonzero().get() > 0);
    let pid = pid.ok_or_else(|| failed("fork")(io::Error::last_os_error()))?;
    finish(pid, &ours).inspect_err(|_| {
        let _gone_already = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        let _reaped = rustix::process::waitpid(Some(pid), WaitOptions::empty());
    })
}

/// Reads the child's reports up to its exec, which closes the socket.
fn finish(pid: Pid, socket: &OwnedFd) -> Result<Running, LaunchError> {
    let wait = "wait for the exec";
    rustix::net::sockopt::set_socket_timeout(socket, rustix::net::sockopt::Timeout::Recv, Some(EXEC_DEADLINE))
        .map_err(|e| failed(wait)(e.into()))?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|e| failed("open a pidfd")(e.into()))?;
    let mut running = Running { pid, pidfd, listener: None, wait_killable: false };
    loop {
        let mut bytes = [0; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got =
            rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
                .map_err(|e| failed(wait)(e.into()))?;
        match got.bytes {
            0 => return Ok(running),
            1 => running.wait_killable = bytes[0] == 1,
            _ => {
                let errno = i32::from_ne_bytes(bytes[1..5].try_into().expect("four bytes"));
                let step = STEPS.get(usize::from(bytes[0])).copied().unwrap_or("start");
                return Err(failed(step)(io::Error::from_raw_os_error(errno)));
            }
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                for descriptor in descriptors {
                    running.listener = Some(Listener::new(descriptor).map_err(failed("take the listener"))?);
                }
            }
        }
    }
}

/// Everything between fork and exec.
///
/// # Safety
/// Only in the child of a fork, with the pointers in `prepared` valid.
unsafe fn child(prepared: &Prepared) -> ! {
    // SAFETY: all calls are async-signal-safe, and the pointers are valid by this function's own contract.
    unsafe {
        libc::setpgid(0, 0);
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::getppid() != prepared.parent {
            give_up(prepared.report, 0);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        if libc::dup2(prepared.input, 0) < 0 || libc::dup2(prepared.output, 1) < 0 || libc::dup2(prepared.output, 2) < 0
        {
            give_up(prepared.report, 1);
        }
        if libc::chdir(prepared.folder.as_ptr()) != 0 {
            give_up(prepared.report, 2);
        }
        if let Some(filter) = &prepared.filter {
            match install(filter) {
                Ok((listener, wait_killable)) => send(prepared.report, wait_killable, listener),
                Err(()) => give_up(prepared.report, 3),
            }
        }
        libc::execve(prepared.path.as_ptr(), prepared.argv.as_ptr(), prepared.envp.as_ptr());
        give_up(prepared.report, 4)
    }
}

/// Installs a filter on this thread; async-signal-safe. The listener is closed on exec.
fn install(filter: &[libc::sock_filter]) -> Result<(RawFd, bool), ()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: plain numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(());
    }
    let killable = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    for (flags, wait_killable) in [(killable, true), (libc::SECCOMP_FILTER_FLAG_NEW_LISTENER, false)] {
        // SAFETY: the kernel copies the program, which is valid and not changed.
        let fd = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, std::ptr::from_ref(&program))
        };
        if fd >= 0 {
            return Ok((fd as RawFd, wait_killable));
        }
        // SAFETY: the location of this thread's errno.
        if unsafe { *libc::__errno_location() } != libc::EINVAL {
            return Err(());
        }
    }
    Err(())
}

/// Sends the listener to the parent.
///
/// # Safety
/// Only in the child of a fork.
unsafe fn send(socket: RawFd, wait_killable: bool, listener: RawFd) {
    let mut byte = [u8::from(wait_killable)];
    let mut piece = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = [0u64; 8];
    // SAFETY: the message and all it points to live on this stack until `sendmsg` returns, and `control` is aligned
    // for a header and has room for one with one descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(listener);
        if libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) < 0 {
            give_up(socket, 3);
        }
    }
}

/// Reports the failed step with its errno and ends the child.
///
/// # Safety
/// Only in the child of a fork.
unsafe fn give_up(socket: RawFd, step: u8) -> ! {
    // SAFETY: async-signal-safe calls with a buffer on this stack.
    unsafe {
        let errno = *libc::__errno_location();
        let mut report = [step, 0, 0, 0, 0];
        report[1..].copy_from_slice(&errno.to_ne_bytes());
        libc::send(socket, report.as_ptr().cast(), report.len(), libc::MSG_NOSIGNAL);
        libc::_exit(127)
    }
}

/// Tries to install a filter in a child that then ends. `Ok` tells whether the wait of a received call can be
/// limited to fatal signals; an error of kind `ResourceBusy` (`EBUSY`) means that something else listens already.
pub fn try_filter() -> io::Result<bool> {
    let filter = filter::program(Depth::Syncs);
    // SAFETY: the child makes only async-signal-safe calls and ends with `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = match install(&filter) {
            Ok((_, true)) => 0,
            Ok((_, false)) => 255,
            // SAFETY: the location of this thread's errno.
            Err(()) => unsafe { *libc::__errno_location() }.clamp(1, 254),
        };
        // SAFETY: ends this process without running anything of the parent's.
        unsafe { libc::_exit(code) }
    }
    let pid = Pid::from_raw(pid).filter(|pid| pid.as_raw_nonzero().get() > 0).ok_or_else(io::Error::last_os_error)?;
    let status = loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(None) => {}
            Ok(Some((_, status))) => break status,
        }
    };
    match status.exit_status() {
        Some(0) => Ok(true),
        Some(255) => Ok(false),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other("the child that tried the filter was killed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_an_error_of_exec() {
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let path = Path::new("/no/such/program");
        let program = Program {
            path,
            arguments: &["program".to_owned()],
            environment: &[],
            folder: Path::new("/"),
            input: &null,
            output: &null,
            depth: Some(Depth::Syncs),
        };
        let error = launch(&program).unwrap_err();
        assert_eq!(error.step, "execute");
        assert_eq!(error.source.raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn the_filter_can_be_tried() {
        try_filter().unwrap();
    }
}
