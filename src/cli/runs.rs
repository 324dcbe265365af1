//! `midflush runs`: the runs below a folder of results.

use std::path::PathBuf;

use crate::report::words;
use crate::results::{DEFAULT_RESULTS, Index, RunState, RunSummary};

use super::{CliError, Code, say};

/// Where results lie.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ResultsArg {
    /// Folder of results
    #[arg(long, env = "MIDFLUSH_RESULTS", value_name = "DIR", default_value = DEFAULT_RESULTS)]
    pub(crate) results: PathBuf,
}

impl ResultsArg {
    /// A folder that cannot be made there is wrong input, and nothing was created; a full disk is the machine's.
    pub(crate) fn refused(&self, error: impl std::fmt::Display, disk_full: bool) -> CliError {
        if disk_full {
            return CliError::tool(error);
        }
        CliError::input(format!(
            "failed to {error}; name another folder than `{}` with `--results`",
            self.results.display()
        ))
    }

    /// How it is given again, where it is not the folder that is taken without it.
    pub(crate) fn again(&self) -> Option<String> {
        let other = self.results.as_os_str() != DEFAULT_RESULTS;
        other.then(|| format!("--results {}", words::quoted(&self.results.display().to_string())))
    }
}

/// Arguments of `midflush runs`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    results: ResultsArg,
    /// Print exactly one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Prints the list, newest first.
pub(super) fn run(args: &Args) -> Result<Code, CliError> {
    let results = &args.results.results;
    let runs = Index::open(results).and_then(|mut index| index.runs()).map_err(CliError::tool)?;
    if args.json {
        say(format!("{}\n", serde_json::json!({"version": 1, "results": results, "runs": runs})));
    } else if runs.is_empty() {
        super::tell(format_args!("no runs in `{}`", results.display()));
    } else {
        say(table(&runs));
    }
    Ok(Code::Ok)
}

fn table(runs: &[RunSummary]) -> String {
    let width = runs.iter().map(|r| r.run.len()).max().unwrap_or(0).max(3);
    let mut text = format!(
        "{:<width$}  {:<20}  {:<18}  {:>6}  {:>9}  {}\n",
        "run", "started", "topology", "nodes", "faults", "verdict"
    );
    for run in runs {
        let verdict = match (&run.verdict, run.state) {
            (Some(verdict), RunState::Ended) => verdict.clone(),
            (Some(verdict), state) => format!("{verdict}, {}", state.words()),
            (None, RunState::Ended) => "not judged".to_owned(),
            (None, state) => state.words().to_owned(),
        };
        // To the second; the zone is in the text.
        let started = run.started.split_once('.').map_or_else(|| run.started.clone(), |(s, _)| format!("{s}Z"));
        let faults = if run.verdict.is_some() {
            format!("{}/{}", run.faults_proven, run.faults)
        } else {
            run.faults.to_string()
        };
        let topology = words::cut(&run.topology, 18);
        text.push_str(&format!(
            "{:<width$}  {started:<20}  {topology:<18}  {:>6}  {faults:>9}  {verdict}\n",
            run.run, run.nodes
        ));
    }
    text
}
