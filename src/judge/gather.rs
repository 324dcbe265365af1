//! Timeline to [`Model`], one record at a time, so that a run can be judged while it goes on and a long timeline
//! never has to be in memory whole.

use super::model::{Ended, Fault, FaultLanded, Handshake, Identity, Life, Model, Node, Published, Sample, Trouble, Us};
use super::signature;
use crate::timeline::{Event, FaultId, Hashes, NodeEvent, Record, Setup, Status};

/// Collects records into a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gather {
    pub(crate) model: Model,
}

impl Gather {
    /// Takes one record in. The order of records of different nodes does not matter.
    pub(crate) fn push(&mut self, record: &Record) {
        let (at, seq) = (record.at_us, record.seq);
        let model = &mut self.model;
        model.end.last_us = model.end.last_us.max(at);
        match &record.event {
            Event::RunStarted(start) => {
                model.identity = Identity {
                    run: start.run.clone(),
                    topology: start.topology.clone(),
                    seed: start.seed,
                    engine: start.engine.clone(),
                };
            }
            Event::Setup(setup) => self.setup(setup),
            Event::FaultTriggered { fault, .. } => {
                self.fault(fault, |f| f.triggered = f.triggered.or(Some((at, seq))));
            }
            Event::FaultApplied { fault, evidence } => {
                self.fault(fault, |f| f.applied = Some((at, evidence.clone(), seq)));
            }
            Event::FaultReverted { fault, evidence } => {
                self.fault(fault, |f| f.reverted = Some((at, evidence.clone(), seq)));
            }
            Event::FaultMissed { fault, why } => {
                self.fault(fault, |f| f.missed = Some((why.clone(), seq)));
            }
            Event::Load { accepted, .. } => {
                model.load.accepted = model.load.accepted.max(*accepted);
                model.load.seq = Some(seq);
            }
            Event::Settled { converged, why } => {
                model.end.settled = Some((*converged, why.clone(), seq));
                model.end.settled_us = Some(at);
            }
            Event::ToolError { what } => model.end.tool_errors.push((what.clone(), seq)),
            Event::Interrupted => {
                model.end.interrupted = true;
                model.end.ended = true;
            }
            Event::TimeLimit => {
                model.end.time_limit = true;
                model.end.ended = true;
            }
            Event::RunEnded => model.end.ended = true,
            Event::Notice { .. } => {}
            Event::Bound { .. }
            | Event::Node(_)
            | Event::Status(_)
            | Event::RpcSilent { .. }
            | Event::Stored { .. }
            | Event::Signed { .. }
            | Event::Published { .. }
            | Event::AppHeight { .. }
            | Event::SignsAs { .. }
            | Event::Commit(_)
            | Event::Evidence(_)
            | Event::Hashes(_) => {
                if let Some(name) = &record.node {
                    let node = self.model.node_index(name);
                    self.about_node(node, &record.event, at, seq);
                }
            }
        }
    }

    fn setup(&mut self, setup: &Setup) {
        let model = &mut self.model;
        model.app_hash_offset = setup.app_hash_offset;
        model.initial_height = setup.initial_height;
        model.expect = setup.expect.clone();
        model.load.known = true;
        model.load.wanted = setup.load;
        for planned in &setup.nodes {
            let index = model.node_index(&planned.name);
            let node = &mut model.nodes[index];
            node.role = Some(planned.role);
            node.power = Some(planned.power);
            node.storage.clone_from(&planned.storage);
            node.group.clone_from(&planned.group);
            node.layout = planned.layout.clone();
        }
        model.faults = setup.faults.iter().cloned().map(Fault::new).collect();
    }

    fn fault(&mut self, id: &FaultId, change: impl FnOnce(&mut Fault)) {
        if let Some(fault) = self.model.faults.iter_mut().find(|f| &f.setup.id == id) {
            change(fault);
        }
    }

    fn about_node(&mut self, index: usize, event: &Event, at: Us, seq: u64) {
        match event {
            Event::Status(status) => status_seen(&mut self.model.nodes[index], status, at, seq),
            Event::RpcSilent { reason } => self.model.nodes[index].silences.push((at, reason.clone(), seq)),
            Event::Stored { after_start, heights } => {
                self.model.nodes[index].lives.entry(*after_start).or_default().stored = Some((*heights, seq));
            }
            Event::Signed { after_start, last } => {
                self.model.nodes[index].lives.entry(*after_start).or_default().signed = Some((last.clone(), seq));
            }
            Event::Published { start, stream, first, last } => {
                let row = Published { stream: *stream, first: *first, last: *last, at_us: at, seq };
                let rows = &mut self.model.nodes[index].lives.entry(*start).or_default().published;
                if !rows.iter().any(|known| Published { seq, ..*known } == row) {
                    rows.push(row);
                }
            }
            Event::AppHeight { height } => {
                let told = &mut self.model.nodes[index].app_told;
                if told.last().is_none_or(|(t, known, _)| (t, known) != (&at, height)) {
                    told.push((at, *height, seq));
                }
            }
            Event::Hashes(hashes) => self.hashes(index, hashes, seq),
            Event::SignsAs { address } => {
                self.model.nodes[index].signs_as.insert(address.clone());
            }
            Event::Commit(commit) => self.model.commit_seen(index, commit, seq),
            Event::Evidence(double) => self.model.evidence_seen(double, seq),
            Event::Node(event) => self.agent_event(index, event, at, seq),
            _ => {}
        }
    }

