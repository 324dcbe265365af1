//! `docker-compose.yml` on the locally made image: the page comes up, published on 127.0.0.1 alone, demands its token, and
//! shows runs of the machine outside as what they are. Without Docker or docker-compose the test says so and passes,
//! unless `MIDFLUSH_REQUIRE_DOCKER=1` demands them.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use midflush::results::RunFolder;
use serde_json::Value;
use tokio::time::{Instant, sleep};

const TOKEN: &str = "a-token-for-this-test-alone";
/// Time for the page to answer once its container was created.
const UP_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One compose project, taken down when this is dropped.
struct Project {
    name: String,
    port: u16,
    results: PathBuf,
}

impl Project {
    fn compose(&self, arguments: &[&str]) -> Output {
        Command::new("docker-compose")
            .args(["-p", &self.name, "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/docker-compose.yml")])
            .args(arguments)
            .env("MIDFLUSH_TOKEN", TOKEN)
            .env("MIDFLUSH_PORT", self.port.to_string())
            .env("MIDFLUSH_RESULTS", &self.results)
            .env_remove("MIDFLUSH_UID")
            .output()
            .expect("docker-compose runs")
    }

    async fn get(&self, path: &str, token: Option<&str>) -> Option<(u16, String)> {
        let mut request = reqwest::Client::new().get(format!("http://127.0.0.1:{}{path}", self.port));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.ok()?;
        Some((answer.status().as_u16(), answer.text().await.ok()?))
    }

    async fn state_of(&self, run: &str) -> Value {
        let (_, text) = self.get("/api/runs", Some(TOKEN)).await.expect("a list");
        let list: Value = serde_json::from_str(&text).expect("JSON");
        let runs = list["runs"].as_array().expect("runs");
        runs.iter().find(|r| r["run"] == run).expect("the run is in the list")["state"].clone()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let down = self.compose(&["down", "--timeout", "5"]);
        if !down.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&down.stderr));
        }
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

fn works(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|out| out.status.success())
}

fn readable(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
}

#[tokio::test]
async fn the_page_comes_up_with_docker_compose() {
    if !works("docker", &["info"]) || !works("docker-compose", &["version"]) {
        assert!(
            !std::env::var("MIDFLUSH_REQUIRE_DOCKER").is_ok_and(|value| value == "1"),
            "MIDFLUSH_REQUIRE_DOCKER is set, and docker or docker-compose does not work"
        );
        println!("not tested, docker or docker-compose is missing");
        return;
    }
    let image = Command::new(env!("CARGO_BIN_EXE_midflush")).arg("image").output().expect("midflush runs");
    assert!(image.status.success(), "{}", String::from_utf8_lossy(&image.stderr));

    let results = tempfile::tempdir().expect("a folder");
    // The container's user is nobody in particular.
    readable(results.path());
    let live = RunFolder::create(results.path(), "live").expect("a run folder");
    readable(live.path());
    let mut timeline = live.timeline().expect("a timeline");
    for line in include_str!("../data/quickstart.ndjson").lines().take(100) {
        timeline.append(&serde_json::from_str(line).expect("a record")).expect("appended");
    }

    let name = format!("midflush-page-test-{}", std::process::id());
    let project = Project { name, port: free_port(), results: results.path().to_owned() };
    let up = project.compose(&["up", "-d"]);
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let deadline = Instant::now() + UP_WITHIN;
    while project.get("/healthz", None).await.is_none_or(|(status, _)| status != 200) {
        assert!(Instant::now() < deadline, "the page answers in time");
        sleep(LOOK_EVERY).await;
    }

    assert_eq!(project.get("/", None).await.expect("an answer").0, 401, "without the token");
    let (status, page) = project.get("/", Some(TOKEN)).await.expect("an answer");
    assert_eq!(status, 200);
    assert!(page.contains("/runs/live"), "{page}");
    assert_eq!(project.state_of("live").await, "running", "this process holds the run");
    drop((timeline, live));
    assert_eq!(project.state_of("live").await, "controller_gone");

    let published = project.compose(&["port", "page", "8420"]);
    assert_eq!(String::from_utf8_lossy(&published.stdout).trim(), format!("127.0.0.1:{}", project.port));
}
