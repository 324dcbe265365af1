//! What interception costs: block-sync rate of one node without a filter, under `observe` and under `record`, in interleaved
//! rounds of one run, for the disciplines `deferred` and `per-block`.
//!
//! `cargo bench --bench overhead -- [ROUNDS]` prints one line a round and the ratios with 95 % intervals (t on log ratios
//! of paired rounds). Every round is a whole `midflush run`, so the hashes of every height are checked as well.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, ExitCode};

use midflush::timeline::{Event, NodeEvent, Record, read_all};

/// Rounds when none are asked for.
const ROUNDS: usize = 6;
/// Heights between which the rate is taken.
const FROM: u64 = 300;
const TO: u64 = 2_700;
const TIERS: [&str; 3] = ["none", "observe", "record"];
/// Two-sided 95 % quantiles of Student's t for 1 to 12 degrees of freedom.
const T95: [f64; 12] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];

/// One measured block sync.
#[derive(Clone, Copy)]
struct Sample {
    blocks_per_s: f64,
    /// Time inside syncs of all stores a block, in microseconds; 0 without a filter.
    sync_us_per_block: f64,
}

fn main() -> ExitCode {
    let rounds = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(ROUNDS).clamp(2, T95.len() + 1);
    let results = tempfile::tempdir().expect("a temporary folder");
    println!("load average at the start: {}", load_average());
    for storage in ["deferred", "per-block"] {
        let mut samples = [const { Vec::new() }; 3];
        for round in 0..rounds {
            // A B C, then C B A: a drift of the machine touches all tiers alike.
            let order: Vec<usize> = if round % 2 == 0 { vec![0, 1, 2] } else { vec![2, 1, 0] };
            for tier in order {
                match measure(results.path(), storage, TIERS[tier], round) {
                    Ok(sample) => {
                        println!(
                            "{storage:>9}  round {:>2}  {:<7}  {:>7.1} blocks/s  {:>6.2} ms a block  {:>6.0} us in syncs  load {}",
                            round + 1,
                            TIERS[tier],
                            sample.blocks_per_s,
                            1000.0 / sample.blocks_per_s,
                            sample.sync_us_per_block,
                            load_average(),
                        );
                        samples[tier].push(sample);
                    }
                    Err(why) => {
                        eprintln!("{storage}, {}: {why}", TIERS[tier]);
                        return ExitCode::from(3);
                    }
                }
            }
        }
        for tier in 1..TIERS.len() {
            let (ratio, low, high) = paired(&samples[tier], &samples[0]);
            println!("{storage:>9}  {} / none: {ratio:.3}  [{low:.3}, {high:.3}]  {rounds} rounds", TIERS[tier]);
        }
    }
    ExitCode::SUCCESS
}

fn measure(results: &Path, storage: &str, tier: &str, round: usize) -> Result<Sample, String> {
    let folder = results.join(format!("{storage}-{tier}-{round}"));
    let output = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .args(["run", "topologies/block-sync.yaml", "--engine", "process", "--json", "--results"])
        .arg(&folder)
        .args(["--set", &format!("nodes.late.storage={storage}"), "--set", &format!("nodes.late.watch={tier}")])
        .output()
        .map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let run = verdict["results"].as_str().ok_or("no results folder in the verdict")?;
    let file = File::open(Path::new(run).join("timeline.ndjson")).map_err(|e| e.to_string())?;
    let (records, _) = read_all(BufReader::new(file)).map_err(|e| e.to_string())?;
    sample(&records)
}

fn sample(records: &[Record]) -> Result<Sample, String> {
    let late = || records.iter().filter(|r| r.node.as_deref() == Some("late"));
    let heights = late().filter_map(|r| match &r.event {
        Event::Status(status) if (FROM..=TO).contains(&status.height) => Some((r.at_us, status.height)),
        _ => None,
    });
    let heights: Vec<(u64, u64)> = heights.collect();
    let (Some(first), Some(last)) = (heights.first(), heights.last()) else {
        return Err("no height was seen while the node was block-syncing".to_owned());
    };
    if last.1 < first.1 + (TO - FROM) / 2 {
        return Err(format!("only heights {} to {} were seen", first.1, last.1));
    }
    let (mut sync_us, mut blocks) = (0, 0);
    for record in late() {
        if let Event::Node(NodeEvent::Tally(tally)) = &record.event {
            for (store, syncs) in &tally.syncs {
                // Some of them were timed.
                let timed = tally.latency.get(store).filter(|latency| latency.count > 0);
                sync_us += timed.map_or(0, |latency| latency.sum_us * syncs / latency.count);
            }
            blocks += tally.blocks;
        }
    }
    Ok(Sample {
        blocks_per_s: (last.1 - first.1) as f64 / ((last.0 - first.0) as f64 / 1e6),
        sync_us_per_block: if blocks == 0 { 0.0 } else { sync_us as f64 / blocks as f64 },
    })
}

/// Geometric mean of paired ratios with its 95 % interval.
fn paired(a: &[Sample], b: &[Sample]) -> (f64, f64, f64) {
    let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a.blocks_per_s / b.blocks_per_s).ln()).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = T95[logs.len() - 2] * (variance / n).sqrt();
    (mean.exp(), (mean - half).exp(), (mean + half).exp())
}

fn load_average() -> String {
    std::fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split_whitespace().next().map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned())
}
