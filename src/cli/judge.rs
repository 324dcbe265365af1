//! `midflush judge FILE`: the verdict of a stored timeline, and how a judgement reads on a terminal.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::judge::{FaultRow, Finding, Judge, Judgement, Outcome, judge_observation};
use crate::timeline::{ReadError, Reader};

use super::{CliError, Code};

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
    let mut judgement = judge_file(&path)?;
    judgement.results = path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    if args.json {
        println!("{}", to_json(&judgement)?);
    } else {
        print!("{}", render(&judgement));
    }
    Ok(code(&judgement))
}

fn judge_file(path: &Path) -> Result<Judgement, CliError> {
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
    judge_observation(&text).map_err(|e| CliError::input(format!("failed to read `{}`: {e}", path.display())))
}

/// A timeline by its name, or by its first line, which holds one whole record.
fn is_timeline(path: &Path, begin: &[u8]) -> bool {
    let named = path.extension().is_some_and(|e| e == "ndjson");
    named || begin.trim_ascii_start().starts_with(b"{\"seq\":")
}

/// The judgement of a timeline; a torn last line is said on stderr.
fn judge_timeline(input: impl BufRead) -> Result<Judgement, ReadError> {
    let mut reader = Reader::new(input);
    let mut judge = Judge::new();
    for record in reader.by_ref() {
        judge.push(&record?);
    }
    if let Some(torn) = reader.torn() {
        eprintln!("midflush: line {} is torn after {} bytes and was left out", torn.line, torn.bytes);
    }
    Ok(judge.judgement())
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

/// The judgement for people: verdict first, then findings, faults, nodes, notes.
pub(crate) fn render(judgement: &Judgement) -> String {
    let mut out = format!("{}\n", judgement.verdict);
    for finding in &judgement.findings {
        render_finding(&mut out, finding);
    }
    if !judgement.faults.is_empty() {
        out.push_str("\nfaults\n");
        for row in &judgement.faults {
            render_fault(&mut out, row);
        }
    }
    if !judgement.nodes.is_empty() {
        out.push_str("\nnodes\n");
    }
    for node in &judgement.nodes {
        let height = node.height.map_or_else(|| "?".to_owned(), |h| h.to_string());
        let _ = writeln!(
            out,
            "  {}: {}, height {height}, app/state/store {}, {} starts",
            node.name, node.verdict, node.heights, node.starts
        );
    }
    let _ = writeln!(
        out,
        "\n{} heights compared, {} distinct app hashes",
        judgement.heights_compared, judgement.distinct_app_hashes
    );
    for note in &judgement.notes {
        let node = note.node.as_deref().map(|n| format!("{n}: ")).unwrap_or_default();
        let _ = writeln!(out, "note ({}): {node}{}", note.kind, note.detail);
    }
    out
}

fn render_finding(out: &mut String, finding: &Finding) {
    let node = finding.node.as_deref().map(|n| format!(" {n}")).unwrap_or_default();
    let height = finding.height.map(|h| format!(" at {h}")).unwrap_or_default();
    let _ = writeln!(out, "\n{}{node}{height}: {}", finding.verdict, finding.detail);
    let _ = writeln!(out, "  why:  {}", finding.why);
    let _ = writeln!(out, "  next: {}", finding.next);
    if !finding.evidence.is_empty() {
        let seqs: Vec<String> = finding.evidence.iter().map(u64::to_string).collect();
        let _ = writeln!(out, "  evidence: records {}", seqs.join(", "));
    }
    for consequence in &finding.consequences {
        let node = consequence.node.as_deref().map(|n| format!(" {n}")).unwrap_or_default();
        let _ = writeln!(out, "  follows: {}{node}: {}", consequence.verdict, consequence.detail);
    }
}

fn render_fault(out: &mut String, row: &FaultRow) {
    let _ = write!(out, "  {} ({}): {:?} {}", row.name, row.occurrence, row.kind, row.node);
    match (&row.landed, &row.asked) {
        (Some(landed), _) => {
            let _ = write!(out, " at {landed} (window {})", landed.window);
        }
        (None, Some(asked)) => {
            let _ = write!(out, ", asked for {asked}");
        }
        (None, None) => {
            let _ = write!(out, ", {}", row.when);
        }
    }
    if let Some(after) = row.after {
        let _ = write!(out, ", left {after}");
    }
    let ms = |what: &str, ms: Option<u64>| ms.map(|ms| format!(", {what} {ms} ms")).unwrap_or_default();
    let replayed = row.replayed.map(|n| format!(", replayed {n}")).unwrap_or_default();
    let _ = write!(out, "{}{replayed}{}", ms("down", row.down_ms), ms("caught up in", row.caught_up_ms));
    let _ = match &row.why_unproven {
        None => writeln!(out, ": proven"),
        Some(why) => writeln!(out, ": NOT PROVEN, {why}"),
    };
}
