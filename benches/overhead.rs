//! What interception costs: block-sync rate of one node without a filter, under `observe` and under `record`, by `midflush
//! bench`, which interleaves the rounds, voids none, and compares every app hash. Reference node with `deferred` and with
//! `per-block`; CometBFT where `MIDFLUSH_COMETBFT` names its program.
//!
//! `cargo bench --bench overhead -- [ROUNDS] [NAME…]` prints every round and the ratios with 95 % intervals. The nodes' data lie
//! below `TMPDIR`.

use std::path::Path;
use std::process::{Command, ExitCode};

use midflush::bench::result::{BenchResult, CellResult};
use midflush::bench::statistics::ROUNDS_MIN;
use midflush::bench::store;

/// Name, chain, heights and window of each measurement, and settings of every arm.
const MEASURED: [(&str, &str, &str, &str); 3] = [
    (
        "deferred",
        "reference: {}",
        "fixture: { heights: 6000, transactions_per_block: 4 }\nbench: { window: { from: 300, to: 5700 },",
        "storage: deferred, ",
    ),
    (
        "per-block",
        "reference: {}",
        "fixture: { heights: 6000, transactions_per_block: 4 }\nbench: { window: { from: 300, to: 5700 },",
        "storage: per-block, ",
    ),
    (
        "cometbft",
        "cometbft: { app: persistent_kvstore, database: goleveldb, binary: \"BINARY\" }",
        "fixture: { heights: 2000, transactions_per_block: 4 }\nbench: { window: { from: 100, to: 1900 },",
        "",
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let rounds = arguments.iter().find_map(|a| a.parse().ok()).unwrap_or(ROUNDS_MIN).max(ROUNDS_MIN);
    let names: Vec<&String> = arguments.iter().filter(|a| a.parse::<usize>().is_err()).collect();
    let binary = std::env::var("MIDFLUSH_COMETBFT").ok();
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, chain, bench, settings) in MEASURED {
        if !names.is_empty() && !names.iter().any(|wanted| *wanted == name) {
            continue;
        }
        if chain.contains("BINARY") && binary.is_none() {
            println!("{name:>9}  not measured: MIDFLUSH_COMETBFT names no program");
            continue;
        }
        let chain = chain.replace("BINARY", binary.as_deref().unwrap_or_default());
        let arms =
            ["none", "observe", "record"].map(|tier| format!("{tier}: {{ {settings}watch: {tier} }}")).join(", ");
        let text = format!(
            "midflush: 1\nname: {name}\nchain: {{ {chain} }}\n{bench} rounds: {rounds}, arms: {{ {arms} }} }}\n"
        );
        match measure(folder.path(), name, &text) {
            Ok(result) => print(name, &result),
            Err(why) => {
                eprintln!("{name}: {why}");
                return ExitCode::from(3);
            }
        }
    }
    ExitCode::SUCCESS
}

fn measure(folder: &Path, name: &str, text: &str) -> Result<BenchResult, String> {
    let file = folder.join(format!("{name}.yaml"));
    std::fs::write(&file, text).map_err(|e| e.to_string())?;
    let output = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .arg("bench")
        .arg(&file)
        .args(["--engine", "process", "--json", "--results"])
        .arg(folder.join("results"))
        .output()
        .map_err(|e| e.to_string())?;
    // Rates under different interception are never compared in a bench, which says so with code 3: here they are what is asked.
    let failed = |why: String| format!("{}: {why}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| failed(e.to_string()))?;
    let results = told["results"].as_str().ok_or_else(|| failed("no results".to_owned()))?;
    store::load(Path::new(results)).map_err(failed)
}

fn print(name: &str, result: &BenchResult) {
    for cell in &result.cells {
        let rates: Vec<String> = cell.counted().values().map(|rate| format!("{rate:.1}")).collect();
        let loads: Vec<String> = cell.rounds.iter().map(|round| format!("{:.1}", round.load1)).collect();
        println!("{name:>9}  {:<10}  {} blocks/s; load {}", cell.label(), rates.join(" "), loads.join(" "));
        let syncs: Vec<String> = cell.spent.syncs.iter().map(|(store, ms)| format!("{store} {ms:.3}")).collect();
        println!("{name:>9}  {:<10}  ms a block in syncs: {}; {:.2} of CPU", "", syncs.join(", "), cell.spent.cpu);
    }
    if let Some(floor) = result.floor {
        println!("{name:>9}  noise floor [{:.3}, {:.3}]", floor.lo, floor.hi);
    }
    let label = |at: usize| result.cells.get(at).map(CellResult::label).unwrap_or_default();
    for ratio in &result.ratios {
        if let Some(interval) = ratio.ratio {
            let (a, b) = (label(ratio.cells.0), label(ratio.cells.1));
            println!("{name:>9}  {a} / {b}: {:.3}  [{:.3}, {:.3}]", interval.value, interval.lo, interval.hi);
        }
    }
}
