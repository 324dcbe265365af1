//! What the page and the JSON interface show of one run. Texts are made here, so that the page only lays them out.

use serde::Serialize;

use crate::judge::{FaultRow, Judgement, Note, Outcome, Verdict};
use crate::report::RunReport;
use crate::report::state::{Doing, FaultStage, FaultState, Load, NodeState, RunPhase};
use crate::report::syncs::SyncRow;
use crate::report::words;
use crate::results::{RunState, RunSummary};
use crate::timeline::{Mode, Role};

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunView {
    /// Version of this object.
    version: u32,
    run: String,
    topology: String,
    seed: u64,
    engine: String,
    family: String,
    started: String,
    again: String,
    /// `midflush 0.1.0, kernel 6.18, 2 CPUs`.
    machine: String,
    /// Build name and digest.
    builds: Vec<(String, String)>,
    /// Whether more will come.
    live: bool,
    /// How far the run is, in words.
    phase: String,
    /// Time of the last record.
    at_ms: u64,
    /// Sequence number from which a stream goes on.
    next_seq: u64,
    load: Option<Load>,
    tool_errors: Vec<String>,
    nodes: Vec<NodeView>,
    faults: Vec<FaultView>,
    /// By group of nodes.
    syncs: Vec<SyncView>,
    /// By node; once nothing more will come, since they are many.
    node_syncs: Vec<SyncView>,
    /// Once nothing more will come.
    verdict: Option<VerdictView>,
}

#[derive(Clone, Debug, Serialize)]
struct VerdictView {
    name: String,
    /// `good`, `bad` or `unsure`.
    class: &'static str,
    /// One sentence.
    why: String,
    findings: Vec<FindingView>,
    notes: Vec<Note>,
    heights_compared: u64,
    distinct_app_hashes: u64,
}

#[derive(Clone, Debug, Serialize)]
struct FindingView {
    verdict: String,
    class: &'static str,
    node: Option<String>,
    height: Option<u64>,
    detail: String,
    why: String,
    next: String,
    also: Vec<String>,
    /// Records of the timeline that show it.
    evidence: Vec<u64>,
}

#[derive(Clone, Debug, Serialize)]
struct NodeView {
    name: String,
    role: &'static str,
    storage: Option<String>,
    place: String,
    doing: String,
    /// `waiting`, `busy`, `well`, `held` or `down`.
    class: &'static str,
    start: u32,
    tier: Option<&'static str>,
    height: Option<u64>,
    behind: Option<u64>,
    peers: Option<u32>,
    app_hash: String,
    /// app / state / store, when last known.
    heights: Option<String>,
    verdict: Option<String>,
    rpc_silent: Option<String>,
    troubles: Vec<(String, String)>,
    holes: Vec<(String, String)>,
}

#[derive(Clone, Debug, Serialize)]
struct FaultView {
    name: String,
    occurrence: u32,
    kind: &'static str,
    node: String,
    asked: String,
    landed: Option<String>,
    stage: &'static str,
    /// Where the chart marks it.
    at_ms: Option<u64>,
    height: Option<u64>,
    /// app / state / store that it left behind.
    after: Option<String>,
    predicted: Option<String>,
    exit: Option<String>,
    down: Option<String>,
    replayed: Option<u64>,
    caught_up: Option<String>,
    proven: Option<bool>,
    note: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct SyncView {
    node: String,
    storage: Option<String>,
    mode: &'static str,
    tier: &'static str,
    store: String,
    blocks: u64,
    per_block: u64,
    per_flush: u64,
    p50: Option<String>,
    p99: Option<String>,
    max: Option<String>,
}

/// The colour of a verdict.
pub(super) fn class(verdict: Verdict) -> &'static str {
    match verdict.outcome() {
        Outcome::Converged => "good",
        Outcome::Finding => "bad",
        Outcome::Inconclusive | Outcome::Interrupted => "unsure",
    }
}

