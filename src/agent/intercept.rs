//! What is done with each held call: found out which store it touches, placed in the flush, held, made or let go.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::process::Pid;

use crate::agent_client::protocol::ArmAction;
use crate::sys::call::{Call, PathAt, Source};
use crate::sys::listener::{Answer, Held, Listener};
use crate::sys::memory;
use crate::timeline::{Phase, Tier};

use super::descriptors::{Descriptors, Target};
use super::gate::Gate;
use super::pool::{Answers, Turn};
use super::procfs;
use super::stores::{StoreIndex, Stores};
use super::tap::{Tapped, TappedKind};
use super::tracker::{Kind, Place};

/// Bytes of one write that are searched for a height.
const LOOK_MAX: usize = 4 << 20;
/// Open flags that make writes durable on return: `O_DSYNC`, and the bit that makes it `O_SYNC`.
const SYNCED: i32 = 0o4_010_000;
/// Open flags that create or empty a file.
const CHANGING: i32 = 0o100 | EMPTYING;
/// The one of these that empties a file (`O_TRUNC`).
const EMPTYING: i32 = 0o1000;
const ENOSYS: i32 = 38;

/// One start's interception.
pub(crate) struct Interceptor {
    pub(crate) listener: Listener,
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) start: u32,
    pub(crate) tier: Tier,
    /// The node's home without symbolic links; the paths of stores are relative to it.
    pub(crate) home: PathBuf,
    pub(crate) stores: Stores,
    pub(crate) marked: Option<StoreIndex>,
    pub(crate) gate: std::sync::Arc<Mutex<Gate>>,
    pub(crate) changed: std::sync::Arc<Condvar>,
    /// Threads whose call was received and not yet answered.
    pub(crate) outstanding: Mutex<BTreeSet<i32>>,
    pub(crate) descriptors: Descriptors,
    /// Gets every durable event of every file, for an observer.
    pub(crate) tap: Option<SyncSender<Tapped>>,
}

impl Answers for Interceptor {
    fn listener(&self) -> &Listener {
        &self.listener
    }

    fn answer(&self, held: &Held, turn: &mut Turn<'_>) {
        let received = Instant::now();
        self.outstanding().insert(held.tid);
        self.dispatch(held, received, turn);
    }
}

