//! The web page: a list of runs, and a page a run, live while it runs and the same afterwards.
//!
//! It reads results and writes nothing but their index. Everything that it hands out is in the binary or in the folder of
//! results; it asks nobody else.

mod access;
mod api;
mod assets;
mod events;
mod headers;
mod pages;
mod series;
mod view;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::results::{Index, ResultsError, RunSummary};

use access::Access;
use pages::Problem;

/// Most pages that follow runs at once.
const STREAMS_MAX: usize = 64;
/// Time that open answers get when the page is stopped.
const DRAIN: Duration = Duration::from_secs(5);

/// What to serve, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder of results.
    pub results: PathBuf,
    /// Address to listen on; any but a loopback address needs a token.
    pub listen: SocketAddr,
    /// Token that every request must carry.
    pub token: Option<String>,
}

/// The page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// Everyone who reaches the machine would see the results.
    #[error("listen on {listen} without a token: set MIDFLUSH_TOKEN or --token-file, or listen on 127.0.0.1")]
    NeedsToken {
        /// The address asked for.
        listen: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("listen on {listen}: {source}")]
    Listen {
        /// The address asked for.
        listen: SocketAddr,
        /// Cause.
        source: std::io::Error,
    },
    /// The folder of results cannot be read.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The server failed.
    #[error("serve the page: {0}")]
    Serve(std::io::Error),
}

/// A page that listens and is not yet served.
#[derive(Debug)]
pub struct Dashboard {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    stop: CancellationToken,
}

/// What every handler shares.
#[derive(Clone)]
struct App(Arc<Shared>);

struct Shared {
    results: PathBuf,
    index: Mutex<Index>,
    streams: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Dashboard {
    /// Binds the address. Cancelling `stop` ends the page in order.
    pub async fn bind(options: Options, stop: CancellationToken) -> Result<Self, DashboardError> {
        let listen = options.listen;
        let access = Access::new(options.token.as_deref());
        if !access.allows_listening(listen) {
            return Err(DashboardError::NeedsToken { listen });
        }
        let router = router(&options.results, access, stop.clone())?;
        let bound = async {
            let listener = TcpListener::bind(listen).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bound.await.map_err(|source| DashboardError::Listen { listen, source })?;
        Ok(Self { listener, address, router, stop })
    }

    /// The address that is listened on, with the port that the system chose if it was asked to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until stopped. Streams end at once; other answers get a few seconds.
    pub async fn serve(self) -> Result<(), DashboardError> {
        let stop = self.stop.clone();
        let server =
            axum::serve(self.listener, self.router).with_graceful_shutdown(async move { stop.cancelled().await });
        let late = async {
            self.stop.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            served = server => served.map_err(DashboardError::Serve),
            () = late => Ok(()),
        }
    }
}

fn router(results: &Path, access: Access, stop: CancellationToken) -> Result<Router, ResultsError> {
    let shared = Shared {
        results: results.to_owned(),
        index: Mutex::new(Index::open(results)?),
        streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        stop,
    };
    let router = Router::new()
        .route("/", get(pages::runs))
        .route("/runs/{id}", get(pages::run))
        .route("/runs/{id}/events", get(events::events))
        .route("/api/runs", get(api::runs))
        .route("/api/runs/{id}", get(api::run))
        .route("/api/runs/{id}/files/{name}", get(api::file))
        .route("/api/runs/{id}/logs/{node}/{start}", get(api::log))
        .route("/assets/{name}", get(assets::get))
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(|| async { Problem::new(axum::http::StatusCode::NOT_FOUND, "there is no such page") })
        .layer(axum::middleware::from_fn_with_state(access, access::check))
        .with_state(App(Arc::new(shared)));
    Ok(headers::layered(router))
}

impl App {
    fn results(&self) -> &Path {
        &self.0.results
    }

    fn streams(&self) -> Arc<Semaphore> {
        Arc::clone(&self.0.streams)
    }

    async fn with_index<T: Send + 'static>(&self, ask: impl FnOnce(&mut Index) -> T + Send + 'static) -> T {
        let shared = Arc::clone(&self.0);
        // A panic while the index was held leaves nothing half done in it: its changes are transactions.
        blocking(move || ask(&mut shared.index.lock().unwrap_or_else(PoisonError::into_inner))).await
    }

    async fn find(&self, id: String) -> Result<RunSummary, Problem> {
        Ok(self.with_index(move |index| index.find(&id)).await?)
    }
}

/// Runs what reads files on a thread that may wait.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
