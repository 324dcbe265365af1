//! `GET /runs/{id}/events`: a run as it goes on, as server-sent events.
//!
//! Each `update` carries the whole view without its past, and the points that the chart gains; its id is the sequence
//! number of the last record in it. A browser that comes back with `Last-Event-ID` gets the points after that record. One
//! `end` event closes the stream, when nothing more will come.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use crate::report::RunReport;
use crate::results::{RunSummary, TimelineFollower, summarise};

use super::App;
use super::pages::Problem;
use super::series::{NewPoint, Series};
use super::view::{self, RunView};

/// Records read at once.
const BATCH: usize = 4096;
/// Time between two looks at the timeline, and what each node adds to it, since a view grows with the nodes.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const LOOK_EVERY_NODE: Duration = Duration::from_millis(5);
/// Time between two signs of life on an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Where to go on.
#[derive(Deserialize)]
pub(super) struct After {
    /// Sequence number of the last record that is known.
    after: Option<u64>,
}

#[derive(Serialize)]
struct Update {
    #[serde(rename = "summary")]
    view: RunView,
    points: Vec<NewPoint>,
}

/// One browser's place in one timeline.
struct Place {
    app: App,
    summary: RunSummary,
    report: RunReport,
    series: Series,
    follower: TimelineFollower,
    /// Points of records up to this one are known to the browser.
    known: Option<u64>,
    /// Whether anything has been sent.
    greeted: bool,
    /// Whether the last look found nothing new.
    idle: bool,
    over: bool,
    _permit: OwnedSemaphorePermit,
}

/// Streams a run.
pub(super) async fn events(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(after): Query<After>,
    headers: HeaderMap,
) -> Response {
    let Ok(permit) = app.streams().try_acquire_owned() else {
        let why = "too many pages follow runs; close some";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).json();
    };
    let summary = match app.find(id).await {
        Ok(summary) => summary,
        Err(problem) => return problem.json(),
    };
    let last_id = headers.get("last-event-id").and_then(|v| v.to_str().ok()?.parse().ok());
    let place = Place {
        follower: TimelineFollower::new(&summary.folder),
        summary,
        report: RunReport::default(),
        series: Series::default(),
        known: last_id.or(after.after),
        greeted: false,
        idle: true,
        over: false,
        _permit: permit,
        app,
    };
    Sse::new(follow(place)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

fn follow(place: Place) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(Some(place), |place| async {
        let mut place = place?;
        if place.over {
            return Some((Ok(Event::default().event("end").data("{}")), None));
        }
        if place.greeted && !place.wait().await {
            return None;
        }
        loop {
            let looked = super::blocking(move || {
                let event = place.look();
                (place, event)
            });
            let (back, event) = looked.await;
            place = back;
            match event {
                Ok(Some(event)) => return Some((Ok(event), Some(place))),
                Ok(None) => {}
                Err(problem) => {
                    tracing::warn!(?problem, run = place.summary.run, "a stream ends");
                    return None;
                }
            }
            if !place.wait().await {
                return None;
            }
        }
    })
}

impl Place {
    /// Waits for the next look; false when the page is stopped.
    async fn wait(&self) -> bool {
        let nodes = u32::try_from(self.report.state.nodes.len()).unwrap_or(u32::MAX);
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY + LOOK_EVERY_NODE.saturating_mul(nodes)) => true,
            () = self.app.0.stop.cancelled() => false,
        }
    }

    /// What is new since the last look.
    fn look(&mut self) -> Result<Option<Event>, Problem> {
        // Asked before the read: what is over then is read to its end now. While records come the run goes on.
        let before = self.summary.state;
        if self.idle {
            self.summary = summarise(&self.summary.folder);
        }
        let mut points = Vec::new();
        self.idle = true;
        loop {
            let records = self.follower.next(BATCH)?;
            if records.is_empty() {
                break;
            }
            self.idle = false;
            for record in &records {
                self.report.push(record);
                let point = self.series.apply(record);
                if self.known.is_none_or(|known| record.seq > known) {
                    points.extend(point);
                }
            }
        }
        self.over = self.idle && self.summary.state.is_final();
        if self.idle && self.greeted && self.summary.state == before {
            return Ok(None);
        }
        self.greeted = true;
        let update = Update { view: view::run(&self.summary, &self.report), points };
        let text = serde_json::to_string(&update)
            .map_err(|e| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
        let last = self.report.state.next_seq.saturating_sub(1);
        Ok(Some(Event::default().event("update").id(last.to_string()).data(text)))
    }
}
