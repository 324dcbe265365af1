//! What a file that can be read may still not say: faults of no known kind, nodes that nothing else knows, times that go
//! backward, numbers that no network has.

use std::collections::BTreeSet;

use super::ObservationError;
use super::build::names;
use super::file::File;
use super::value::{Look, Seconds};
use crate::judge::model::Ends;

/// Kinds of faults during which a node is away.
pub(super) const AWAY: [&str; 15] = [
    "kill",
    "crash",
    "oom",
    "stop",
    "pause",
    "restart",
    "upgrade",
    "fail",
    "halt",
    "remove",
    "partition",
    "disconnect",
    "power-cut",
    "replace",
    "reset",
];

/// Those of them during which its process lives on.
const LETS_LIVE: [&str; 3] = ["pause", "partition", "disconnect"];

/// Those of them that ask its process to end.
const ASKS: [&str; 3] = ["stop", "restart", "upgrade"];

/// Kinds of faults during which a node stays and votes.
pub(super) const STAYS: [&str; 7] = ["latency", "slow", "skew", "disk", "disk-full", "lying-peer", "restore"];

/// The most voting power that a validator set may have: an eighth of the largest signed integer.
const POWER_MAX: u64 = i64::MAX.unsigned_abs() / 8;

/// A kind as it is compared: lower case, with hyphens.
pub(super) fn kind(written: &str) -> String {
    written.trim().to_lowercase().replace(['_', ' '], "-")
}

/// How a fault of this kind, or of none that is told, ends the process of its node.
pub(super) fn ends(written: Option<&str>) -> Option<Ends> {
    let kind = written.map(kind).unwrap_or_default();
    match kind.as_str() {
        kind if ASKS.contains(&kind) => Some(Ends::Asked),
        kind if LETS_LIVE.contains(&kind) || STAYS.contains(&kind) => None,
        _ => Some(Ends::Killed),
    }
}

type Sense = Result<(), ObservationError>;

/// The first thing that makes no sense.
pub(super) fn check(file: &File) -> Sense {
    faults(file)?;
    series(file)?;
    numbers(file)?;
    figures(file)
}

fn faults(file: &File) -> Sense {
    let known = names(file, false);
    for (number, fault) in file.faults.iter().enumerate() {
        let place = format!("faults[{number}]");
        if let Some(written) = &fault.kind
            && !AWAY.iter().chain(&STAYS).any(|known| kind(written) == *known)
        {
            let kinds: Vec<&str> = AWAY.iter().chain(&STAYS).copied().collect();
            let message = format!("`{written}` is no kind of fault: use one of {}", kinds.join(", "));
            return Err(ObservationError::at(format!("{place}.kind"), message));
        }
        if let (Some(from), Some(to)) = (fault.from, fault.to)
            && to < from
        {
            let message =
                format!("the fault ends at {} s, before it begins at {} s: exchange the two", to.words(), from.words());
            return Err(ObservationError::at(format!("{place}.to"), message));
        }
        nodes(&known, &fault.nodes, &format!("{place}.nodes"))?;
    }
    for (number, twins) in file.twins.iter().enumerate() {
        nodes(&[], twins, &format!("twins[{number}]"))?;
    }
    let skewed = file.clock_skew.iter().flat_map(|skew| &skew.runs).enumerate();
    for (number, run) in skewed {
        nodes(&known, &run.skewed, &format!("clock_skew.runs[{number}].skewed"))?;
    }
    file.host.as_ref().map_or(Ok(()), |host| nodes(&[], &host.limited_volumes, "host.limited_volumes"))
}

/// A list of nodes: each once, and each known from elsewhere in the file, as far as that names any.
fn nodes(known: &[String], listed: &[String], place: &str) -> Sense {
    let mut seen = BTreeSet::new();
    for (number, name) in listed.iter().enumerate() {
        let place = format!("{place}[{number}]");
        if !seen.insert(name) {
            return Err(ObservationError::at(place, format!("`{name}` is listed twice: leave one out")));
        }
        if !known.is_empty() && !known.contains(name) {
            let message = format!("nothing else in the file names a node `{name}`: known are {}", known.join(", "));
            return Err(ObservationError::at(place, message));
        }
    }
    Ok(())
}

