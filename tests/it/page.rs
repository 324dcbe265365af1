//! The page of a run in a real browser, while a real run goes on.
//!
//! It needs Debian's `chromium` and `chromium-driver`. A machine without them says so; with `MIDFLUSH_REQUIRE_BROWSER=1`
//! the test fails there instead.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use midflush::dashboard::{Dashboard, Options};
use midflush::results::Index;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Time for the whole run on a machine that is busy with other tests.
const RUN_WITHIN: Duration = Duration::from_secs(240);
/// Time for a program to start.
const START_WITHIN: Duration = Duration::from_secs(60);
/// Time between two looks at the page.
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// What a person sees, asked from the page itself.
const LOOK: &str = r##"
return {
  state: document.getElementById("run")?.dataset.state ?? null,
  verdict: document.getElementById("verdict-name")?.textContent ?? null,
  heights: Object.fromEntries([...document.querySelectorAll("tr[data-node]")].map((r) => [r.dataset.node, Number(r.dataset.height || 0)])),
  faults: Object.fromEntries([...document.querySelectorAll("tr[data-fault]")].map((r) => [r.dataset.fault, r.dataset.stage])),
  lines: document.querySelectorAll("#chart .scatterlayer .trace .lines path").length,
  marks: document.querySelectorAll("#chart .scatterlayer .trace .points path").length,
  again: document.getElementById("again")?.textContent ?? "",
};
"##;

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A driver and its browser, both gone when this is dropped.
struct Browser {
    client: Client,
    _driver: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    async fn start(driver: &Path, chromium: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(driver)
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the driver starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let port = timeout(START_WITHIN, async {
            loop {
                let line = lines.next_line().await.expect("text").expect("the driver says its port before it ends");
                if let Some((_, rest)) = line.split_once("successfully on port ") {
                    break rest.trim_end_matches('.').parse::<u16>().expect("a port");
                }
            }
        });
        let port = port.await.expect("the driver starts in time");
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,1600",
        ];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let options = json!({"goog:chromeOptions": {"binary": chromium, "args": arguments}});
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(options.as_object().expect("an object").clone());
        let client = builder.connect(&format!("http://127.0.0.1:{port}")).await.expect("a browser");
        Self { client, _driver: child, _profile: profile }
    }

    async fn look(&self) -> Value {
        self.client.execute(LOOK, Vec::new()).await.expect("the page answers")
    }
}

/// What was seen over the time that the page showed the run as live.
#[derive(Debug, Default)]
struct Seen {
    validator: BTreeSet<u64>,
    late: BTreeSet<u64>,
    landed: BTreeSet<String>,
    lines: u64,
}

impl Seen {
    fn take(&mut self, look: &Value) {
        self.validator.extend(look["heights"]["val-1"].as_u64());
        self.late.extend(look["heights"]["late"].as_u64());
        self.lines = self.lines.max(look["lines"].as_u64().unwrap_or(0));
        for (fault, stage) in look["faults"].as_object().into_iter().flatten() {
            if stage == "landed" {
                self.landed.insert(fault.clone());
            }
        }
    }
}

async fn first_run(results: &Path) -> String {
    let deadline = Instant::now() + START_WITHIN;
    loop {
        let runs = Index::open(results).and_then(|mut index| index.runs()).expect("a list");
        if let Some(run) = runs.first() {
            return run.run.clone();
        }
        assert!(Instant::now() < deadline, "the run begins in time");
        sleep(LOOK_EVERY).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_follows_a_run_to_its_verdict() {
    let (Some(driver), Some(chromium)) = (find("chromedriver"), find("chromium")) else {
        assert!(
            std::env::var_os("MIDFLUSH_REQUIRE_BROWSER").is_none_or(|v| v != "1"),
            "chromium and chromedriver are required and not there"
        );
        eprintln!("NOT RUN: chromium and chromedriver are not on this machine");
        return;
    };
    let results = tempfile::tempdir().expect("a folder");
    let stop = CancellationToken::new();
    let options = Options { results: results.path().to_owned(), listen: "127.0.0.1:0".parse().unwrap(), token: None };
    let dashboard = Dashboard::bind(options, stop.clone()).await.unwrap();
    let base = format!("http://{}", dashboard.address());
    let serving = tokio::spawn(dashboard.serve());
    let browser = Browser::start(&driver, &chromium).await;

    let topology = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/quickstart.yaml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_midflush"));
    command.arg("run").arg(topology).args(["--engine", "process", "--json", "--results"]).arg(results.path());
    let run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let run = run.spawn().unwrap();

    let id = first_run(results.path()).await;
    browser.client.goto(&format!("{base}/runs/{id}")).await.unwrap();
    let mut seen = Seen::default();
    let deadline = Instant::now() + RUN_WITHIN;
    let last = loop {
        let look = browser.look().await;
        if look["state"] == "over" {
            break look;
        }
        seen.take(&look);
        assert!(Instant::now() < deadline, "the run ends in time; last seen {look}");
        sleep(LOOK_EVERY).await;
    };
    let printed = timeout(START_WITHIN, run.wait_with_output()).await.expect("the run ends with its page").unwrap();
    let printed: Value = serde_json::from_slice(&printed.stdout).expect("one object on stdout");

    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/browser");
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::write(kept.join("run.png"), browser.client.screenshot().await.unwrap()).unwrap();

    assert!(seen.validator.len() > 3, "a validator's height moves on the page: {seen:?}");
    assert!(seen.late.len() > 3, "the late node's height moves on the page: {seen:?}");
    assert!(seen.lines >= 5, "a line a node is drawn while the run goes on: {seen:?}");
    let faults = printed["faults"].as_array().unwrap();
    for fault in faults.iter().filter(|f| !f["landed"].is_null()) {
        let name = fault["name"].as_str().unwrap();
        assert!(seen.landed.contains(name), "`{name}` appears while the run goes on: {seen:?}");
    }
    assert_eq!(last["marks"], faults.iter().filter(|f| !f["landed"].is_null()).count(), "{last}");
    assert_eq!(last["verdict"], printed["verdict"], "the page and the command say the same");
    assert!(last["again"].as_str().unwrap().contains("midflush run"), "{last}");

    browser.client.clone().close().await.unwrap();
    stop.cancel();
    serving.await.unwrap().unwrap();
}