impl Interceptor {
    fn outstanding(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.outstanding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_outstanding(&self, tid: i32) -> bool {
        self.outstanding().contains(&tid)
    }

    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reply(&self, held: &Held, answer: Answer) {
        // Before the answer: from then on the thread moves, and a cut has to wait until it stands still.
        self.outstanding().remove(&held.tid);
        // One that is not waiting any more was killed or, on old kernels, interrupted; it comes again as a new one.
        if let Err(error) = self.listener.answer(held.id, answer) {
            tracing::warn!(%error, "a held call could not be answered");
        }
    }

    fn dispatch(&self, held: &Held, received: Instant, turn: &mut Turn<'_>) {
        let tid = held.tid;
        match Call::of(held) {
            Call::Sync { fd, data_only } => match self.target_fd(tid, fd) {
                Some(target) => self.sync(held, &target, data_only, received, turn, || procfs::open(tid, fd)),
                None => self.reply(held, Answer::Continue),
            },
            Call::SyncMap { address } => match procfs::mapped(tid, address).and_then(|path| self.target(path)) {
                Some(target) => self.sync(held, &target, true, received, turn, || File::open(&target.path)),
                None => self.reply(held, Answer::Continue),
            },
            Call::Write { fd, source, synced } => match self.target_fd(tid, fd) {
                Some(target) => {
                    let synced = synced || (self.lock().may_be_synced(&target.path) && procfs::is_synced(tid, fd));
                    let bytes = self.bytes(tid, source, target.store);
                    self.pass(held, Some(target), Kind::Write { synced }, &bytes, turn);
                }
                None => self.reply(held, Answer::Continue),
            },
            Call::Resize { fd } => self.pass(held, self.target_fd(tid, fd), Kind::Change, b"", turn),
            Call::ResizePath(at) | Call::Unlink(at) | Call::Link(at) => {
                self.pass(held, self.target_named(tid, at), Kind::Change, b"", turn);
            }
            Call::Rename { from, to } => self.rename(held, from, to, turn),
            Call::Open { path, flags } => self.open(held, path, flags, turn),
            Call::SyncRange { fd } => {
                self.tap(held, self.target_fd(tid, fd).as_ref(), TappedKind::SyncRange, b"", None);
                self.reply(held, Answer::Continue);
            }
            Call::Map { fd } => self.map(held, fd),
            Call::Ring => {
                self.hole("io_uring", "the node asked for an io_uring and was told that there is none");
                self.reply(held, Answer::Errno(ENOSYS));
            }
            Call::Aio => self.let_go(held, "aio", "the node uses kernel AIO: these writes and syncs are not seen"),
            Call::SyncAll => {
                self.let_go(held, "sync_all", "the node calls sync or syncfs: these count for no store");
            }
            Call::Foreign => {
                self.let_go(held, "foreign_abi", "the node makes i386 or x32 calls, which are not looked into");
            }
            Call::Other => self.reply(held, Answer::Continue),
        }
    }

    fn hole(&self, hole: &str, detail: &str) {
        self.lock().hole(hole, detail.to_owned());
    }

    fn let_go(&self, held: &Held, hole: &str, detail: &str) {
        self.hole(hole, detail);
        self.reply(held, Answer::Continue);
    }

    /// The store of a path; `None` where nobody wants to know about it.
    fn target(&self, path: PathBuf) -> Option<Target> {
        let relative = path.strip_prefix(&self.home).ok().and_then(Path::to_str);
        let store = relative.and_then(|relative| self.stores.find(relative));
        (store.is_some() || self.tap.is_some()).then(|| Target { store, path: path.into() })
    }

    fn target_fd(&self, tid: i32, fd: i32) -> Option<Target> {
        match self.descriptors.target(tid, fd, |path| self.target(path)) {
            Ok(target) => target,
            // Gone meanwhile, or not open: the kernel will tell the node.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => None,
            Err(_) => {
                self.hole(
                    "foreign_user",
                    "the node runs as another user, or forbids to be looked at: its files are not seen",
                );
                None
            }
        }
    }

    fn target_named(&self, tid: i32, at: PathAt) -> Option<Target> {
        procfs::named(tid, at).ok().and_then(|path| self.target(path))
    }

    /// The bytes of a write, where they may hold a height.
    fn bytes(&self, tid: i32, source: Source, store: Option<StoreIndex>) -> Vec<u8> {
        if self.tap.is_none() && (store.is_none() || store != self.marked) {
            return Vec::new();
        }
        let read = match source {
            Source::Buffer { address, length } => memory::read(tid, address, length.min(LOOK_MAX)),
            Source::Vector { address, count } => memory::read_vector(tid, address, count, LOOK_MAX),
            Source::File => Ok(Vec::new()),
        };
        read.unwrap_or_else(|error| {
            self.hole("unreadable_memory", &format!("the node's memory cannot be read, heights are counted: {error}"));
            Vec::new()
        })
    }

    /// Waits at the gate while everything is held. `None` when the node is gone.
    fn enter(&self, turn: &mut Turn<'_>) -> Option<MutexGuard<'_, Gate>> {
        let mut gate = self.lock();
        while gate.cutting && !gate.dead {
            turn.step_aside();
            gate = self.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        (!gate.dead).then_some(gate)
    }

    /// An event that the kernel makes: it is seen, maybe held, and let go.
    fn pass(&self, held: &Held, target: Option<Target>, kind: Kind, bytes: &[u8], turn: &mut Turn<'_>) {
        self.tap(held, target.as_ref(), TappedKind::of(kind), bytes, None);
        let Some(store) = target.and_then(|target| target.store) else {
            return self.reply(held, Answer::Continue);
        };
        let Some(mut gate) = self.enter(turn) else { return };
        gate.hear_before(store);
        if !self.listener.is_waiting(held.id).unwrap_or(false) {
            return;
        }
        let place = gate.tracker.begin(store, kind, bytes);
        gate.publish();
        if let Some(gate) = self.before(gate, held, &place, turn) {
            self.finish(gate, held, &place, Answer::Continue, turn);
        }
    }

    /// Delivers the fault that waits for the event at `place`, if one does. `None` when the event never happens.
    fn before<'a>(
        &'a self,
        gate: MutexGuard<'a, Gate>,
        held: &Held,
        place: &Place,
        turn: &mut Turn<'_>,
    ) -> Option<MutexGuard<'a, Gate>> {
        let Some(arm) = gate.met(place, Phase::Before) else { return Some(gate) };
        match arm.action {
            ArmAction::Fail(errno) => {
                self.fail(gate, &arm, place, held, errno);
                None
            }
            ArmAction::Kill | ArmAction::Stop => self.cut(gate, &arm, place, None, turn),
        }
    }

    /// Counts an event that ends with its answer, and answers it.
    fn finish(&self, mut gate: MutexGuard<'_, Gate>, held: &Held, place: &Place, answer: Answer, turn: &mut Turn<'_>) {
        gate.tracker.end(place, None);
        gate.publish();
        if let Some(arm) = gate.met(place, Phase::After) {
            self.cut(gate, &arm, place, Some((held, answer)), turn);
            return;
        }
        // Still behind the lock: whoever cuts next finds this call either not begun or let go, and waits for its end.
        self.reply(held, answer);
    }

    /// A sync. The agent makes it where its end or its duration must be known.
    fn sync(
        &self,
        held: &Held,
        target: &Target,
        data_only: bool,
        received: Instant,
        turn: &mut Turn<'_>,
        open: impl Fn() -> io::Result<File>,
    ) {
        let Some(store) = target.store else {
            turn.step_aside();
            let answer = make_sync(open, data_only);
            self.tap(held, Some(target), TappedKind::Sync, b"", Some(micros(received)));
            return self.reply(held, answer);
        };
        let Some(mut gate) = self.enter(turn) else { return };
        gate.hear_before(store);
        if !self.listener.is_waiting(held.id).unwrap_or(false) {
            return;
        }
        let place = gate.tracker.begin(store, Kind::Sync, b"");
        gate.publish();
        let Some(mut gate) = self.before(gate, held, &place, turn) else { return };
        gate.sync_times.count(store);
        if !gate.draws.makes(store) {
            return self.finish(gate, held, &place, Answer::Value(0), turn);
        }
        if self.tap.is_none() && !gate.makes_sync(store, received) {
            return self.finish(gate, held, &place, Answer::Continue, turn);
        }
        let delay = gate.draws.next(store);
        gate.in_flight += 1;
        drop(gate);
        turn.step_aside();
        let answer = make_sync(open, data_only);
        if let Some(rest) = delay.and_then(|delay| delay.checked_sub(received.elapsed())) {
            std::thread::sleep(rest);
        }
        let took_us = micros(received);
        self.tap(held, Some(target), TappedKind::Sync, b"", Some(took_us));
        let mut gate = self.lock();
        gate.in_flight -= 1;
        gate.tracker.end(&place, Some(took_us));
        gate.sync_times.record(store, took_us);
        gate.publish();
        if gate.cutting {
            self.changed.notify_all();
        }
        if let Some(arm) = gate.met(&place, Phase::After) {
            match self.cut(gate, &arm, &place, None, turn) {
                Some(released) => drop(released),
                None => return,
            }
        } else {
            drop(gate);
        }
        self.reply(held, answer);
    }

    /// A rename puts a whole file in place of another: a write, where writes are seen.
    fn rename(&self, held: &Held, from: PathAt, to: PathAt, turn: &mut Turn<'_>) {
        let (from, to) = (procfs::named(held.tid, from), procfs::named(held.tid, to));
        if let (Ok(from), Ok(to)) = (&from, &to) {
            let mut gate = self.lock();
            if gate.may_be_synced(from) {
                gate.note_synced(to.clone());
            }
        }
        let of = |path: io::Result<PathBuf>| path.ok().and_then(|path| self.target(path));
        let target = match (of(to), of(from)) {
            (Some(to), Some(from)) if to.store.is_none() && from.store.is_some() => Some(from),
            (Some(to), _) => Some(to),
            (None, from) => from,
        };
        let kind = if self.tier == Tier::Record { Kind::Write { synced: false } } else { Kind::Change };
        self.pass(held, target, kind, b"", turn);
    }

    fn open(&self, held: &Held, path: PathAt, flags: Result<i32, u64>, turn: &mut Turn<'_>) {
        let flags = flags.or_else(|address| {
            let how = memory::read(held.tid, address, 4)?;
            how.try_into().map(i32::from_ne_bytes).map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))
        });
        let flags = flags.unwrap_or(0);
        if flags & (SYNCED | CHANGING) == 0 {
            return self.reply(held, Answer::Continue);
        }
        let target = self.target_named(held.tid, path);
        if let Some(target) = &target
            && flags & SYNCED != 0
        {
            self.lock().note_synced(target.path.to_path_buf());
        }
        if flags & CHANGING == 0 {
            return self.reply(held, Answer::Continue);
        }
        let holds = |target: &Target| target.path.metadata().is_ok_and(|file| file.is_file() && file.len() > 0);
        let empties = flags & EMPTYING != 0 && target.as_ref().is_some_and(holds);
        self.pass(held, target, if empties { Kind::Empty } else { Kind::Change }, b"", turn);
    }

    fn map(&self, held: &Held, fd: i32) {
        if let Some(target) = self.target_fd(held.tid, fd)
            && let Some(store) = target.store
        {
            let mut gate = self.lock();
            let name = gate.tracker.name(store).to_owned();
            let file = target.path.display();
            gate.hole("shared_map", format!("{name} maps {file} writable and shared: its writes are not seen"));
        }
        self.reply(held, Answer::Continue);
    }

    /// Lets an observer have the event, with what the node said before it. Must not be called behind the gate's lock.
    fn tap(&self, held: &Held, target: Option<&Target>, kind: TappedKind, bytes: &[u8], took_us: Option<u64>) {
        let (Some(tap), Some(target)) = (&self.tap, target) else { return };
        let tapped = Tapped {
            at_us: super::journal::clock_us(),
            tid: held.tid,
            path: target.path.to_path_buf(),
            kind,
            length: bytes.len(),
            heights: super::tap::heights(bytes),
            took_us,
            said: self.lock().take_said(),
        };
        // An observer that cannot follow loses events and not the node its pace; the count of lost ones is its own.
        if tap.try_send(tapped).is_err() {
            self.hole("tap_overflow", "the observer could not follow: some events are missing in its figures");
        }
    }
}

/// Makes the sync on a descriptor of our own. Where none can be had the kernel makes it on the node's.
fn make_sync(open: impl Fn() -> io::Result<File>, data_only: bool) -> Answer {
    let Ok(file) = open() else { return Answer::Continue };
    let done = if data_only { file.sync_data() } else { file.sync_all() };
    match done {
        Ok(()) => Answer::Value(0),
        Err(error) => error.raw_os_error().map_or(Answer::Continue, Answer::Errno),
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
