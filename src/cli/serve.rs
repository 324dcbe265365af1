//! `midflush serve`: the web page of the runs.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use crate::dashboard::{Dashboard, DashboardError, Options};

use super::runs::ResultsArg;
use super::{CliError, Code};

/// Arguments of `midflush serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Address to listen on; any but 127.0.0.1 and the like needs a token
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8420")]
    listen: SocketAddr,
    #[command(flatten)]
    results: ResultsArg,
    /// File that holds the token which every request must carry (or set MIDFLUSH_TOKEN)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Serves until Ctrl-C or SIGTERM.
pub(super) async fn run(args: Args) -> Result<Code, CliError> {
    let token = token(&args)?;
    let with_token = token.is_some();
    let stop = CancellationToken::new();
    let options = Options { results: args.results.results, listen: args.listen, token };
    let results = options.results.display().to_string();
    let dashboard = Dashboard::bind(options, stop.clone()).await.map_err(|error| match error {
        DashboardError::NeedsToken { .. } => CliError::input(format!("cannot {error}")),
        other => CliError::tool(other),
    })?;
    let address = dashboard.address();
    let hint = if with_token { "?token=..." } else { "" };
    super::tell(format_args!("midflush: results in `{results}` are at http://{address}/{hint} (Ctrl-C ends)"));
    let signal = async {
        asked_to_stop().await;
        stop.cancel();
        // Keeps the branch pending: the server's own end is what finishes.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = dashboard.serve() => served.map_err(CliError::tool)?,
        () = signal => {}
    }
    Ok(Code::Ok)
}

/// The token, from a file or the environment; never from the command line, which others on the machine can read.
fn token(args: &Args) -> Result<Option<String>, CliError> {
    let text = match &args.token_file {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|e| CliError::input(format!("failed to read the token in `{}`: {e}", path.display())))?,
        None => std::env::var("MIDFLUSH_TOKEN").unwrap_or_default(),
    };
    let token = text.trim();
    if token.is_empty() {
        return if args.token_file.is_some() { Err(CliError::input("the token file is empty")) } else { Ok(None) };
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
    if token.len() < 16 || !token.chars().all(plain) {
        return Err(CliError::input("a token is at least 16 letters, digits, `-`, `_`, `.` or `~`"));
    }
    Ok(Some(token.to_owned()))
}

async fn asked_to_stop() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without a handler Ctrl-C ends the process by itself.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
