//! All rounds of a bench, from the first agent to the last: effects at the edge, everything else is decided by pure parts.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::BenchError;
use super::cell::{self, Measured};
use super::conclude::conclude;
use super::design::{Cell, Design, latency_quantiles};
use super::gathered::{Gathered, cell_result};
use super::machine::{self, Cores, Pressure};
use super::result::{BenchResult, Disk, RoundResult, Setup, VERSION};
use super::samples::Look;
use super::schedule::order;
use super::session::{self, Ground, Session};
use super::statistics::ROUNDS_MIN;
use crate::topology::bench::Bench;

/// Times that a machine which is too busy is waited for, in rounds, beside those asked for.
const VOIDED_MIN: u32 = 6;
/// Pause after a voided round, so that the averages that voided it can fall.
const AFTER_VOIDED: Duration = Duration::from_secs(10);

/// Looks of one round that are kept, about.
const LOOKS_KEPT: usize = 200;

/// What only the caller knows.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Seed of keys, orders and drawn latencies.
    pub seed: u64,
    /// When it began, RFC 3339.
    pub started: String,
    /// The command that runs it again.
    pub again: String,
    /// Kernel release.
    pub kernel: String,
    /// Version of midflush, and how it was built.
    pub midflush: String,
    /// The bench's folder.
    pub results: String,
}

/// What goes on, for whoever watches.
#[derive(Clone, Debug)]
pub enum Progress {
    /// Peers serve, the disk is known; the first round begins.
    Ready(Box<Setup>),
    /// One cell was measured.
    Cell {
        /// Its label.
        label: String,
        /// What it gave.
        round: Box<RoundResult>,
    },
    /// A round does not count.
    Voided {
        /// Which.
        round: u32,
        /// Why.
        why: String,
    },
}

/// Carries a bench out and removes everything that it created, on every way out.
///
/// # Errors
/// What keeps figures from meaning anything: bad input, a node that does not sync or syncs wrongly, a tool that failed. A bench
/// that the user stopped after some rounds is told with these.
pub async fn run(
    bench: &Bench,
    design: &Design,
    ground: &Ground<'_>,
    facts: Facts,
    observe: &mut (dyn FnMut(Progress) + Send),
    cancel: &CancellationToken,
) -> Result<BenchResult, BenchError> {
    let measured = work(bench, design, ground, facts, observe, cancel).await;
    let removed = ground.engine.remove(&ground.run).await;
    let result = measured?;
    removed.map_err(|source| BenchError::Engine { doing: "remove the nodes", source })?;
    Ok(result)
}

async fn work(
    bench: &Bench,
    design: &Design,
    ground: &Ground<'_>,
    facts: Facts,
    observe: &mut (dyn FnMut(Progress) + Send),
    cancel: &CancellationToken,
) -> Result<BenchResult, BenchError> {
    let cpus = machine::cpus();
    let split = if bench.pin { machine::split(&cpus) } else { None };
    let session = tokio::select! {
        session = Session::start(ground, design, split.as_ref(), cancel) => session?,
        () = cancel.cancelled() => return Err(BenchError::Interrupted),
    };
    let probe = session.probe().await?;
    let setup = setup(ground, design, &session, &facts, (&cpus, split), &probe);
    deliverable(design, &setup.disk)?;
    observe(Progress::Ready(Box::new(setup.clone())));
    let mut gathered: Vec<Gathered> = design.cells.iter().map(|_| Gathered::default()).collect();
    let mut state = Rounds { counted: 0, voided: 0, ended: String::new() };
    while state.goes_on(bench, design, &gathered) {
        let round = state.counted + 1;
        let measured = one_round(bench, design, &session, round, facts.seed, observe, cancel).await;
        let measured = match measured {
            Ok(measured) => measured,
            Err(BenchError::Interrupted) if state.counted > 0 => {
                state.ended = format!("stopped by the user after {} rounds", state.counted);
                break;
            }
            Err(error) => return Err(error),
        };
        let why = measured
            .iter()
            .find_map(|(_, m, _)| m.before.above(&bench.limits).or_else(|| m.after.above(&bench.limits)));
        for (at, one, place) in measured {
            let result = round_result(&one, round, place, why.clone());
            gathered[at].take(&one.used, result);
        }
        match why {
            None => state.counted += 1,
            Some(why) => {
                state.voided += 1;
                observe(Progress::Voided { round, why });
                tokio::select! {
                    () = tokio::time::sleep(AFTER_VOIDED) => {}
                    () = cancel.cancelled() => {}
                }
            }
        }
    }
    let mut result = BenchResult {
        version: VERSION,
        name: bench.name.clone(),
        seed: facts.seed,
        started: facts.started,
        again: facts.again,
        notes: notes(bench, &setup, &cpus),
        setup,
        cells: design.cells.iter().zip(gathered).map(|(cell, gathered)| cell_result(cell, gathered)).collect(),
        ratios: Vec::new(),
        floor: None,
        gates: Vec::new(),
        knees: Vec::new(),
        rounds: 0,
        voided: state.voided,
        ended: state.ended,
        results: facts.results,
    };
    conclude(&mut result, &bench.require);
    Ok(result)
}

