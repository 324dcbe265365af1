//! Block times, clocks set wrong, and peers that claim too much.

use jiff::Timestamp;
use serde::Deserialize;

use super::file::File;
use super::value::{ByHeight, Int, Seconds};
use super::{Model, ObservationError};
use crate::judge::power::Online;
use crate::judge::{Finding, Note, Said, Verdict};

/// Block times.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockTimes {
    #[serde(default)]
    pub(super) node: Option<String>,
    /// The orchestrator's clock at the last look, RFC 3339.
    #[serde(default)]
    pub(super) now: Option<String>,
    /// How far ahead of it a block may be, in seconds.
    #[serde(default)]
    pub(super) tolerance_s: Option<Seconds>,
    pub(super) blocks: ByHeight<String>,
}

/// Runs with a clock set wrong.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClockSkew {
    pub(super) baseline_blocks_per_min: f64,
    #[serde(default)]
    pub(super) proposer_based_time: Option<bool>,
    pub(super) runs: Vec<SkewRun>,
}

/// One of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SkewRun {
    pub(super) skewed: Vec<String>,
    pub(super) skew_s: f64,
    pub(super) blocks_per_min: f64,
    #[serde(default)]
    pub(super) rounds_gt0: Option<u64>,
}

/// What a peer says it has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerClaim {
    pub(super) id: String,
    #[serde(default)]
    pub(super) base: Option<Int>,
    pub(super) height: Int,
}

/// How far ahead of the orchestrator's clock a block may be, in nanoseconds, where the file does not say.
const TOLERANCE_NS: i128 = 10_000_000_000;

/// Checks all of them.
pub(super) fn check(file: &File, models: &[Model], said: &mut Said) -> Result<(), ObservationError> {
    if let Some(times) = &file.block_times {
        block_times(file, times, said)?;
    }
    skewed(file, said);
    claims(file, models, said);
    Ok(())
}

fn time(text: &str, place: String) -> Result<Timestamp, ObservationError> {
    text.parse().map_err(|e| ObservationError::at(place, format!("`{text}` is no RFC 3339 time: {e}")))
}

/// Times rise strictly, to the nanosecond and whatever their offset; the first block carries the genesis time.
fn block_times(file: &File, times: &BlockTimes, said: &mut Said) -> Result<(), ObservationError> {
    let now = times.now.as_deref().map(|t| time(t, "block_times.now".to_owned())).transpose()?;
    let tolerance = times.tolerance_s.map_or(TOLERANCE_NS, |s| i128::from(s.0) * 1000);
    let initial = file.initial_height.map_or(1, |h| h.0);
    let mut before: Option<(u64, Timestamp)> = None;
    let mut intervals: Vec<f64> = Vec::new();
    for (height, text) in &times.blocks.0 {
        let at = time(text, format!("block_times.blocks.{height}"))?;
        if at.as_second() <= 0 {
            said.notes.push(Note::run("block-times", format!("block {height} has no time")).height(*height));
            continue;
        }
        if let Some((last, then)) = before {
            if at <= then {
                said.findings.push(suspect(
                    times,
                    *height,
                    format!("block {height} at {at} is not after block {last} at {then}"),
                ));
            } else if last != initial && last + 1 == *height {
                intervals.push((at.as_nanosecond() - then.as_nanosecond()) as f64 / 1e9);
            }
        }
        if let Some(now) = now {
            let ahead = at.as_nanosecond() - now.as_nanosecond();
            if ahead > tolerance {
                let words = format!("block {height} at {at} is {} in the future", duration_words(ahead));
                said.findings.push(suspect(times, *height, words));
            }
        }
        before = Some((*height, at));
    }
    if let Some(median) = crate::judge::series::median(&mut intervals) {
        let words =
            format!("median block interval {median:.3} s, without the first block, which carries the genesis time");
        said.notes.push(Note::run("block-times", words));
    }
    Ok(())
}

fn duration_words(nanoseconds: i128) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    if seconds >= 60 { format!("{} min {} s", seconds / 60, seconds % 60) } else { format!("{seconds} s") }
}

fn suspect(times: &BlockTimes, height: u64, detail: String) -> Finding {
    let mut finding = Finding::new(Verdict::ClockSuspect, detail)
        .height(height)
        .why("block times have to rise, and to stay near the clock of whoever watches")
        .next("compare the clocks of the proposer and of the orchestrator");
    finding.node.clone_from(&times.node);
    finding
}

/// A clock set wrong on a third of the voting power or more breaks the assumption itself.
fn skewed(file: &File, said: &mut Said) {
    let Some(skew) = &file.clock_skew else { return };
    let of = |name: &String| file.power.get(name).or(file.nodes.get(name).and_then(|n| n.power.as_ref())).map(|p| p.0);
    let names = file.power.keys().chain(file.nodes.keys().filter(|n| !file.power.contains_key(*n)));
    let total: u64 = names.filter_map(of).sum();
    for run in &skew.runs {
        let power: u64 = run.skewed.iter().filter_map(of).sum();
        let share = Online { power, total }.percent();
        let baseline = skew.baseline_blocks_per_min;
        let words = words(run, share, baseline, skew.proposer_based_time);
        let third = total > 0 && 3 * power >= total;
        if third {
            let words = format!(
                "{words}: slow or halted is expected, since a third or more of the power breaks the assumption"
            );
            said.notes.push(Note::run("clock-skew", words));
        } else if run.blocks_per_min >= baseline / 2.0 {
            let slow = if run.blocks_per_min < baseline { ", slightly slow" } else { "" };
            said.notes.push(Note::run("clock-skew", format!("{words}: fine{slow}")));
        } else {
            let verdict = if run.blocks_per_min > 0.0 { Verdict::ConvergedSlow } else { Verdict::ChainHalted };
            said.findings.push(
                Finding::new(verdict, words)
                    .node(run.skewed.join(", "))
                    .why("less than a third of the voting power has a wrong clock, which the chain has to bear")
                    .next("look at rounds above 0 and at whose proposals are refused as untimely"),
            );
        }
    }
}

fn words(run: &SkewRun, share: u64, baseline: f64, proposer_based: Option<bool>) -> String {
    let time = match proposer_based {
        Some(true) => ", proposer-based time",
        Some(false) => ", time by vote",
        None => "",
    };
    let rounds = run.rounds_gt0.map(|n| format!(", {n} rounds above 0")).unwrap_or_default();
    format!(
        "{} ({share} % of the voting power) off by {} s: {} blocks/min against {baseline}{rounds}{time}",
        run.skewed.join(", "),
        run.skew_s,
        run.blocks_per_min
    )
}

/// Peers that claim blocks which nobody else has.
fn claims(file: &File, models: &[Model], said: &mut Said) {
    let samples = models.iter().flat_map(|m| m.nodes.iter().flat_map(|n| &n.samples).chain(&m.rest));
    let Some(best) = samples.map(|s| s.height).max() else { return };
    for (node, claims) in &file.peer_claims {
        for claim in claims.iter().filter(|c| c.height.0 > best.saturating_mul(2).max(best + 100)) {
            let base = claim.base.map(|b| format!(" from {}", b.0)).unwrap_or_default();
            let words = format!(
                "its peer {} claims blocks{base} to {}, and the best seen anywhere is {best}",
                claim.id, claim.height.0
            );
            said.notes.push(Note::about("lying-peer", node, words));
        }
    }
}
