//! Follows a node's flushes from its durable events and its output. Pure: no clock, no file, no process.
//!
//! A flush begins at the first write or sync of the layout's first store after the last flush ended, and ends with
//! the last commit of the mode, or when the next one begins. Where nothing in it is ever synced, the write in which the height
//! shows ends it. Within it, syncs are numbered by store, and writes by
//! the sync that will end their commit. A sync that ends no write (a file grown, an empty flush) has no number
//! where writes are seen, since nothing can be told apart before and after it.

use std::collections::BTreeMap;

use crate::timeline::{
    Commit, HeightMark, HeightSource, Heights, Layout, LogMark, Mode, NodeEvent, StoreProgress, Tally,
};

use super::flush::{Counter, Flush, Step};
use super::height::Decoder;
use super::lines::{self, Told};
use super::stores::StoreIndex;
use super::tally::Collector;

/// What happens to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes are put into a file, or a file takes another's name. `synced` where it is durable on return.
    Write {
        /// The file is open with `O_SYNC` or `O_DSYNC`.
        synced: bool,
    },
    /// What was written becomes durable.
    Sync,
    /// A create, unlink or change of size: recorded, never counted.
    Change,
    /// The same of a file that is emptied by being opened.
    Empty,
}

/// Where an event lies, fixed before it passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its store.
    pub(crate) store: StoreIndex,
    /// What it is.
    pub(crate) kind: Kind,
    /// Where in a flush; `None` outside of any.
    pub(crate) inside: Option<Inside>,
}

/// A place inside a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    /// Which flush of this start, from 1.
    pub(crate) flush: u64,
    /// The sync that this is, or that will end the commit it belongs to; from 1. `None` for one without a number.
    pub(crate) sync: Option<u32>,
    /// Of a write: which one of its commit, from 1. Of a sync: how many writes its commit has.
    pub(crate) write: u32,
    /// Of a write: which one of its store in this flush, from 1, over all commits.
    pub(crate) write_of_flush: u32,
    /// Height, source and window as known now.
    pub(crate) at: Reached,
    /// The node's mode, if it is known.
    pub(crate) mode: Option<Mode>,
}

/// How far a flush takes the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Its last block.
    pub(crate) height: u64,
    /// How that is known.
    pub(crate) source: HeightSource,
    /// Its blocks.
    pub(crate) window: u64,
}

/// Follows one start of a node.
pub(crate) struct Tracker {
    start: u32,
    names: Vec<String>,
    order: Vec<(StoreIndex, Commit)>,
    mark: Option<(StoreIndex, HeightMark)>,
    log_marks: Vec<LogMark>,
    sees_writes: bool,
    mode: Option<Mode>,
    // The height on disk, and whether anything vouches for it.
    base: u64,
    // In replay: the last block that state and application have both seen, and whether the node has told these heights.
    replayed: u64,
    told: bool,
    announced: Option<(u64, u64)>,
    expected: Option<(u64, u64)>,
    flushes: u64,
    flush: Option<Flush>,
    last_steps: Vec<Step>,
    ended_now: bool,
    // Syncs of all stores since the last flush began, and that flush's window once it has ended.
    since_begin: Vec<u32>,
    window_begun: Option<u64>,
    // Stores whose writes were seen: only there a sync without a write is known to have none.
    written: Vec<bool>,
    collector: Collector,
    events: Vec<NodeEvent>,
}

impl Tracker {
    /// Follows start number `start`. `height` is the one on disk; `expected` is the range of heights that an earlier
    /// start can have left, to be checked against the handshake.
    pub(crate) fn new(
        layout: &Layout,
        start: u32,
        height: u64,
        expected: Option<(u64, u64)>,
        sees_writes: bool,
    ) -> Self {
        let names: Vec<String> = layout.stores.iter().map(|store| store.name.clone()).collect();
        let find = |name: &str| names.iter().position(|n| n == name);
        let order = layout.flush.iter().filter_map(|c| Some((find(&c.store)?, c.clone()))).collect();
        let mark = layout.height_mark.clone().and_then(|mark| Some((find(&mark.store)?, mark)));
        Self {
            start,
            order,
            mark,
            log_marks: layout.log_marks.clone(),
            sees_writes,
            mode: None,
            base: height,
            replayed: height,
            told: false,
            announced: None,
            expected,
            flushes: 0,
            flush: None,
            last_steps: Vec::new(),
            ended_now: false,
            since_begin: vec![0; names.len()],
            window_begun: None,
            written: vec![false; names.len()],
            collector: Collector::new(start, names.clone()),
            events: Vec::new(),
            names,
        }
    }

