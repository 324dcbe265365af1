//! `midflush judge FILE`: the verdict of a stored timeline or of an observation file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::judge::{Judgement, Outcome, judge_observation};
use crate::report::RunReport;
use crate::timeline::{ReadError, Reader};

use super::{CliError, Code, say, show};

/// Arguments of `midflush judge`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A timeline (NDJSON), the folder of a run, or an observation file (YAML or JSON)
    file: PathBuf,
    /// Print exactly one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Reads and judges the file.
pub(super) fn run(args: &Args) -> Result<Code, CliError> {
    let path = if args.file.is_dir() { args.file.join("timeline.ndjson") } else { args.file.clone() };
    let (report, mut judgement) = judge_file(&path)?;
    // An observation file lies in no run's folder.
    if !judgement.run.is_empty() {
        judgement.results = path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    }
    if args.json {
        say(format!("{}\n", to_json(&judgement)?));
    } else {
        show::print_end(&report, &judgement);
    }
    Ok(code(&judgement))
}

/// The judgement, and what else the report shows, which only a timeline tells.
fn judge_file(path: &Path) -> Result<(RunReport, Judgement), CliError> {
    let open = |e| CliError::input(format!("failed to open `{}`: {e}", path.display()));
    let mut input = BufReader::with_capacity(1 << 20, File::open(path).map_err(open)?);
    if is_timeline(path, input.fill_buf().map_err(open)?) {
        return judge_timeline(input).map_err(|error| match error {
            ReadError::Io { .. } => CliError::tool(format!("{error} (`{}`)", path.display())),
            wrong => CliError::input(format!("failed to {wrong} (`{}`)", path.display())),
        });
    }
    let mut text = String::new();
    input.read_to_string(&mut text).map_err(open)?;
    judge_observation(&text)
        .map(|judgement| (RunReport::default(), judgement))
        .map_err(|e| CliError::input(format!("failed to read `{}`: {e}", path.display())))
}

/// A timeline by its name, or by its first line, which holds one whole record.
fn is_timeline(path: &Path, begin: &[u8]) -> bool {
    let named = path.extension().is_some_and(|e| e == "ndjson");
    named || begin.trim_ascii_start().starts_with(b"{\"seq\":")
}

/// The judgement of a timeline; a torn last line is said on stderr.
fn judge_timeline(input: impl BufRead) -> Result<(RunReport, Judgement), ReadError> {
    let mut reader = Reader::new(input);
    let mut report = RunReport::default();
    for record in reader.by_ref() {
        report.push(&record?);
    }
    if let Some(torn) = reader.torn() {
        super::tell(format_args!("midflush: line {} is torn after {} bytes and was left out", torn.line, torn.bytes));
    }
    let judgement = report.judgement("");
    Ok((report, judgement))
}

/// The object that `--json` prints.
pub(crate) fn to_json(judgement: &Judgement) -> Result<String, CliError> {
    serde_json::to_string(judgement).map_err(|e| CliError::tool(format!("write the verdict as JSON: {e}")))
}

/// The exit code of a judgement.
pub(crate) fn code(judgement: &Judgement) -> Code {
    match judgement.outcome() {
        Outcome::Converged => Code::Ok,
        Outcome::Finding => Code::Finding,
        Outcome::Inconclusive => Code::Tool,
        Outcome::Interrupted => Code::Interrupted,
    }
}