/// How far the rounds are.
struct Rounds {
    counted: u32,
    voided: u32,
    ended: String,
}

impl Rounds {
    /// Whether another round is needed; says why not in `ended`.
    fn goes_on(&mut self, bench: &Bench, design: &Design, gathered: &[Gathered]) -> bool {
        let most = bench.until.map_or(bench.rounds, |until| until.rounds);
        if self.voided > most.max(VOIDED_MIN) {
            self.ended = format!("{} rounds were voided: the machine is too busy for these limits", self.voided);
            return false;
        }
        let Some(until) = bench.until else {
            self.ended = format!("{} rounds measured", self.counted);
            return self.counted < bench.rounds;
        };
        if (self.counted as usize) < ROUNDS_MIN {
            return true;
        }
        let widest = widest(design, gathered);
        let told = format!("the widest interval is ±{:.1} %", widest * 100.0);
        if widest <= until.half_width {
            self.ended = format!("{} rounds: {told}", self.counted);
            return false;
        }
        self.ended = format!("{} rounds: ±{:.1} % not reached, {told}", self.counted, until.half_width * 100.0);
        self.counted < until.rounds
    }
}

/// Half the width of the widest interval of a ratio to the first cell.
fn widest(design: &Design, gathered: &[Gathered]) -> f64 {
    let cells: Vec<_> =
        design.cells.iter().zip(gathered).map(|(cell, gathered)| cell_result(cell, gathered.clone())).collect();
    let widths = cells.iter().skip(1).filter_map(|cell| super::conclude::ratio_of(cell, &cells[0]).0);
    widths.map(|interval| interval.half_width()).fold(0.0, f64::max)
}

/// All cells once, in the order of this round, with their places in it.
async fn one_round(
    bench: &Bench,
    design: &Design,
    session: &Session,
    round: u32,
    seed: u64,
    observe: &mut (dyn FnMut(Progress) + Send),
    cancel: &CancellationToken,
) -> Result<Vec<(usize, Measured, u32)>, BenchError> {
    let limit = Duration::from_millis(bench.cell_limit_ms);
    let mut measured = Vec::with_capacity(design.cells.len());
    for (place, at) in (1..).zip(order(design.cells.len(), round - 1, seed)) {
        let cell = &design.cells[at];
        let one = cell::measure(session, cell, limit, cancel).await?;
        let round = Box::new(round_result(&one, round, place, None));
        observe(Progress::Cell { label: label(cell), round });
        measured.push((at, one, place));
    }
    Ok(measured)
}

fn label(cell: &Cell) -> String {
    cell_result(cell, Gathered::default()).label()
}

