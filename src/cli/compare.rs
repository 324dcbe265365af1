//! `midflush compare`: two stored benches against each other.

use std::path::PathBuf;

use serde_json::json;

use super::runs::ResultsArg;
use super::{CliError, Code, say};
use crate::bench::compare::{Comparison, compare};
use crate::bench::result::BenchResult;
use crate::bench::store;

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The first bench: its folder, its bench.json, or its id below the folder of results
    a: PathBuf,
    /// The second one, which is told relative to the first
    b: PathBuf,
    #[command(flatten)]
    results: ResultsArg,
    /// Compare although the setups differ
    #[arg(long)]
    anyway: bool,
    /// Print exactly one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Compares and prints.
pub(crate) fn run(args: &Args) -> Result<Code, CliError> {
    let (a, b) = (load(args, &args.a)?, load(args, &args.b)?);
    let comparison = compare(&a, &b);
    if args.json {
        say(format!("{}\n", object(&comparison)));
    } else {
        say(comparison.text(&a, &b, args.anyway));
    }
    // What was not compared is no pass.
    Ok(if comparison.differs.is_empty() || args.anyway { Code::Ok } else { Code::Tool })
}

fn load(args: &Args, given: &PathBuf) -> Result<BenchResult, CliError> {
    let below = args.results.results.join("benches").join(given);
    store::load(if given.exists() { given } else { &below }).map_err(CliError::input)
}

fn object(of: &Comparison) -> serde_json::Value {
    let pairs = of.pairs.iter().map(|pair| {
        let (ratio, lo, hi) = (pair.ratio.map(|r| r.value), pair.ratio.map(|r| r.lo), pair.ratio.map(|r| r.hi));
        json!({ "cell": pair.label, "ratio": ratio, "lo": lo, "hi": hi, "verdict": pair.verdict })
    });
    json!({ "version": 1, "differs": of.differs, "ratios": pairs.collect::<Vec<_>>(), "alone": of.alone })
}