/// The view of a run after the records that `report` has taken in.
pub(super) fn run(summary: &RunSummary, report: &RunReport) -> RunView {
    let state = &report.state;
    let live = !summary.state.is_final();
    let judgement = (!live).then(|| report.judgement(&summary.folder.display().to_string()));
    let best = state.best_height();
    let started = state.started.as_ref();
    let text = |of: fn(&crate::timeline::RunStarted) -> &String| started.map(of).cloned().unwrap_or_default();
    RunView {
        version: 1,
        run: summary.run.clone(),
        topology: summary.topology.clone(),
        seed: summary.seed,
        engine: summary.engine.clone(),
        family: state.family.clone(),
        started: summary.started.clone(),
        again: text(|s| &s.again),
        machine: started
            .map_or_else(String::new, |s| format!("midflush {}, kernel {}, {} CPUs", s.midflush, s.kernel, s.cpus)),
        builds: started.map(|s| s.builds.clone().into_iter().collect()).unwrap_or_default(),
        live,
        phase: phase(summary, &state.phase),
        at_ms: state.at_us / 1000,
        next_seq: state.next_seq,
        load: state.load,
        tool_errors: state.tool_errors.clone(),
        nodes: state.nodes.iter().map(|(name, n)| node(state.at_us, best, name, n, judgement.as_ref())).collect(),
        faults: state.faults.iter().map(|f| fault(f, judgement.as_ref())).collect(),
        syncs: report.syncs.group_rows().into_iter().map(sync).collect(),
        node_syncs: if live { Vec::new() } else { report.syncs.rows().into_iter().map(sync).collect() },
        verdict: judgement.as_ref().map(verdict),
    }
}

fn phase(summary: &RunSummary, phase: &RunPhase) -> String {
    match (summary.state, phase) {
        (RunState::Running, RunPhase::Preparing) => "preparing".to_owned(),
        (RunState::Running, RunPhase::Settled { .. }) => "winding up".to_owned(),
        (RunState::Ended, RunPhase::TimeLimit) => "ended at its time limit".to_owned(),
        (state, _) => state.words().to_owned(),
    }
}

fn verdict(judgement: &Judgement) -> VerdictView {
    let why = judgement.findings.first().map_or_else(
        || {
            let proven = judgement.faults.iter().filter(|f| f.proven).count();
            format!(
                "Every node came back and agrees: {} compared, {}, {proven} of {} proven.",
                words::counted(judgement.heights_compared, "height"),
                words::counted(judgement.distinct_app_hashes, "distinct app hash"),
                words::counted(judgement.faults.len() as u64, "fault")
            )
        },
        |finding| match finding.node.as_deref() {
            Some(node) => format!("{node}: {}", finding.detail),
            None => finding.detail.clone(),
        },
    );
    VerdictView {
        name: judgement.verdict.to_string(),
        class: class(judgement.verdict),
        why,
        findings: judgement.findings.iter().map(finding).collect(),
        notes: judgement.notes.clone(),
        heights_compared: judgement.heights_compared,
        distinct_app_hashes: judgement.distinct_app_hashes,
    }
}

fn finding(finding: &crate::judge::Finding) -> FindingView {
    let also = |c: &crate::judge::Consequence| {
        let node = c.node.as_deref().map(|n| format!(" {n}")).unwrap_or_default();
        format!("{}{node}: {}", c.verdict, c.detail)
    };
    FindingView {
        verdict: finding.verdict.to_string(),
        class: class(finding.verdict),
        node: finding.node.clone(),
        height: finding.height,
        detail: finding.detail.clone(),
        why: finding.why.clone(),
        next: finding.next.clone(),
        also: finding.consequences.iter().map(also).collect(),
        evidence: finding.evidence.clone(),
    }
}