fn round_result(one: &Measured, round: u32, place: u32, voided: Option<String>) -> RoundResult {
    let Pressure { load1, .. } = one.before;
    RoundResult {
        round,
        place,
        rate: one.rate,
        looks: thin(&one.looks),
        load1,
        cpu_pressure: one.after.cpu,
        io_pressure: one.after.io,
        own_blocks_per_s: one.used.own_blocks_per_s,
        voided,
    }
}

/// At most some hundred looks, the first and the last among them.
fn thin(looks: &[Look]) -> Vec<Look> {
    let step = looks.len().div_ceil(LOOKS_KEPT).max(1);
    let last = looks.len().saturating_sub(1);
    looks.iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last).map(|(_, look)| *look).collect()
}

/// A latency below what the disk takes cannot be had.
fn deliverable(design: &Design, disk: &Disk) -> Result<(), BenchError> {
    for cell in &design.cells {
        for (store, latency) in &cell.node().sync_latency {
            let Some((p50, _)) = latency_quantiles(latency) else { continue };
            if p50 < disk.p50_us as f64 {
                let store = if store == "*" { "a sync" } else { store };
                return Err(BenchError::Input(format!(
                    "`{}` asks for {p50} µs a sync (median, {store}), and the disk itself ({}) takes {} µs; ask for more, or put \
                     the nodes on a faster file system, such as with TMPDIR=/dev/shm",
                    cell.arm, disk.filesystem, disk.p50_us
                )));
            }
        }
    }
    Ok(())
}

fn setup(
    ground: &Ground<'_>,
    design: &Design,
    session: &Session,
    facts: &Facts,
    (cpus, cores): (&[u32], Option<Cores>),
    probe: &crate::agent_client::protocol::Probe,
) -> Setup {
    let quantile = |share: usize| {
        let at = (probe.syncs_us.len() * share / 100).min(probe.syncs_us.len().saturating_sub(1));
        probe.syncs_us.get(at).copied().unwrap_or(0)
    };
    let digest = |cell: &Cell| {
        let build = session::build(ground.chain.as_ref(), cell);
        session.builds.get(&build).map_or_else(String::new, |prepared| prepared.digest.clone())
    };
    let fixtures = design.fixtures.iter().map(|fixture| {
        let of = &fixture.spec;
        let (heights, txs, size) = (of.heights, of.transactions_per_block, of.transaction_size);
        format!("{heights} blocks of {txs} transactions of {size} B, {} validators", of.validators)
    });
    let Cores { node: node_cpus, peers: peer_cpus } = cores.unwrap_or_default();
    Setup {
        midflush: facts.midflush.clone(),
        engine: ground.engine.capabilities().name,
        kernel: facts.kernel.clone(),
        cpu: machine::cpu_name(),
        cpus: u32::try_from(cpus.len()).unwrap_or(u32::MAX),
        node_cpus,
        peer_cpus,
        builds: design.cells.iter().map(|cell| (cell.arm.clone(), digest(cell))).collect::<BTreeMap<_, _>>(),
        fixture: fixtures.collect::<Vec<_>>().join("; "),
        disk: Disk {
            filesystem: probe.filesystem.clone(),
            count: probe.syncs_us.len() as u64,
            p50_us: quantile(50),
            p99_us: quantile(99),
        },
    }
}

fn notes(bench: &Bench, setup: &Setup, cpus: &[u32]) -> Vec<String> {
    let mut notes = Vec::new();
    if bench.pin && setup.node_cpus.is_empty() {
        let count = cpus.len();
        notes
            .push(format!("node and peers share {count} core: too few to pin them apart, so peers slow the node down"));
    }
    if setup.node_cpus.len() == 1 {
        notes.push("the node has one core, so that its threads share it".to_owned());
    }
    if setup.midflush.contains("debug") {
        notes.push("midflush was built without optimisation: rates of the reference node are far too low".to_owned());
    }
    notes
}