    /// The store whose bytes decide the height, if they are looked at.
    pub(crate) fn marked_store(&self) -> Option<StoreIndex> {
        self.mark.as_ref().map(|(store, _)| *store)
    }

    /// Whether a write or sync of this store may begin a flush now, so that the output matters.
    pub(crate) fn may_begin(&self, store: StoreIndex) -> bool {
        self.first_store() == Some(store) && self.begins(store)
    }

    /// The heights that the node's files can hold now: the height on disk, and that of the flush under way.
    pub(crate) fn heights_possible(&self) -> (u64, u64) {
        // A node may lower its block store to what the state has before it goes on, as after a flush that was cut.
        let least = self.base.min(self.replayed);
        match &self.flush {
            Some(flush) if flush.open && !flush.replays => (least, self.reached(flush).height.max(self.base)),
            _ => (least, self.base),
        }
    }

    /// Events to report, in order.
    pub(crate) fn take_events(&mut self) -> Vec<NodeEvent> {
        std::mem::take(&mut self.events)
    }

    /// The commits of the last complete flush, or of the one under way if there was none, in order.
    pub(crate) fn steps(&self) -> &[Step] {
        match &self.flush {
            Some(flush) if self.last_steps.is_empty() => &flush.steps,
            _ => &self.last_steps,
        }
    }

    /// Reads one line of output, without colour codes.
    pub(crate) fn line(&mut self, line: &str) {
        for told in lines::read(line, &self.log_marks) {
            match told {
                Told::Mode(mode) => self.set_mode(mode),
                Told::Trouble { class } => {
                    self.events.push(NodeEvent::Trouble { start: self.start, class, line: line.to_owned() });
                }
                Told::Handshake(heights) => self.handshake(heights, line),
                Told::FlushPoint { from, to } if to > from => {
                    self.end_flush();
                    self.announced = Some((from, to));
                }
                Told::FlushPoint { .. } => {}
            }
        }
    }

    fn handshake(&mut self, heights: Heights, line: &str) {
        self.events.push(NodeEvent::Handshake { start: self.start, heights, line: line.to_owned() });
        let Some(store) = heights.store else { return };
        if let Some((least, most)) = self.expected.take()
            && !(least..=most).contains(&store)
        {
            self.drift(format!("the handshake has block store {store}, counted were {least} to {most}"));
        }
        // What came before is a node that opens and mends its stores, such as a database that rewrites its header after a
        // kill: no block.
        self.flush = None;
        self.window_begun = None;
        self.base = store;
        self.replayed = heights.state.unwrap_or(store).min(store);
        self.told = true;
    }

    fn drift(&mut self, detail: String) {
        self.events.push(NodeEvent::CoverageHole { hole: "height_drift".to_owned(), detail });
    }

    fn set_mode(&mut self, mode: Mode) {
        if self.mode != Some(mode) {
            // What is replayed ends whole before the next mode. A rest that is open, such as the state that CometBFT saves
            // at the end of its handshake, is no block, and would take in the first one of the next mode.
            if self.mode == Some(Mode::Replay) {
                self.flush.take_if(|flush| flush.open && flush.replays);
            }
            self.push_tally();
            self.mode = Some(mode);
            self.events.push(NodeEvent::ModeChanged { start: self.start, mode });
        }
    }

    /// Places an event before it passes. `bytes` are those of a write to the marked store.
    pub(crate) fn begin(&mut self, store: StoreIndex, kind: Kind, bytes: &[u8]) -> Place {
        if !matches!(kind, Kind::Change | Kind::Empty) && self.first_store() == Some(store) && self.begins(store) {
            self.begin_flush();
        }
        if matches!(kind, Kind::Write { .. }) {
            self.written[store] = true;
        }
        let in_flush = self.flush.as_ref().is_some_and(|flush| flush.open);
        if in_flush
            && kind == Kind::Sync
            && let Some(mode) = self.only_mode(store)
        {
            self.set_mode(mode);
        }
        let counts = !self.sees_writes || !self.written[store];
        let Some(flush) = self.flush.as_mut().filter(|flush| flush.open) else {
            return Place { store, kind, inside: None };
        };
        if let Some((marked, mark)) = &self.mark
            && *marked == store
        {
            flush.decoder.look(bytes, mark.prefix.as_bytes());
        }
        let (sync, write) = flush.number_event(store, kind, counts);
        let write_of_flush = flush.counters[store].writes_of_flush;
        let number = flush.number;
        let at = self.flush.as_ref().map(|flush| self.reached(flush)).expect("a flush is open");
        let inside = Inside { flush: number, sync, write, write_of_flush, at, mode: self.mode };
        Place { store, kind, inside: Some(inside) }
    }