fn node(at_us: u64, best: Option<u64>, name: &str, node: &NodeState, judgement: Option<&Judgement>) -> NodeView {
    let row = judgement.and_then(|j| j.nodes.iter().find(|n| n.name == name));
    let doing = match node.doing {
        Doing::Down(since) if judgement.is_none() => {
            format!("down for {}", words::duration(at_us.saturating_sub(since)))
        }
        // At the end every node is stopped, which says nothing about it.
        Doing::Down(_) => "stopped".to_owned(),
        other => other.words().to_owned(),
    };
    let class = match node.doing {
        Doing::Waiting => "waiting",
        Doing::Starting | Doing::Working(Mode::BlockSync | Mode::Replay) => "busy",
        Doing::Working(Mode::Consensus) => "well",
        Doing::Paused => "held",
        Doing::Down(_) if judgement.is_some() => "waiting",
        Doing::Down(_) => "down",
    };
    let height = row.and_then(|r| r.height).or(node.height);
    NodeView {
        name: name.to_owned(),
        role: match node.role {
            Role::Validator => "validator",
            Role::Full => "full",
        },
        storage: node.storage.clone(),
        place: node.place.clone(),
        doing,
        class,
        start: node.start,
        tier: node.tier.map(words::tier),
        height,
        behind: best.zip(height).filter(|_| judgement.is_none()).map(|(best, own)| best.saturating_sub(own)),
        peers: node.peers,
        app_hash: row.and_then(|r| r.app_hash.clone()).unwrap_or_else(|| node.app_hash.clone()),
        heights: node.heights.map(|h| h.to_string()),
        verdict: row.map(|r| r.verdict.to_string()),
        rpc_silent: node.rpc_silent.clone(),
        troubles: node.troubles.clone(),
        holes: node.holes.clone(),
    }
}

fn fault(fault: &FaultState, judgement: Option<&Judgement>) -> FaultView {
    let id = &fault.setup.id;
    let row: Option<&FaultRow> =
        judgement.and_then(|j| j.faults.iter().find(|r| r.name == id.name && r.occurrence == id.occurrence));
    let stage =
        if fault.stage == FaultStage::Over && fault.landed.is_some() { FaultStage::Landed } else { fault.stage };
    let ms = |ms: u64| words::duration(ms * 1000);
    FaultView {
        name: id.name.clone(),
        occurrence: id.occurrence,
        kind: words::kind(fault.setup.kind),
        node: fault.setup.node.clone(),
        asked: fault.setup.asked.as_ref().map_or_else(|| fault.setup.when.clone(), words::asked),
        landed: fault.landed.as_ref().map(words::landed),
        stage: stage.words(),
        at_ms: fault.hit_at_us.map(|us| us / 1000),
        height: fault.height,
        after: row.and_then(|r| r.after).or(fault.after).map(|h| h.to_string()),
        predicted: row.and_then(|r| r.predicted.clone()),
        exit: row.and_then(|r| r.exit.clone()).or_else(|| fault.exit.map(words::exit)),
        down: row.and_then(|r| r.down_ms).map(ms).or_else(|| fault.down_us.map(words::duration)),
        replayed: row.and_then(|r| r.replayed),
        caught_up: row.and_then(|r| r.caught_up_ms).map(ms),
        proven: row.map(|r| r.proven),
        // Where it landed says more than what was seen to change.
        note: row
            .and_then(|r| r.why_unproven.clone())
            .or_else(|| fault.note.clone().filter(|_| fault.landed.is_none())),
    }
}

fn sync(row: SyncRow) -> SyncView {
    let timed = |us: u64| (row.timed > 0).then(|| words::duration(us));
    SyncView {
        mode: words::mode(row.mode),
        tier: words::tier(row.tier),
        p50: timed(row.p50_us),
        p99: timed(row.p99_us),
        max: timed(row.max_us),
        node: row.node,
        storage: row.storage,
        store: row.store,
        blocks: row.blocks,
        per_block: row.per_block,
        per_flush: row.per_flush,
    }
}
