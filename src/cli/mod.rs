//! The command line: one file a subcommand; the only place that prints, and the only one that names concrete
//! engines and chains.

mod agent;
mod bench;
mod chains;
mod check;
mod clean;
mod compare;
mod engines;
mod image;
mod judge;
mod live;
mod node;
mod observe;
mod program;
mod room;
mod run;
mod runs;
mod serve;
mod show;
mod topology;

use std::future::Future;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, Subcommand};

/// Kills BFT nodes in the middle of a flush and judges what comes back.
#[derive(Debug, Parser)]
#[command(name = "midflush", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a topology and judge it
    Run(run::Args),
    /// Hold one node: start it, watch what it makes durable, kill it at an address (run by the engines)
    Agent(agent::Args),
    /// Measure how fast a node catches up, in interleaved rounds of two builds, disks or numbers of peers
    Bench(bench::Args),
    /// Validate a topology and print its plan; needs no engine and creates nothing
    Check(check::Args),
    /// Remove what runs of dead controllers left behind; live runs and other people's things stay
    Clean(clean::Args),
    /// Compare two stored benches
    Compare(compare::Args),
    /// Make the container image of this binary, without a registry
    Image(image::Args),
    /// Judge a stored timeline or an observation file
    Judge(judge::Args),
    /// The built-in reference node, and what is done to its folder off-line
    Node(node::Args),
    /// Run any node binary, watch what it makes durable, and print its stores and the addresses to aim at
    Observe(observe::Args),
    /// List the runs, newest first
    Runs(runs::Args),
    /// Serve the web page of the runs
    Serve(serve::Args),
    /// Show one run again
    Show(show::Args),
}

/// A failure that the user is told about, with the exit code that scripts read.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CliError {
    /// What to print, complete.
    pub message: String,
    /// The exit code.
    pub code: Code,
}

/// Exit codes, the same for every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Done; for a run: converged.
    Ok = 0,
    /// A finding about a node.
    Finding = 1,
    /// Bad input; nothing was created.
    BadInput = 2,
    /// The tool failed, or the run is inconclusive.
    Tool = 3,
    /// Interrupted by the user.
    Interrupted = 130,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

impl CliError {
    /// The tool itself could not do something; `error` is a fragment that reads after "failed to".
    pub(crate) fn tool(error: impl std::fmt::Display) -> Self {
        Self { message: format!("midflush: failed to {error}"), code: Code::Tool }
    }

    /// The input is wrong and nothing was created.
    pub(crate) fn input(message: impl std::fmt::Display) -> Self {
        Self { message: format!("midflush: {message}"), code: Code::BadInput }
    }
}

/// Parses the arguments and runs the command.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // The node writes its own log, and nothing else may stand between its lines.
    match cli.command {
        Command::Node(_) => {}
        // What an agent or the page says of itself is read afterwards; elsewhere people read what commands print.
        Command::Agent(_) | Command::Serve(_) => log_to_stderr("warn"),
        _ => log_to_stderr("off"),
    }
    let result: Result<Code, CliError> = match cli.command {
        Command::Run(args) => block_on(run::run(args)),
        Command::Agent(args) => block_on(agent::run(args)),
        Command::Bench(args) => block_on(bench::run(args)),
        Command::Check(args) => check::run(&args),
        Command::Clean(args) => block_on(clean::run(args)),
        Command::Compare(args) => compare::run(&args),
        Command::Image(args) => block_on(image::run(args)),
        Command::Judge(args) => judge::run(&args),
        Command::Node(args) => node::run(args),
        Command::Observe(args) => block_on(observe::run(args)),
        Command::Runs(args) => runs::run(&args),
        Command::Serve(args) => block_on(serve::run(args)),
        Command::Show(args) => show::run(&args),
    };
    match result {
        Ok(Code::Ok) if PRINTING_FAILED.load(Ordering::Relaxed) => Code::Tool.into(),
        Ok(code) => code.into(),
        Err(error) => {
            tell(&error);
            error.code.into()
        }
    }
}

/// Something that was to be printed on stdout was lost: the command has not done its work.
static PRINTING_FAILED: AtomicBool = AtomicBool::new(false);

/// Prints on stdout. A reader that has gone away, such as `head`, is no failure; any other trouble is told, and becomes the
/// exit code of a command that went well otherwise.
pub(crate) fn say(text: impl std::fmt::Display) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    if let Err(error) = write!(out, "{text}").and_then(|()| out.flush())
        && error.kind() != std::io::ErrorKind::BrokenPipe
        && !PRINTING_FAILED.swap(true, Ordering::Relaxed)
    {
        tell(format_args!("midflush: failed to print: {error}"));
    }
}

/// Prints a line on stderr. Whoever read it may be gone, such as a closed terminal: that must not end a run, which would
/// leave its nodes behind.
pub(crate) fn tell(text: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Runs a command's future on a runtime that ends with it.
pub(crate) fn block_on(command: impl Future<Output = Result<Code, CliError>>) -> Result<Code, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| CliError::tool(format!("start the runtime: {e}")))?;
    runtime.block_on(command)
}

/// Diagnostics of the tool itself go to stderr; `RUST_LOG` says how much, and `usual` where it says nothing.
fn log_to_stderr(usual: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| usual.into());
    let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour).init();
}
