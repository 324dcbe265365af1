//! The JSON interface, and the files of a run as they lie in its folder.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::report::RunReport;
use crate::results::{Document, TIMELINE, TimelineFollower};

use super::App;
use super::pages::Problem;
use super::series::Series;
use super::view::{self, RunView};

/// Records read at once.
const BATCH: usize = 4096;
/// Largest file that is handed out, in bytes.
const FILE_MAX: u64 = 256 << 20;

/// A run with its heights over time.
#[derive(Serialize)]
pub(super) struct Whole {
    #[serde(rename = "summary")]
    view: RunView,
    series: Series,
}

/// A run as far as its timeline has been read.
struct Reading {
    report: RunReport,
    series: Series,
}

impl Reading {
    /// Reads the whole timeline.
    fn of(folder: &std::path::Path) -> Result<Self, Problem> {
        let mut follower = TimelineFollower::new(folder);
        let mut reading = Self { report: RunReport::default(), series: Series::default() };
        loop {
            let records = follower.next(BATCH)?;
            if records.is_empty() {
                return Ok(reading);
            }
            for record in &records {
                reading.report.push(record);
                reading.series.apply(record);
            }
        }
    }
}

/// `GET /api/runs`.
pub(super) async fn runs(State(app): State<App>) -> Response {
    match app.with_index(|index| index.runs().map_err(Problem::from)).await {
        Ok(runs) => Json(serde_json::json!({"version": 1, "runs": runs})).into_response(),
        Err(problem) => problem.json(),
    }
}

/// `GET /api/runs/{id}`.
pub(super) async fn run(State(app): State<App>, Path(id): Path<String>) -> Response {
    match whole(&app, id).await {
        Ok(whole) => ([(header::CACHE_CONTROL, "no-store")], Json(whole)).into_response(),
        Err(problem) => problem.json(),
    }
}

async fn whole(app: &App, id: String) -> Result<Whole, Problem> {
    let summary = app.find(id).await?;
    super::blocking(move || {
        let Reading { report, series } = Reading::of(&summary.folder)?;
        Ok(Whole { view: view::run(&summary, &report), series })
    })
    .await
}

/// `GET /api/runs/{id}/files/{name}`: the timeline and the documents.
pub(super) async fn file(
    State(app): State<App>,
    Path((id, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let known = [Document::Plan, Document::Binding, Document::Verdict].map(Document::file_name);
    if name != TIMELINE && name != "topology.yaml" && !known.contains(&name.as_str()) {
        return Err(Problem::new(StatusCode::NOT_FOUND, "a run folder has no such file"));
    }
    let summary = app.find(id).await?;
    plain(summary.folder.join(name)).await
}

/// `GET /api/runs/{id}/logs/{node}/{start}`: the captured output of one start.
pub(super) async fn log(
    State(app): State<App>,
    Path((id, node, start)): Path<(String, String, u32)>,
) -> Result<Response, Problem> {
    let summary = app.find(id).await?;
    // Only names of planned nodes become paths.
    let folder = summary.folder.clone();
    let reading = super::blocking(move || Reading::of(&summary.folder)).await?;
    if !reading.report.state.nodes.contains_key(&node) || node.contains(['/', '\\']) {
        return Err(Problem::new(StatusCode::NOT_FOUND, "the run has no such node"));
    }
    plain(folder.join("logs").join(node).join(format!("start-{start}.log"))).await
}

/// A file as plain text, which no browser takes for a page.
async fn plain(path: std::path::PathBuf) -> Result<Response, Problem> {
    let missing = || Problem::new(StatusCode::NOT_FOUND, "the run folder does not hold this file");
    let length = tokio::fs::metadata(&path).await.map_err(|_| missing())?.len();
    if length > FILE_MAX {
        let why = format!("the file is {length} bytes long: read it at {}", path.display());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, why));
    }
    let bytes = tokio::fs::read(&path).await.map_err(|_| missing())?;
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, bytes).into_response())
}