    fn hashes(&mut self, node: usize, hashes: &Hashes, seq: u64) {
        let ids = hashes.blocks.iter().map(|(id, _)| id.as_str());
        self.model.blocks.insert_run(node, hashes.first, ids, seq);
        // A header at the initial height carries the app hash of genesis, which is the state "after" the height before.
        let skip = self.model.app_hash_offset.saturating_sub(hashes.first);
        let first = (hashes.first + skip).saturating_sub(self.model.app_hash_offset);
        let states = hashes.blocks.iter().skip(skip as usize).map(|(_, app)| app.as_str());
        self.model.states.insert_run(node, first, states, seq);
    }

    fn agent_event(&mut self, index: usize, event: &NodeEvent, at: Us, seq: u64) {
        if let NodeEvent::Landed { fault, start, landed, .. } = event {
            let seen = FaultLanded { at_us: at, start: *start, landed: landed.clone(), seq };
            self.fault(fault, |f| f.landed = Some(seen));
            return;
        }
        if let NodeEvent::NotLanded { fault, seen, nearest } = event {
            let why = not_landed_words(seen, nearest.as_deref());
            self.fault(fault, |f| {
                if f.missed.is_none() {
                    f.missed = Some((why, seq));
                }
            });
            return;
        }
        let node = &mut self.model.nodes[index];
        let lives = &mut node.lives;
        fn life(lives: &mut std::collections::BTreeMap<u32, Life>, start: u32) -> &mut Life {
            lives.entry(start).or_default()
        }
        match event {
            NodeEvent::Started { start, .. } => {
                life(lives, *start).started = Some((at, seq));
                // Its first answer is looked for, even if it says the same as the last one before.
                node.samples_since_start = node.samples.len();
            }
            NodeEvent::Exited { start, exit, cause, tail } => {
                life(lives, *start).exit = Some(Ended {
                    at_us: at,
                    exit: Some(*exit),
                    cause: cause.clone(),
                    tail: tail.clone(),
                    out_of_memory: false,
                    seq,
                });
            }
            NodeEvent::ModeChanged { start, mode } => life(lives, *start).modes.push((at, *mode)),
            NodeEvent::Handshake { start, heights, line } => {
                life(lives, *start).handshake = Some(Handshake::read(*heights, line, seq));
            }
            NodeEvent::Trouble { start, class, line } => {
                let class = signature::classify(line).map_or_else(|| class.clone(), str::to_owned);
                let troubles = &mut life(lives, *start).troubles;
                if !troubles.iter().any(|t| t.at_us == at && &t.line == line) {
                    troubles.push(Trouble { at_us: at, class, line: line.clone(), seq });
                }
            }
            NodeEvent::Tally(tally) => {
                let mut same_time = node.tallies.iter().rev().take_while(|(t, _, _)| *t == at);
                let known = same_time.any(|(_, seen, _)| seen == tally);
                node.tallies.extend((!known).then(|| (at, tally.clone(), seq)));
            }
            NodeEvent::CoverageHole { hole, detail } => {
                let known = node.holes.iter().any(|(h, d, _)| h == hole && d == detail);
                node.holes.extend((!known).then(|| (hole.clone(), detail.clone(), seq)));
            }
            _ => {}
        }
    }
}

/// Keeps the first and the last of a row of equal samples of one start, so that a long quiet run stays small.
fn status_seen(node: &mut Node, status: &Status, at: Us, seq: u64) {
    let sample = Sample { at_us: at, height: status.height, catching_up: Some(status.catching_up), seq };
    if node.app_hash.as_ref().is_none_or(|(seen, _)| *seen <= at) {
        node.app_hash = Some((at, status.app_hash.clone()));
    }
    let same = |a: &Sample, b: &Sample| (a.height, a.catching_up) == (b.height, b.catching_up);
    match &mut node.samples[node.samples_since_start..] {
        [.., before, last] if same(before, last) && same(last, &sample) => *last = sample,
        _ => node.samples.push(sample),
    }
}

fn not_landed_words(seen: &[String], nearest: Option<&str>) -> String {
    let mut words = if seen.is_empty() {
        "no flush was seen while it was armed".to_owned()
    } else {
        format!("the last flush had: {}", seen.join("; "))
    };
    if let Some(nearest) = nearest {
        words.push_str(&format!("; the nearest address is: {nearest}"));
    }
    words
}
