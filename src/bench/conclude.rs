//! From rounds to ratios, the noise floor, gates and knees. Pure.

use super::result::{BenchResult, CellResult, Ends, GateResult, Ratio};
use super::statistics::{Interval, ROUNDS_MIN, paired_ratio, summary};
use crate::topology::bench::{Gate, GateOf};

/// From one value of an axis to the next, a change below this is no gain.
const GAIN_MIN: f64 = 1.05;
/// A node's own count of its blocks may differ by so much from what was looked at: its two ends are a little later.
const OWN_OFF: f64 = 0.05;

/// Fills in all that follows from the rounds.
pub fn conclude(result: &mut BenchResult, require: &[Gate]) {
    for cell in &mut result.cells {
        let rates: Vec<f64> = cell.counted().into_values().collect();
        cell.blocks_per_s = summary(&rates);
        let ms: Vec<f64> = rates.iter().map(|rate| 1e3 / rate).collect();
        cell.ms_per_block = summary(&ms);
    }
    result.rounds = result.cells.iter().map(|cell| cell.counted().len()).min().map_or(0, |n| n as u32);
    result.floor = floor(&result.cells);
    result.ratios = ratios(&result.cells, result.floor);
    result.gates = require.iter().map(|gate| judge(gate, result)).collect();
    result.knees = knees(&result.cells);
    result.notes.extend(result.cells.iter().filter_map(own_count_differs));
}

/// The cross-check: a node that counts its blocks itself must have been as fast by that count as by the heights it reported.
fn own_count_differs(cell: &CellResult) -> Option<String> {
    let counted = cell.rounds.iter().filter(|round| round.voided.is_none());
    let pairs: Vec<(f64, f64)> =
        counted.filter_map(|round| Some((round.own_blocks_per_s?, round.rate.blocks_per_s()))).collect();
    let (own, looked) = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    let n = pairs.len() as f64;
    let off = !pairs.is_empty() && (own / looked - 1.0).abs() > OWN_OFF;
    off.then(|| {
        let (label, own, looked) = (cell.label(), own / n, looked / n);
        format!("{label}: by the node's own count it made {own:.1} blocks/s, by its heights {looked:.1}: one is wrong")
    })
}

/// The ratio of two cells over the rounds in which both count.
pub fn ratio_of(a: &CellResult, b: &CellResult) -> (Option<Interval>, usize) {
    let (a, b) = (a.counted(), b.counted());
    let pairs: Vec<(f64, f64)> = a.iter().filter_map(|(round, a)| Some((*a, *b.get(round)?))).collect();
    (paired_ratio(&pairs), pairs.len())
}

fn floor(cells: &[CellResult]) -> Option<Ends> {
    let twin = cells.iter().find(|cell| cell.twin)?;
    let first = cells.iter().find(|cell| !cell.twin && cell.arm == twin.arm && cell.axes == twin.axes)?;
    let (interval, pairs) = ratio_of(twin, first);
    interval.filter(|_| pairs >= ROUNDS_MIN).map(|of| Ends { lo: of.lo, hi: of.hi })
}

/// The twin against its cell, every arm against the first one, and every value of an axis against the axis's first one.
fn ratios(cells: &[CellResult], floor: Option<Ends>) -> Vec<Ratio> {
    let mut found = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        let twin_of = |other: &CellResult| cell.twin && other.arm == cell.arm && other.axes == cell.axes;
        let arm_of = |other: &CellResult| !cell.twin && other.axes == cell.axes && other.arm != cell.arm;
        let first = cells[..at].iter().position(|other| !other.twin && (twin_of(other) || arm_of(other)));
        if let Some(first) = first {
            let sides = if cell.twin {
                (cell.label(), cells[first].label())
            } else {
                (cell.arm.clone(), cells[first].arm.clone())
            };
            found.push(ratio(cells, (at, first), sides, floor));
        }
        for axis in cell.axes.keys().filter(|_| !cell.twin) {
            let base = cells[..at]
                .iter()
                .position(|other| !other.twin && other.arm == cell.arm && only_differ_in(axis, cell, other));
            if let Some(base) = base {
                let side = |cell: &CellResult| format!("{axis}={}", cell.axes[axis]);
                found.push(ratio(cells, (at, base), (side(cell), side(&cells[base])), floor));
            }
        }
    }
    found
}

fn only_differ_in(axis: &str, a: &CellResult, b: &CellResult) -> bool {
    a.axes.iter().all(|(name, value)| (b.axes.get(name) == Some(value)) != (name == axis))
}

