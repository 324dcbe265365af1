//! The HTML pages, and how a problem is told.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};

use crate::results::{FindError, ResultsError, RunState, RunSummary};

use super::{App, assets};

/// Something that is told instead of an answer, as a page or as JSON.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    what: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, what: impl Into<String>) -> Self {
        Self { status, what: what.into() }
    }

    /// As JSON.
    pub(super) fn json(self) -> Response {
        (self.status, axum::Json(serde_json::json!({"error": self.what}))).into_response()
    }
}

impl From<ResultsError> for Problem {
    fn from(error: ResultsError) -> Self {
        tracing::warn!(%error, "results cannot be read");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("failed to {error}"))
    }
}

impl From<FindError> for Problem {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Results(error) => error.into(),
            FindError::Unknown { wanted, .. } => {
                Self::new(StatusCode::NOT_FOUND, format!("there is no run `{wanted}`"))
            }
            ambiguous @ FindError::Ambiguous { .. } => Self::new(StatusCode::NOT_FOUND, ambiguous.to_string()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Problem");
        let page = ProblemPage { style: assets::address("style.css"), title, what: &self.what };
        let mut response = html(&page);
        *response.status_mut() = self.status;
        response
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    style: String,
    title: &'a str,
    what: &'a str,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    style: String,
    script: String,
    results: String,
    runs: Vec<RunLine>,
}

/// One line of the list.
struct RunLine {
    run: String,
    topology: String,
    engine: String,
    seed: u64,
    started: String,
    nodes: u64,
    faults: String,
    duration: String,
    verdict: String,
    class: &'static str,
    why: String,
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    style: String,
    script: String,
    chart: String,
    plotly: String,
    run: String,
    topology: String,
}

fn html(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => ([(header::CACHE_CONTROL, "no-store")], Html(text)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// `GET /`.
pub(super) async fn runs(State(app): State<App>) -> Result<Response, Problem> {
    let runs = app.with_index(|index| index.runs().map_err(Problem::from)).await?;
    let page = RunsPage {
        style: assets::address("style.css"),
        script: assets::address("runs.js"),
        results: app.results().display().to_string(),
        runs: runs.into_iter().map(line).collect(),
    };
    Ok(html(&page))
}

fn line(run: RunSummary) -> RunLine {
    let parsed: Option<crate::judge::Verdict> =
        run.verdict.as_ref().and_then(|v| serde_json::from_value(serde_json::Value::from(v.as_str())).ok());
    let class = match (run.state, parsed) {
        (RunState::Running, _) => "live",
        (_, Some(verdict)) => super::view::class(verdict),
        _ => "unsure",
    };
    let faults = if run.verdict.is_some() {
        format!("{} of {} proven", run.faults_proven, run.faults)
    } else {
        run.faults.to_string()
    };
    RunLine {
        faults,
        class,
        verdict: run.verdict.unwrap_or_else(|| match run.state {
            RunState::Ended => "not judged".to_owned(),
            state => state.words().to_owned(),
        }),
        why: run.why.unwrap_or_default(),
        duration: crate::report::words::duration(run.duration_ms * 1000),
        run: run.run,
        topology: run.topology,
        engine: run.engine,
        seed: run.seed,
        started: run.started,
        nodes: run.nodes,
    }
}

/// `GET /runs/{id}`.
pub(super) async fn run(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let summary = app.find(id).await?;
    let page = RunPage {
        style: assets::address("style.css"),
        script: assets::address("run.js"),
        chart: assets::address("chart.js"),
        plotly: assets::address("plotly.js"),
        run: summary.run,
        topology: summary.topology,
    };
    Ok(html(&page))
}