/// Looks in the order of their times.
fn series(file: &File) -> Sense {
    let heights = file.heights.iter().map(|(node, looks)| (format!("heights.{node}"), looks));
    let shards = file
        .shards
        .iter()
        .flat_map(|(node, shards)| shards.iter().map(move |(shard, looks)| (format!("shards.{node}.{shard}"), looks)));
    let rates = file.rates.iter().enumerate();
    let rates =
        rates.flat_map(|(n, r)| [(format!("rates[{n}].samples"), &r.samples), (format!("rates[{n}].peers"), &r.peers)]);
    for (place, looks) in heights.chain([("rest".to_owned(), &file.rest)]).chain(shards).chain(rates) {
        forward(&place, looks)?;
    }
    for (node, starts) in &file.starts {
        if let Some(number) = (1..starts.len()).find(|n| starts[*n].t < starts[*n - 1].t) {
            return Err(backward(format!("starts.{node}[{number}]"), starts[number - 1].t, starts[number].t));
        }
    }
    Ok(())
}

fn forward(place: &str, looks: &[Look]) -> Sense {
    match (1..looks.len()).find(|n| looks[*n].t < looks[*n - 1].t) {
        Some(number) => Err(backward(format!("{place}[{number}]"), looks[number - 1].t, looks[number].t)),
        None => Ok(()),
    }
}

fn backward(place: String, before: Seconds, after: Seconds) -> ObservationError {
    let message = format!("time goes backward, from {} s to {} s: put it in order", before.words(), after.words());
    ObservationError::at(place, message)
}

fn numbers(file: &File) -> Sense {
    let powers = file.power.values().chain(file.nodes.values().filter_map(|n| n.power.as_ref()));
    if powers.fold(0_u64, |sum, power| sum.saturating_add(power.0)) > POWER_MAX {
        let place = if file.power.is_empty() { "nodes" } else { "power" };
        let message = format!("the voting power adds up to more than {POWER_MAX}, the most that any family allows");
        return Err(ObservationError::at(place, message));
    }
    for (name, facts) in &file.nodes {
        if let (Some(earliest), Some(latest)) = (facts.earliest, facts.latest)
            && latest < earliest
        {
            let message = format!("latest {} is below earliest {}: exchange the two", latest.0, earliest.0);
            return Err(ObservationError::at(format!("nodes.{name}.latest"), message));
        }
    }
    for (number, exit) in file.exits.iter().enumerate() {
        if let Some(code) = exit.code.filter(|code| !(0..=255).contains(code)) {
            let message = format!("{code} is no exit code: these are from 0 to 255");
            return Err(ObservationError::at(format!("exits[{number}].code"), message));
        }
        if let Some(signal) = exit.signal.filter(|signal| !(1..=64).contains(signal)) {
            let message = format!("{signal} is no signal: these are from 1 to 64");
            return Err(ObservationError::at(format!("exits[{number}].signal"), message));
        }
    }
    for (number, answer) in file.rpc.iter().enumerate() {
        if let Some(code) = answer.http.filter(|code| !(100..=599).contains(code)) {
            let message = format!("{code} is no HTTP status: these are from 100 to 599");
            return Err(ObservationError::at(format!("rpc[{number}].http"), message));
        }
    }
    let waits = [
        ("expectations.converge_within_s", file.expectations.converge_within_s),
        ("block_times.tolerance_s", file.block_times.as_ref().and_then(|times| times.tolerance_s)),
    ];
    for (place, wait) in waits {
        if let Some(wait) = wait.filter(|wait| wait.0 < 0) {
            return Err(ObservationError::at(
                place,
                format!("{} s is no duration: it must not be negative", wait.words()),
            ));
        }
    }
    Ok(())
}

/// Figures that are measured are finite, and rates and spreads are not negative.
fn figures(file: &File) -> Sense {
    let mut all: Vec<(String, f64)> = Vec::new();
    if let Some(of) = &file.compare {
        all.push(("compare.aa_spread_pct".to_owned(), of.aa_spread_pct));
        for (side, values) in [("baseline", &of.baseline), ("candidate", &of.candidate)] {
            all.extend(values.iter().enumerate().map(|(n, v)| (format!("compare.{side}[{n}]"), *v)));
        }
    }
    for (number, point) in file.sweep.iter().flat_map(|sweep| &sweep.points).enumerate() {
        let values = point.values.iter().enumerate();
        all.extend(values.map(|(n, v)| (format!("sweep.points[{number}].values[{n}]"), *v)));
    }
    if let Some(skew) = &file.clock_skew {
        all.push(("clock_skew.baseline_blocks_per_min".to_owned(), skew.baseline_blocks_per_min));
        for (number, run) in skew.runs.iter().enumerate() {
            all.push((format!("clock_skew.runs[{number}].blocks_per_min"), run.blocks_per_min));
            all.push((format!("clock_skew.runs[{number}].skew_s"), run.skew_s.abs()));
        }
    }
    match all.into_iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
        Some((place, value)) => {
            Err(ObservationError::at(place, format!("{value} makes no sense here: give a number from 0")))
        }
        None => Ok(()),
    }
}
