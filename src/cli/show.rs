//! `midflush show RUN`: what a run's end looked like, made again from its timeline.

use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::time::Duration;

use crate::judge::Judgement;
use crate::report::RunReport;
use crate::report::terminal::Style;
use crate::results::{FindError, Index, RunState, RunSummary, TimelineFollower, summarise};

use super::live::LiveDisplay;
use super::runs::ResultsArg;
use super::{CliError, Code, judge, say};

/// Records read at once.
const BATCH: usize = 4096;
/// Time between two looks at a timeline that grows.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Arguments of `midflush show`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Run id, the beginning of one, or `last`
    run: String,
    #[command(flatten)]
    results: ResultsArg,
    /// Print exactly one JSON object on stdout
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown, for a pull request or the summary of a job
    #[arg(long)]
    markdown: bool,
    /// While the run goes on, show it live, and its end when it comes
    #[arg(long)]
    follow: bool,
}

/// Reads the run's timeline, judges it and prints it as `run` does.
pub(super) fn run(args: &Args) -> Result<Code, CliError> {
    let mut index = Index::open(&args.results.results).map_err(CliError::tool)?;
    let summary = index.find(&args.run).map_err(|error| match error {
        FindError::Results(error) => CliError::tool(error),
        wrong => CliError::input(wrong),
    })?;
    let mut report = RunReport::default();
    let mut follower = TimelineFollower::new(&summary.folder);
    take_in(&mut report, &mut follower, None)?;
    let mut state = summary.state;
    if args.follow && state == RunState::Running {
        state = follow(&summary, &mut report, &mut follower)?;
    }
    let judgement = report.judgement(&summary.folder.display().to_string());
    if args.json {
        say(format!("{}\n", judge::to_json(&judgement)?));
        return Ok(judge::code(&judgement));
    }
    if args.markdown {
        say(report.markdown(&judgement));
        return Ok(judge::code(&judgement));
    }
    if matches!(state, RunState::Running | RunState::ControllerGone) {
        say(format!("{} is {}; as far as it has come:\n\n", summary.run, state.words()));
    }
    print_end(&report, &judgement);
    Ok(judge::code(&judgement))
}

/// Prints the end of a run on stdout, with colours where people see it.
pub(crate) fn print_end(report: &RunReport, judgement: &Judgement) {
    say(report.terminal(judgement, &Style { colour: colour() }));
}

/// Colours are for terminals, and for those who do not refuse them.
fn colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stdout().is_terminal() && !refused
}

fn take_in(
    report: &mut RunReport,
    follower: &mut TimelineFollower,
    mut display: Option<&mut LiveDisplay>,
) -> Result<(), CliError> {
    loop {
        let records = follower.next(BATCH).map_err(CliError::tool)?;
        if records.is_empty() {
            return Ok(());
        }
        for record in &records {
            report.push(record);
            if let Some(display) = display.as_deref_mut() {
                display.apply(record);
            }
        }
    }
}

/// Shows what comes until the run is over or its controller is gone.
fn follow(summary: &RunSummary, report: &mut RunReport, follower: &mut TimelineFollower) -> Result<RunState, CliError> {
    let mut display = LiveDisplay::new();
    catch_up(&summary.folder, &mut display)?;
    loop {
        let state = summarise(&summary.folder).state;
        take_in(report, follower, Some(&mut display))?;
        if state.is_final() {
            return Ok(state);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The display has to know the nodes before it can show what they do.
fn catch_up(folder: &Path, display: &mut LiveDisplay) -> Result<(), CliError> {
    for record in TimelineFollower::new(folder).next(2).map_err(CliError::tool)? {
        display.apply(&record);
    }
    Ok(())
}
