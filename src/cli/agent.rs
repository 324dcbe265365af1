//! `midflush agent`: the first process beside a node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{CliError, Code};
use crate::agent::{Supervisor, serve};

/// Arguments of `agent`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,

    /// The node's home, an existing folder
    #[arg(long, value_name = "DIR")]
    home: PathBuf,

    /// File with the token that every request must show
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// The token itself; in the environment, since arguments can be read by every user
    #[arg(long, env = "MIDFLUSH_TOKEN", hide_env_values = true, hide = true)]
    token: Option<String>,

    /// Run that this agent belongs to; only shown, so that it can be found again
    #[arg(long)]
    run: Option<String>,

    /// Node that this agent holds; only shown
    #[arg(long)]
    node: Option<String>,
}

/// Runs the command until SIGTERM or SIGINT; then the node is killed first.
pub(crate) async fn run(args: Args) -> Result<Code, CliError> {
    let token = token(&args)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::tool)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::tool)?;
    let supervisor = Arc::new(Supervisor::new(&args.home).map_err(CliError::tool)?);
    let listener =
        TcpListener::bind(args.listen).await.map_err(|e| CliError::tool(format!("listen on {}: {e}", args.listen)))?;
    let address = listener.local_addr().map_err(CliError::tool)?;
    let (run, node) = (args.run.as_deref().unwrap_or("-"), args.node.as_deref().unwrap_or("-"));
    println!("midflush agent listens on {address}, run {run}, node {node}");
    let ending = CancellationToken::new();
    let serving = serve(listener, Arc::clone(&supervisor), &token, ending.clone());
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => return served.map(|()| Code::Ok).map_err(CliError::tool),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    let ended = tokio::task::spawn_blocking(move || supervisor.shut_down()).await;
    ended.map_err(|e| CliError::tool(format!("end the node: {e}")))?;
    ending.cancel();
    // Connections that are kept open by a client end with the process.
    let _still_open = tokio::time::timeout(std::time::Duration::from_secs(1), serving).await;
    Ok(Code::Ok)
}

fn token(args: &Args) -> Result<String, CliError> {
    let token = match (&args.token_file, &args.token) {
        (Some(file), _) => std::fs::read_to_string(file)
            .map_err(|e| CliError::input(format!("the token file {} cannot be read: {e}", file.display())))?,
        (None, Some(token)) => token.clone(),
        (None, None) => return Err(CliError::input("a token is needed: --token-file or MIDFLUSH_TOKEN")),
    };
    let token = token.trim().to_owned();
    if token.is_empty() { Err(CliError::input("the token is empty")) } else { Ok(token) }
}