    /// Counts an event that has returned. `took_us` is how long a sync took, as the node sees it, if it was timed.
    pub(crate) fn end(&mut self, place: &Place, took_us: Option<u64>) {
        let store = place.store;
        let syncs = matches!(place.kind, Kind::Sync | Kind::Write { synced: true });
        if syncs {
            self.since_begin[store] += 1;
        }
        if place.kind == Kind::Sync {
            self.collector.sync(store, took_us);
        }
        let Some(flush) = self.flush.as_mut().filter(|f| f.open) else { return };
        let Some(inside) = place.inside.filter(|inside| inside.flush == flush.number) else { return };
        let counter = &mut flush.counters[store];
        counter.all_syncs += u32::from(syncs);
        match place.kind {
            Kind::Change => {}
            Kind::Empty => counter.done.emptied = true,
            Kind::Write { synced: false } => counter.done.writes += 1,
            Kind::Sync | Kind::Write { synced: true } if inside.sync.is_some() => {
                counter.done.syncs += 1;
                counter.done.writes = 0;
            }
            Kind::Sync | Kind::Write { .. } => {}
        }
        if self.ended() {
            self.end_flush();
        }
    }

    /// What each store has done in the flush under way.
    pub(crate) fn progress(&self) -> BTreeMap<String, StoreProgress> {
        let Some(flush) = &self.flush else { return BTreeMap::new() };
        let mut stores: Vec<StoreIndex> = self.order.iter().map(|(store, _)| *store).collect();
        stores.extend(flush.steps.iter().map(|step| step.store));
        stores.into_iter().map(|store| (self.names[store].clone(), flush.counters[store].done)).collect()
    }

    /// Name of a store.
    pub(crate) fn name(&self, store: StoreIndex) -> &str {
        &self.names[store]
    }

    /// What was counted since the last call.
    pub(crate) fn tally(&mut self) -> Option<Tally> {
        self.collector.take(self.mode)
    }

