//! The command line: one file a subcommand; the only place that prints, and the only one that names concrete
//! engines and chains.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Kills BFT nodes in the middle of a flush and judges what comes back.
#[derive(Debug, Parser)]
#[command(name = "midflush", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

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

/// Parses the arguments and runs the command.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result: Result<Code, CliError> = match cli.command {};
    match result {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("{error}");
            error.code.into()
        }
    }
}
