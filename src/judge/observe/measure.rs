//! Figures: rates with their stalls, sweeps with their spreads, two builds against the noise of one, and whether a
//! stored result can be made again.

use serde::Deserialize;
use serde_json::Value;

use super::file::File;
use super::processes::rate_words;
use super::value::{Int, Look};
use crate::judge::series::median;
use crate::judge::{Finding, Note, Said, Verdict};

/// A block-sync series.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateSeries {
    #[serde(default)]
    pub(super) node: Option<String>,
    pub(super) samples: Vec<Look>,
    /// Number of peers over time: `[t, n]`.
    #[serde(default)]
    pub(super) peers: Vec<Look>,
    #[serde(default)]
    pub(super) dropped_peers: Option<u64>,
}

/// One figure over a parameter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sweep {
    pub(super) parameter: String,
    #[serde(default)]
    pub(super) metric: Option<String>,
    pub(super) points: Vec<SweepPoint>,
    /// From this value on the node is bound by its CPU.
    #[serde(default)]
    pub(super) cpu_saturated_from: Option<f64>,
}

/// One value of the parameter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepPoint {
    pub(super) at: f64,
    pub(super) values: Vec<f64>,
}

/// Two sets of one figure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Compare {
    pub(super) metric: String,
    pub(super) baseline: Vec<f64>,
    pub(super) candidate: Vec<f64>,
    /// Spread of two runs of the same build, in percent.
    pub(super) aa_spread_pct: f64,
    /// Whether CPU, image, disk and tier were the same.
    pub(super) setup_equal: bool,
}

/// A stored result.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredResult {
    pub(super) verdict: Verdict,
    #[serde(default)]
    pub(super) seed: Option<Int>,
    #[serde(default)]
    pub(super) image: Option<String>,
    #[serde(default)]
    pub(super) topology: Option<Value>,
    #[serde(default)]
    pub(super) faults: Vec<Value>,
    #[serde(default)]
    pub(super) tool: Option<String>,
}

/// Checks all of them.
pub(super) fn check(file: &File, said: &mut Said) {
    for series in &file.rates {
        rate(series, said);
    }
    if let Some(of) = &file.sweep {
        sweep(of, said);
    }
    if let Some(of) = &file.compare {
        compare(of, said);
    }
    if let Some(of) = &file.result {
        result(of, said);
    }
}

fn rate(series: &RateSeries, said: &mut Said) {
    let note = |words: String| {
        let mut note = Note::run("rate", words);
        note.node.clone_from(&series.node);
        note
    };
    let Some(mut words) = rate_words(&series.samples) else {
        said.findings.push(few("a rate needs two looks at different times"));
        return;
    };
    let fewest = series.peers.iter().filter_map(|l| Some((l.h?, l.t))).min();
    if let Some((peers, t)) = fewest {
        words.push_str(&format!(", peers down to {peers} at t={} s", t.0 / 1_000_000));
    }
    if let Some(dropped) = series.dropped_peers {
        words.push_str(&format!(", {dropped} peers dropped"));
    }
    said.notes.push(note(words));
}

fn few(what: &str) -> Finding {
    Finding::new(Verdict::Inconclusive, what).why("too few values to say anything").next("measure more often")
}

fn bounds(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().min_by(f64::total_cmp)?;
    let high = values.iter().copied().max_by(f64::total_cmp)?;
    Some((low, high))
}

/// Neighbouring points differ only where their spreads do not overlap.
fn sweep(sweep: &Sweep, said: &mut Said) {
    let metric = sweep.metric.as_deref().unwrap_or("the figure");
    for pair in sweep.points.windows(2) {
        let (a, b) = (&pair[0], &pair[1]);
        let (Some(from), Some(to)) = (bounds(&a.values), bounds(&b.values)) else {
            said.findings.push(few("a point of the sweep has no value"));
            continue;
        };
        let apart = from.1 < to.0 || to.1 < from.0;
        let change = match (median(&mut a.values.clone()), median(&mut b.values.clone())) {
            (Some(x), Some(y)) if apart && x != 0.0 => format!("{:+.0} %", 100.0 * (y - x) / x),
            _ => "no significant change, the spreads overlap".to_owned(),
        };
        let bound = sweep.cpu_saturated_from.is_some_and(|from| a.at >= from);
        let bound = if bound { "; the node is bound by its CPU there" } else { "" };
        let words = format!(
            "{metric} from {} {} to {}: {change} ({}–{} against {}–{}){bound}",
            a.at, sweep.parameter, b.at, from.0, from.1, to.0, to.1
        );
        said.notes.push(Note::run("sweep", words));
    }
}

/// A difference inside the spread of one build against itself is no difference.
fn compare(compare: &Compare, said: &mut Said) {
    if !compare.setup_equal {
        said.findings.push(
            Finding::new(Verdict::Inconclusive, format!("{}: refused, the setups differ", compare.metric))
                .why("figures of different CPUs, images, disks or tiers are never compared")
                .next("measure both again on one machine, in interleaved rounds"),
        );
        return;
    }
    let (base, new) = (median(&mut compare.baseline.clone()), median(&mut compare.candidate.clone()));
    let (Some(base), Some(new)) = (base, new) else {
        said.findings.push(few("one side of the comparison has no value"));
        return;
    };
    if base == 0.0 {
        said.findings.push(few("the baseline is 0"));
        return;
    }
    let change = 100.0 * (new - base) / base;
    let judged = if change.abs() <= compare.aa_spread_pct {
        "no change: inside".to_owned()
    } else {
        format!("a change: {} than", if change < 0.0 { "lower by more" } else { "higher by more" })
    };
    let words = format!(
        "{}: {change:+.1} %, {judged} the {} % of one build against itself",
        compare.metric, compare.aa_spread_pct
    );
    said.notes.push(Note::run("compare", words));
}

/// A result that nobody can make again is worth nothing.
fn result(result: &StoredResult, said: &mut Said) {
    let mut missing = Vec::new();
    if result.seed.is_none() {
        missing.push("seed");
    }
    if !result.image.as_deref().is_some_and(|image| image.contains("sha256:")) {
        missing.push("image digest");
    }
    if result.topology.as_ref().is_none_or(serde_json::Value::is_null) {
        missing.push("resolved topology");
    }
    let timed = |fault: &Value| ["at", "at_us", "t", "landed", "time"].iter().any(|key| fault.get(*key).is_some());
    if result.faults.is_empty() || !result.faults.iter().all(timed) {
        missing.push("fault list with times");
    }
    if missing.is_empty() {
        let tool = result.tool.as_deref().unwrap_or("?");
        said.notes.push(Note::run("result", format!("{} of {tool} can be made again", result.verdict)));
        return;
    }
    let image = result.image.as_deref().map(|i| format!(" (image is `{i}`)")).unwrap_or_default();
    said.findings.push(
        Finding::new(
            Verdict::Inconclusive,
            format!("{} rejected as not reproducible: it lacks {}{image}", result.verdict, missing.join(", ")),
        )
        .why("a result that cannot be made again proves nothing")
        .next(format!("store {} with every result", missing.join(", "))),
    );
}