fn ratio(cells: &[CellResult], at: (usize, usize), sides: (String, String), floor: Option<Ends>) -> Ratio {
    let (a, b) = (&cells[at.0], &cells[at.1]);
    let (interval, pairs) = ratio_of(a, b);
    let (verdict, why) = verdict(a, b, interval, pairs, floor);
    Ratio { a: a.label(), b: b.label(), cells: at, sides, ratio: interval, verdict: verdict.to_owned(), why }
}

fn verdict(
    a: &CellResult,
    b: &CellResult,
    interval: Option<Interval>,
    pairs: usize,
    floor: Option<Ends>,
) -> (&'static str, String) {
    for cell in [a, b] {
        if let Some(why) = &cell.inconclusive {
            return ("inconclusive", format!("{}: {why}", cell.label()));
        }
    }
    if a.tier != b.tier {
        let why = format!("`{}` is under {} and `{}` under {}, which are never compared", a.arm, a.tier, b.arm, b.tier);
        return ("inconclusive", why);
    }
    let Some(interval) = interval.filter(|_| pairs >= ROUNDS_MIN) else {
        return ("inconclusive", format!("rounds that count: {pairs}; an interval needs {ROUNDS_MIN}"));
    };
    let inside = floor.is_some_and(|floor| (floor.lo..=floor.hi).contains(&interval.value));
    if interval.contains(1.0) {
        return ("no change", "the interval contains 1".to_owned());
    }
    if inside {
        return ("no change", "inside the noise floor".to_owned());
    }
    let verdict = if interval.value > 1.0 { "faster" } else { "slower" };
    (verdict, sync_share(a, b).unwrap_or_default())
}

/// How much of the difference in milliseconds a block is a difference inside syncs.
fn sync_share(a: &CellResult, b: &CellResult) -> Option<String> {
    let all = b.ms_per_block?.mean.value - a.ms_per_block?.mean.value;
    let syncs = b.sync_ms_per_block() - a.sync_ms_per_block();
    if a.tier == "none" || syncs.abs() < 0.01 {
        return None;
    }
    Some(format!(
        "{:+.2} ms a block, {:+.2} ms of it inside syncs ({:.2} against {:.2} syncs a block)",
        -all,
        -syncs,
        a.all_syncs_per_block(),
        b.all_syncs_per_block()
    ))
}

fn judge(gate: &Gate, result: &BenchResult) -> GateResult {
    let bounds = match (gate.at_least, gate.at_most) {
        (Some(least), Some(most)) => format!("between {least} and {most}"),
        (Some(least), None) => format!("at least {least}"),
        (_, most) => format!("at most {}", most.unwrap_or(f64::INFINITY)),
    };
    let (what, figures): (String, Vec<(String, Option<Interval>, bool)>) = match &gate.of {
        GateOf::Ratio(a, b) => (format!("ratio {a}/{b} {bounds}"), gated_ratios(result, Some((a, b)))),
        GateOf::EveryRatio => (format!("every ratio of two arms {bounds}"), gated_ratios(result, None)),
        GateOf::BlocksPerS(arm) => {
            let cells = result.cells.iter().filter(|cell| !cell.twin && cell.arm == *arm);
            let figures = cells.map(|cell| {
                let enough = cell.counted().len() >= ROUNDS_MIN && cell.inconclusive.is_none();
                (cell.label(), cell.blocks_per_s.map(|of| of.mean), enough)
            });
            (format!("blocks/s of {arm} {bounds}"), figures.collect())
        }
    };
    if figures.is_empty() {
        return GateResult { what, holds: None, why: "nothing was measured that it is about".to_owned() };
    }
    let mut holds = Some(true);
    let mut why = Vec::new();
    for (label, interval, usable) in figures {
        let one = interval.filter(|_| usable).and_then(|interval| held(gate, interval));
        holds = match (holds, one) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (None, _) | (_, None) => None,
            (Some(true), Some(true)) => Some(true),
        };
        let figure = interval
            .map_or_else(|| "not measured".to_owned(), |i| format!("{:.3} [{:.3}, {:.3}]", i.value, i.lo, i.hi));
        why.push(format!("{label}: {figure}{}", if usable { "" } else { ", inconclusive" }));
    }
    GateResult { what, holds, why: why.join("; ") }
}