    /// The commits of a flush that has ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Option<Vec<Step>> {
        std::mem::take(&mut self.ended_now).then(|| self.last_steps.clone())
    }

    /// All counts of a tracker that was never asked before, over all modes.
    pub(crate) fn finish_whole(&mut self) -> Tally {
        let mut whole = Tally::default();
        let parts: Vec<Tally> = self
            .take_events()
            .into_iter()
            .filter_map(|event| if let NodeEvent::Tally(tally) = event { Some(tally) } else { None })
            .chain(self.collector.take(self.mode))
            .collect();
        for tally in parts {
            whole.flushes += tally.flushes;
            whole.blocks += tally.blocks;
            whole.height = tally.height;
            whole.mode = tally.mode;
            for (into, from) in [(&mut whole.per_block, tally.per_block), (&mut whole.per_flush, tally.per_flush)] {
                for (store, counts) in from {
                    for (count, times) in counts {
                        *into.entry(store.clone()).or_default().entry(count).or_default() += times;
                    }
                }
            }
        }
        whole
    }

    /// The last counts, when the node is gone. An open flush is not one of them, and what the last block costs is not
    /// known: its syncs are mixed with those of the end.
    pub(crate) fn finish(&mut self) -> Option<Tally> {
        self.tally()
    }

    fn push_tally(&mut self) {
        if let Some(tally) = self.tally() {
            self.events.push(NodeEvent::Tally(tally));
        }
    }

    /// Commits made in the present mode.
    fn commits(&self) -> impl DoubleEndedIterator<Item = &(StoreIndex, Commit)> {
        self.order
            .iter()
            .filter(|(_, commit)| commit.modes.is_empty() || self.mode.is_none_or(|mode| commit.modes.contains(&mode)))
    }

    fn first_store(&self) -> Option<StoreIndex> {
        self.commits().next().map(|(store, _)| *store)
    }

    /// The mode, where a store is flushed in one only.
    fn only_mode(&self, store: StoreIndex) -> Option<Mode> {
        let mut modes = self.order.iter().filter(|(s, _)| *s == store).map(|(_, commit)| commit.modes.as_slice());
        let [mode] = modes.next()? else { return None };
        modes.all(|other| other == [*mode]).then_some(*mode)
    }

    /// Whether an event of the first store begins a flush: no flush is under way, or its part in that one is done
    /// and another store has moved since.
    fn begins(&self, store: StoreIndex) -> bool {
        let Some(flush) = self.flush.as_ref().filter(|flush| flush.open) else { return true };
        let own = self.commits().filter(|(s, _)| *s == store).filter_map(|(_, commit)| commit.sync).max();
        let done = own.is_none_or(|last| flush.counters[store].done.syncs >= last);
        done && flush.steps.iter().any(|step| step.store != store)
    }

    /// Whether the last commit of the present mode is done.
    fn ended(&self) -> bool {
        let (Some(flush), Some((store, commit))) = (&self.flush, self.commits().next_back()) else { return false };
        let shows = || self.mark.is_some() && flush.decoder.decoded().is_some();
        match commit.sync {
            Some(last) => flush.counters[*store].done.syncs >= last,
            None => shows() && self.commits().all(|(_, commit)| commit.sync.is_none()),
        }
    }

    fn begin_flush(&mut self) {
        self.end_flush();
        self.count_blocks();
        self.since_begin.fill(0);
        self.flushes += 1;
        let announced = self.announced.take();
        if let Some((from, _)) = announced {
            (self.base, self.replayed) = (from, from);
        }
        self.flush = Some(Flush {
            number: self.flushes,
            open: true,
            counters: vec![Counter::default(); self.names.len()],
            decoder: Decoder::new(announced.map_or(self.base, |(from, _)| from)),
            announced,
            replays: self.mode == Some(Mode::Replay),
            reached: None,
            steps: Vec::new(),
        });
    }

    fn end_flush(&mut self) {
        let Some(mut flush) = self.flush.take_if(|flush| flush.open) else { return };
        flush.open = false;
        let reached = self.reached(&flush);
        // A burst of the first store in which no height is written although heights would be seen is no block:
        // a compaction, a pruning.
        flush.reached = Some(reached);
        let marked = self.sees_writes && self.mark.is_some() && !flush.replays;
        // Nor is what a node with nothing to replay saves, such as the state of a genesis.
        let nothing_left = flush.replays && self.told && self.replayed >= self.base;
        if !nothing_left && (!marked || reached.source != HeightSource::Counted) {
            if self.base > 0
                && flush.announced.is_none()
                && flush.decoder.decoded().is_some_and(|decoded| !decoded.continues)
            {
                self.drift(format!("height {} was written on top of {}", reached.height, self.base));
            }
            let syncs: Vec<u32> = flush.counters.iter().map(|counter| counter.all_syncs).collect();
            self.collector.flush(reached.height, reached.window, &syncs);
            self.window_begun = Some(reached.window);
            if flush.replays {
                self.replayed = reached.height;
            } else {
                self.base = reached.height;
                self.replayed = reached.height;
            }
            self.last_steps = std::mem::take(&mut flush.steps);
            self.ended_now = true;
        }
        self.flush = Some(flush);
    }

    /// Counts the syncs since the last flush began, now that the next begins.
    fn count_blocks(&mut self) {
        if let Some(window) = self.window_begun.take() {
            self.collector.blocks(window, &self.since_begin);
        }
    }

    /// How far the last flush that has begun takes the chain, as known now.
    pub(crate) fn reached_now(&self) -> Option<Reached> {
        self.flush.as_ref().map(|flush| self.reached(flush))
    }

    fn reached(&self, flush: &Flush) -> Reached {
        if let Some(reached) = flush.reached {
            return reached;
        }
        if flush.replays {
            return Reached { height: self.replayed + 1, source: HeightSource::Counted, window: 1 };
        }
        if let Some((from, to)) = flush.announced {
            return Reached { height: to, source: HeightSource::Logged, window: to - from };
        }
        match flush.decoder.decoded() {
            Some(decoded) => Reached { height: decoded.height, source: HeightSource::Decoded, window: decoded.window },
            None => Reached { height: self.base + 1, source: HeightSource::Counted, window: 1 },
        }
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
