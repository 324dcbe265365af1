//! The page over HTTP, on folders as runs leave them. The browser has its own test.

use std::fs;
use std::path::Path;

use reqwest::StatusCode;
use reqwest::header::{self, HeaderMap};

use super::*;
use crate::results::{RunFolder, TimelineWriter};
use crate::timeline::Record;

fn records() -> Vec<Record> {
    let text = include_str!("../../tests/data/quickstart.ndjson");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn write(results: &Path, run: &str, records: &[Record]) -> (RunFolder, TimelineWriter) {
    let folder = RunFolder::create(results, run).unwrap();
    folder.write_topology("name: quickstart\n").unwrap();
    let mut writer = folder.timeline().unwrap();
    for record in records {
        writer.append(record).unwrap();
    }
    (folder, writer)
}

/// A page that is served until it is dropped.
struct Served {
    base: String,
    client: reqwest::Client,
    stop: CancellationToken,
    task: Option<tokio::task::JoinHandle<Result<(), DashboardError>>>,
}

impl Served {
    async fn start(results: &Path, token: Option<&str>) -> Self {
        let stop = CancellationToken::new();
        let options = Options {
            results: results.to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            token: token.map(str::to_owned),
        };
        let dashboard = Dashboard::bind(options, stop.clone()).await.unwrap();
        let base = format!("http://{}", dashboard.address());
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { base, client, stop, task: Some(tokio::spawn(dashboard.serve())) }
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("{}{path}", self.base))
    }

    async fn text(&self, path: &str) -> (StatusCode, HeaderMap, String) {
        let answer = self.get(path).send().await.unwrap();
        (answer.status(), answer.headers().clone(), answer.text().await.unwrap())
    }

    async fn json(&self, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.text(path).await.2).unwrap()
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.task.take().unwrap().await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_finished_run_is_told_with_verdict_faults_and_heights() {
    let results = tempfile::tempdir().unwrap();
    drop(write(results.path(), "q1", &records()));
    let page = Served::start(results.path(), None).await;

    let list = page.json("/api/runs").await;
    assert_eq!((list["runs"][0]["run"].as_str(), list["runs"][0]["state"].as_str()), (Some("q1"), Some("ended")));
    let run = page.json("/api/runs/q1").await;
    let summary = &run["summary"];
    assert_eq!(summary["verdict"]["name"], "CONVERGED");
    assert_eq!((&summary["verdict"]["class"], &summary["live"]), (&"good".into(), &false.into()));
    assert_eq!(summary["faults"].as_array().unwrap().len(), 4);
    assert!(summary["faults"].as_array().unwrap().iter().all(|f| f["proven"] == true && f["at_ms"].is_u64()));
    let late = run["series"]["nodes"]["late"].as_array().unwrap();
    assert!(late.iter().any(|point| point[1].is_null()), "the line breaks where the node is down");
    assert_eq!(page.text("/api/runs/q1/files/topology.yaml").await.2, "name: quickstart\n");
    page.end().await;
}

#[tokio::test]
async fn what_nodes_wrote_is_never_html() {
    let results = tempfile::tempdir().unwrap();
    let (folder, _) = write(results.path(), "q1", &records());
    folder.write_log("val-2", 1, b"<script>alert(1)</script>\n").unwrap();
    let verdict = serde_json::json!({"verdict": "STUCK", "findings": [{"detail": "<script>alert(2)</script>"}]});
    folder.write(crate::results::Document::Verdict, &verdict).unwrap();
    drop(folder);
    let page = Served::start(results.path(), None).await;

    let (_, _, list) = page.text("/").await;
    assert!(list.contains("alert(2)") && !list.contains("<script>alert"), "{list}");
    let (_, _, run) = page.text("/runs/q1").await;
    assert!(!run.contains("owned"), "node text is not in the page but fetched as JSON");
    let (_, headers, _) = page.text("/api/runs/q1").await;
    assert_eq!(headers[header::CONTENT_TYPE], "application/json");
    let (status, headers, log) = page.text("/api/runs/q1/logs/val-2/1").await;
    assert_eq!((status, log.as_str()), (StatusCode::OK, "<script>alert(1)</script>\n"));
    assert_eq!(headers[header::CONTENT_TYPE], "text/plain; charset=utf-8");
    assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert!(headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().contains("script-src 'self'"));
    page.end().await;
}

#[tokio::test]
async fn a_stream_goes_on_after_the_last_event_id_and_ends_with_the_run() {
    let results = tempfile::tempdir().unwrap();
    let records = records();
    let (folder, mut writer) = write(results.path(), "q1", &records[..200]);
    let page = Served::start(results.path(), None).await;

    let mut stream = page.get("/runs/q1/events").header("last-event-id", "150").send().await.unwrap();
    assert_eq!(stream.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut text = String::new();
    while !text.contains("\n\n") {
        text.push_str(std::str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap());
    }
    assert!(text.contains("id: 199\n") && text.contains("event: update\n"), "{text}");
    let data = text.lines().find_map(|l| l.strip_prefix("data: ")).unwrap();
    let update: serde_json::Value = serde_json::from_str(data).unwrap();
    let first = update["points"][0][1].as_u64().unwrap();
    assert!(first >= records[151].at_us / 1000, "nothing that the browser knows: {first}");
    assert_eq!(update["summary"]["live"], true);

    for record in &records[200..] {
        writer.append(record).unwrap();
    }
    drop((folder, writer));
    // Ends by itself, after the last record.
    while let Some(chunk) = stream.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(text.contains("id: 465\n"), "the last record was told");
    assert!(text.trim_end().ends_with("event: end\ndata: {}"), "{}", &text[text.len().saturating_sub(200)..]);
    page.end().await;
}

#[tokio::test]
async fn stopping_the_page_ends_its_streams() {
    let results = tempfile::tempdir().unwrap();
    let _live = write(results.path(), "q1", &records()[..50]);
    let page = Served::start(results.path(), None).await;
    let mut stream = page.get("/runs/q1/events").send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some());
    page.stop.cancel();
    while stream.chunk().await.is_ok_and(|chunk| chunk.is_some()) {}
    page.end().await;
}

#[tokio::test]
async fn a_token_keeps_others_out() {
    let results = tempfile::tempdir().unwrap();
    drop(write(results.path(), "q1", &records()));
    let page = Served::start(results.path(), Some("a-token-of-some-length")).await;
    for path in ["/", "/api/runs", "/runs/q1/events", "/assets/style.css", "/?token=wrong"] {
        assert_eq!(page.text(path).await.0, StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(page.text("/healthz").await.0, StatusCode::OK);
    let (status, headers, _) = page.text("/runs/q1?token=a-token-of-some-length").await;
    assert_eq!((status, &headers[header::LOCATION]), (StatusCode::SEE_OTHER, &"/runs/q1".parse().unwrap()));
    let cookie = headers[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("HttpOnly"), "{cookie}");
    let with_cookie = page.get("/").header(header::COOKIE, cookie.split(';').next().unwrap()).send().await.unwrap();
    assert_eq!(with_cookie.status(), StatusCode::OK);
    let with_header = page.get("/api/runs").bearer_auth("a-token-of-some-length").send().await.unwrap();
    assert_eq!(with_header.status(), StatusCode::OK);
    page.end().await;
}

#[tokio::test]
async fn a_foreign_name_for_this_machine_is_refused() {
    let results = tempfile::tempdir().unwrap();
    let page = Served::start(results.path(), None).await;
    let answer = page.get("/api/runs").header(header::HOST, "rebound.example").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    page.end().await;
}

#[tokio::test]
async fn everyone_may_not_listen_without_a_token() {
    let options = Options { results: "none".into(), listen: "0.0.0.0:0".parse().unwrap(), token: None };
    let error = Dashboard::bind(options, CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, DashboardError::NeedsToken { .. }), "{error}");
}

#[tokio::test]
async fn assets_are_kept_by_the_browser_and_sent_small() {
    let results = tempfile::tempdir().unwrap();
    let page = Served::start(results.path(), None).await;
    let (_, _, list) = page.text("/").await;
    let style = list.split('"').find(|part| part.starts_with("/assets/style.css?v=")).unwrap();
    let first = page.get(style).header(header::ACCEPT_ENCODING, "gzip").send().await.unwrap();
    assert_eq!(first.headers()[header::CONTENT_ENCODING], "gzip");
    assert!(first.headers()[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"));
    assert!(first.headers().contains_key("x-request-id"));
    let tag = first.headers()[header::ETAG].clone();
    let again = page.get(style).header(header::IF_NONE_MATCH, tag).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(page.text("/assets/../Cargo.toml").await.0, StatusCode::NOT_FOUND);
    page.end().await;
}

#[tokio::test]
async fn paths_lead_nowhere_but_into_run_folders() {
    let results = tempfile::tempdir().unwrap();
    drop(write(results.path(), "q1", &records()));
    fs::write(results.path().join("secret"), "no").unwrap();
    let page = Served::start(results.path(), None).await;
    for path in [
        "/api/runs/q1/files/..%2Fsecret",
        "/api/runs/q1/files/owner.json",
        "/api/runs/q1/logs/..%2F../1",
        "/api/runs/q1/logs/val-1/7",
        "/api/runs/..",
        "/runs/nothing",
    ] {
        assert_eq!(page.text(path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    page.end().await;
}