/// Ratios that a gate is about, turned round where they were measured the other way; whether each can be used.
fn gated_ratios(result: &BenchResult, sides: Option<(&String, &String)>) -> Vec<(String, Option<Interval>, bool)> {
    let usable = |ratio: &Ratio| ratio.verdict != "inconclusive";
    let turned = |i: Interval| Interval { value: 1.0 / i.value, lo: 1.0 / i.hi, hi: 1.0 / i.lo };
    let mut found = Vec::new();
    for ratio in result.ratios.iter().filter(|ratio| !result.cells[ratio.cells.0].twin) {
        let label = format!("{} / {}", ratio.a, ratio.b);
        match sides {
            Some((a, b)) if ratio.sides == (a.clone(), b.clone()) => found.push((label, ratio.ratio, usable(ratio))),
            Some((a, b)) if ratio.sides == (b.clone(), a.clone()) => {
                found.push((format!("{} / {}", ratio.b, ratio.a), ratio.ratio.map(turned), usable(ratio)));
            }
            Some(_) => {}
            None if !ratio.sides.0.contains('=') => found.push((label, ratio.ratio, usable(ratio))),
            None => {}
        }
    }
    let Some((a, b)) = sides.filter(|_| found.is_empty()) else { return found };
    // Neither side is the one that all others are measured against: the cells are there all the same.
    for (at, cell) in result.cells.iter().enumerate().filter(|(_, cell)| !cell.twin) {
        let other =
            |other: &CellResult| !other.twin && is_side(cell, a) && is_side(other, b) && same_but(cell, other, a, b);
        for below in result.cells.iter().enumerate().filter(|(_, c)| other(c)).map(|(below, _)| below) {
            let of = self::ratio(&result.cells, (at, below), (a.clone(), b.clone()), result.floor);
            found.push((format!("{} / {}", of.a, of.b), of.ratio, of.verdict != "inconclusive"));
        }
    }
    found
}

fn is_side(cell: &CellResult, side: &str) -> bool {
    cell.arm == side
        || side.split_once('=').is_some_and(|(axis, value)| cell.axes.get(axis).is_some_and(|v| v == value))
}

fn same_but(cell: &CellResult, other: &CellResult, a: &str, b: &str) -> bool {
    match (a.split_once('='), b.split_once('=')) {
        (Some((axis, _)), Some(_)) => cell.arm == other.arm && only_differ_in(axis, cell, other),
        _ => cell.axes == other.axes,
    }
}

/// A bound holds where the whole interval is on its side, fails where none of it is, and cannot be told between.
fn held(gate: &Gate, interval: Interval) -> Option<bool> {
    let least = gate.at_least.unwrap_or(f64::NEG_INFINITY);
    let most = gate.at_most.unwrap_or(f64::INFINITY);
    if interval.lo >= least && interval.hi <= most {
        Some(true)
    } else if interval.hi < least || interval.lo > most {
        Some(false)
    } else {
        None
    }
}

/// For each axis of numbers: from where on a higher value gains nothing, by arm and by the values of the other axes.
fn knees(cells: &[CellResult]) -> Vec<String> {
    let mut said = Vec::new();
    let lines = cells.iter().enumerate().filter(|(_, cell)| !cell.twin);
    for (at, first) in lines {
        for axis in first.axes.keys() {
            let on_line = |cell: &&CellResult| {
                !cell.twin && cell.arm == first.arm && (cell.axes == first.axes || only_differ_in(axis, cell, first))
            };
            let line: Vec<&CellResult> = cells.iter().filter(on_line).collect();
            let starts = cells[..at].iter().all(|cell| !on_line(&cell));
            if starts && line.len() >= 3 {
                said.extend(knee(axis, first, &line));
            }
        }
    }
    said
}

fn knee(axis: &str, first: &CellResult, line: &[&CellResult]) -> Option<String> {
    let others: Vec<String> =
        first.axes.iter().filter(|(name, _)| *name != axis).map(|(name, value)| format!("{name}={value}")).collect();
    let of = std::iter::once(first.arm.clone()).chain(others).collect::<Vec<_>>().join(" ");
    let changed = |pair: &&[&CellResult]| {
        let (interval, pairs) = ratio_of(pair[1], pair[0]);
        interval.filter(|_| pairs >= ROUNDS_MIN)
    };
    let steps: Option<Vec<Interval>> = line.windows(2).map(|pair| changed(&pair)).collect();
    let steps = steps?;
    let gains = |step: &Interval| step.value >= GAIN_MIN && !step.contains(1.0);
    let costs = |step: &Interval| step.value <= 1.0 / GAIN_MIN && !step.contains(1.0);
    if let Some(last) = steps.iter().rposition(gains) {
        let value = &line[last + 1].axes[axis];
        return Some(if last + 1 == steps.len() {
            format!("{of}: {axis} still gains at {value}")
        } else {
            format!("{of}: beyond {axis} {value} no gain")
        });
    }
    match steps.iter().position(costs) {
        Some(0) => Some(format!("{of}: {axis} is the limit from {} on", line[0].axes[axis])),
        Some(at) => Some(format!("{of}: above {axis} {} it is the limit", line[at].axes[axis])),
        None => Some(format!(
            "{of}: {axis} changes nothing from {} to {}",
            line[0].axes[axis],
            line[line.len() - 1].axes[axis]
        )),
    }
}

#[cfg(test)]
#[path = "conclude_tests.rs"]
mod tests;
