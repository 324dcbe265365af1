//! Lines while a bench runs and the tables at its end.

use std::fmt::Write as _;

use super::{ms, ratio_words};
use crate::bench::result::{BenchResult, CellResult, RoundResult, Setup};
use crate::bench::rounds::Progress;

/// One line about what just happened.
pub fn line(progress: &Progress) -> String {
    match progress {
        Progress::Ready(setup) => ready(setup),
        Progress::Cell { label, round } => measured(label, round),
        Progress::Voided { round, why } => format!("round {round:>2}  does not count and is repeated: {why}"),
    }
}

fn ready(setup: &Setup) -> String {
    let disk = &setup.disk;
    let cores = if setup.node_cpus.is_empty() {
        "not pinned".to_owned()
    } else {
        format!("node on cores {:?}, peers on {:?}", setup.node_cpus, setup.peer_cpus)
    };
    format!(
        "{}, {} × {}, kernel {}, midflush {}\nfixture {}\ndisk {}: a sync takes {} ms (p50), {} ms (p99); {cores}",
        setup.engine,
        setup.cpus,
        setup.cpu,
        setup.kernel,
        setup.midflush,
        setup.fixture,
        disk.filesystem,
        ms(disk.p50_us as f64),
        ms(disk.p99_us as f64),
    )
}

fn measured(label: &str, round: &RoundResult) -> String {
    let rate = &round.rate;
    format!(
        "round {:>2}  {label:<34}  {:>6} to {:<6}  {:>8.1} blocks/s  {:>7.3} ms a block  load {:.2}",
        round.round,
        rate.from,
        rate.to,
        rate.blocks_per_s(),
        rate.ms_per_block(),
        round.load1
    )
}

/// Everything at the end.
pub fn end(result: &BenchResult) -> String {
    let mut out = String::new();
    let rounds = format!("{} rounds count, {} voided", result.rounds, result.voided);
    let _ = writeln!(out, "{}, seed {}: {rounds}; {}\n", result.name, result.seed, result.ended);
    cells(&mut out, result);
    ratios(&mut out, result);
    spent(&mut out, &result.cells);
    latencies(&mut out, &result.cells);
    surface(&mut out, result);
    for gate in &result.gates {
        let word = match gate.holds {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None => "cannot be told",
        };
        let _ = writeln!(out, "required  {}: {word} ({})", gate.what, gate.why);
    }
    for note in &result.notes {
        let _ = writeln!(out, "note      {note}");
    }
    let _ = writeln!(out, "\nrun again  {}\nresults    {}", result.again, result.results);
    out
}

fn width(labels: impl Iterator<Item = String>) -> usize {
    labels.map(|label| label.chars().count()).max().unwrap_or(0).max(8)
}

fn cells(out: &mut String, result: &BenchResult) {
    let wide = width(result.cells.iter().map(CellResult::label));
    let _ = writeln!(
        out,
        "{:<wide$}  tier      blocks/s  [95 %]                median  spread  ms a block  syncs a block",
        "cell"
    );
    for cell in &result.cells {
        let Some((rate, time)) = cell.blocks_per_s.zip(cell.ms_per_block) else {
            let _ = writeln!(out, "{:<wide$}  {:<8}  no round counts", cell.label(), cell.tier);
            continue;
        };
        let syncs = cell.all_syncs_per_block();
        let interval = format!("[{:.1}, {:.1}]", rate.mean.lo, rate.mean.hi);
        let _ = writeln!(
            out,
            "{:<wide$}  {:<8}  {:>8.1}  {interval:<20}  {:>6.1}  {:>5.1}%  {:>10.3}  {syncs:>13.2}",
            cell.label(),
            cell.tier,
            rate.mean.value,
            rate.median,
            rate.spread * 100.0,
            time.mean.value,
        );
        if let Some(why) = &cell.inconclusive {
            let _ = writeln!(out, "{:<wide$}  inconclusive: {why}", "");
        }
    }
    out.push('\n');
}

fn ratios(out: &mut String, result: &BenchResult) {
    let name = |ratio: &crate::bench::result::Ratio| format!("{} / {}", ratio.a, ratio.b);
    let wide = width(result.ratios.iter().map(name));
    for ratio in &result.ratios {
        let why = if ratio.why.is_empty() { String::new() } else { format!(": {}", ratio.why) };
        let words = ratio_words(ratio.ratio);
        let _ = writeln!(out, "{:<wide$}  {words:<24}  {}{why}", name(ratio), ratio.verdict);
    }
    if let Some(floor) = result.floor {
        let _ = writeln!(out, "noise floor, a cell against itself: [{:.3}, {:.3}]", floor.lo, floor.hi);
    }
    out.push('\n');
}

/// Where the time goes, milliseconds a block.
fn spent(out: &mut String, cells: &[CellResult]) {
    let wide = width(cells.iter().map(CellResult::label));
    let _ = writeln!(out, "where the time goes, ms a block (stages overlap with syncs, and threads with each other)");
    for cell in cells {
        let syncs: Vec<String> = cell
            .spent
            .syncs
            .iter()
            .map(|(store, ms)| {
                format!("{store} {ms:.3} ({:.2} syncs)", cell.syncs_per_block.get(store).unwrap_or(&0.0))
            })
            .collect();
        let syncs = if syncs.is_empty() { "none seen".to_owned() } else { syncs.join(", ") };
        let _ = writeln!(out, "{:<wide$}  cpu {:.3}; in syncs: {syncs}", cell.label(), cell.spent.cpu);
        let mut stages: Vec<(&String, &f64)> = cell.spent.stages.iter().filter(|(_, ms)| **ms >= 0.0005).collect();
        stages.sort_by(|a, b| b.1.total_cmp(a.1));
        if !stages.is_empty() {
            let stages: Vec<String> = stages.iter().map(|(stage, ms)| format!("{stage} {ms:.3}")).collect();
            let _ = writeln!(out, "{:<wide$}  stages: {}", "", stages.join(", "));
        }
    }
    out.push('\n');
}

fn latencies(out: &mut String, cells: &[CellResult]) {
    let asked = |cell: &&CellResult| cell.latency.values().any(|of| of.asked.is_some());
    let cells: Vec<&CellResult> = cells.iter().filter(asked).collect();
    if cells.is_empty() {
        return;
    }
    let wide = width(cells.iter().map(|cell| cell.label()));
    let _ = writeln!(
        out,
        "{:<wide$}  store            asked                     syncs    p50 ms    p99 ms",
        "sync latency"
    );
    for cell in cells {
        for (store, of) in &cell.latency {
            let asked = of.asked.as_deref().unwrap_or("as the disk is");
            let (p50, p99) = (ms(of.p50_us as f64), ms(of.p99_us as f64));
            let label = cell.label();
            let _ = writeln!(out, "{label:<wide$}  {store:<15}  {asked:<22}  {:>8}  {p50:>8}  {p99:>8}", of.count);
        }
    }
    out.push('\n');
}

/// Blocks a second over two axes, one table an arm, and the knees in words.
fn surface(out: &mut String, result: &BenchResult) {
    for grid in super::grids(result) {
        let (rows, columns) = (&grid.rows, &grid.columns);
        let _ = writeln!(out, "blocks/s of {}, {} down, {} across", grid.arm, grid.row_axis, grid.column_axis);
        let head: String = columns.iter().map(|value| format!("{value:>12}")).collect();
        let _ = writeln!(out, "{:>10}{head}", "");
        for (row, rates) in rows.iter().zip(&grid.rates) {
            let line: String = rates
                .iter()
                .map(|rate| rate.map_or_else(|| format!("{:>12}", "-"), |r| format!("{r:>12.1}")))
                .collect();
            let _ = writeln!(out, "{row:>10}{line}");
        }
        out.push('\n');
    }
    for knee in &result.knees {
        let _ = writeln!(out, "knee      {knee}");
    }
}
