//! Nodes with their application in a process of its own: CometBFT with its `abci-cli kvstore`, unmodified, and what the plan
//! gives to Tenderdash with drive-abci.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use midflush::chain::tenderdash::Tenderdash;
use midflush::chain::{Chain, Made, beside};
use midflush::engine::{Binding, NodeBinding};
use serde_json::Value;

use crate::cometbft::binary;

/// CometBFT and its `abci-cli`.
fn binaries() -> Option<(PathBuf, PathBuf)> {
    let node = binary("MIDFLUSH_COMETBFT")?;
    Some((node, binary("MIDFLUSH_ABCI_CLI")?))
}

fn run(topology: &Path, node: &Path, engine: &str, results: &Path, sets: &[String]) -> (Output, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .arg("run")
        .arg(topology)
        .args(["--engine", engine, "--json", "--results"])
        .arg(results)
        .arg(format!("--set=chain.cometbft.binary={}", node.display()))
        .args(sets)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("midflush runs");
    let verdict = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (output, verdict)
}

/// The only run below a results folder.
fn only_run(results: &Path) -> PathBuf {
    let runs = std::fs::read_dir(results).expect("runs").map(|entry| entry.expect("an entry").path());
    runs.into_iter().find(|path| path.join("timeline.ndjson").is_file()).expect("a run")
}

#[test]
fn nodes_and_their_applications_are_killed_together_and_come_back() {
    let Some((node, application)) = binaries() else { return };
    killed("process", &node, &application);
}

#[tokio::test]
async fn nodes_and_applications_in_containers_are_killed_together_and_come_back() {
    let (Some((node, application)), Some((_, docker))) = (binaries(), crate::engine_docker::docker().await) else {
        return;
    };
    let run = killed("docker", &node, &application);
    // Both containers of each node carry the label by which they are found, and none is left.
    let filters = [("label".to_owned(), vec![format!("midflush.run={run}")])].into();
    let all = bollard::query_parameters::ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    assert_eq!(docker.list_containers(Some(all)).await.expect("containers"), []);
}

/// One node is killed at an address of its own, one at an address of its application, one with both at once, and one ends since
/// its application could not write. Tells the run.
fn killed(engine: &str, node: &Path, application: &Path) -> String {
    let results = tempfile::tempdir().expect("a folder");
    let set = format!("--set=chain.cometbft.application.binary={}", application.display());
    let (output, verdict) = run(Path::new("topologies/cometbft-beside.yaml"), node, engine, results.path(), &[set]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(verdict["verdict"], "CONVERGED", "{verdict:#} {errors}");
    let faults = verdict["faults"].as_array().expect("faults");
    assert_eq!(faults.len(), 4);
    for fault in faults {
        assert_eq!(fault["proven"], true, "{fault:#}");
        assert!(fault["kind"] == "fail" || fault["exit"] == "signal 9", "{fault:#}");
    }
    let aimed = faults.iter().find(|fault| fault["node"] == "val-3").expect("the application's");
    assert_eq!((&aimed["landed"]["store"], &aimed["predicted"]), (&"app/kvstore.db".into(), &Value::Null), "{aimed:#}");
    // What the kill kept it from is not there: the block is in the store, and the application is one behind.
    assert_eq!(aimed["after"]["app"].as_u64().map(|app| app + 1), aimed["landed"]["height"].as_u64(), "{aimed:#}");
    let nodes = verdict["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 4, "an application is no node of its own: {nodes:#?}");
    let run = only_run(results.path());
    let log = |name: &str, start: u32| run.join(format!("logs/{name}/start-{start}.log")).is_file();
    for name in ["val-1", "val-2", "val-3", "val-4"] {
        for name in [name.to_owned(), format!("{name}.app")] {
            assert!(log(&name, 1) && log(&name, 2) && !log(&name, 3), "{name} was not started twice");
        }
    }
    run.file_name().expect("a name").to_string_lossy().into_owned()
}

/// The application of one node serves until it has written, and dies then; later ones die at once.
const DIES: &str = r#"midflush: 1
name: dies
chain:
  cometbft:
    block_time: 300ms
    application:
      binary: /bin/sh
      command:
        - -c
        - |
          serve() { exec "$APP" kvstore --persist "$HOME/data" --address "{{ node.application.address }}"; }
          [ "{{ node.name }}" = val-2 ] || serve
          if [ ! -e "$HOME/data" ]; then
            (serve) &
            until cat "$HOME"/data/kvstore.db/*.log 2>/dev/null | grep -q .; do sleep 0.05; done
          fi
          echo "panic: the grove burns" >&2
          exit 3
nodes: { val: { role: validator, count: 4 } }
load: { rate: 10/s, size: 60B }
expect: { converge: { within: 60s } }
"#;

#[test]
fn an_application_that_dies_by_itself_is_a_finding_about_its_node() {
    let Some((node, application)) = binaries() else { return };
    let results = tempfile::tempdir().expect("a folder");
    let topology = results.path().join("dies.yaml");
    std::fs::write(&topology, DIES).expect("written");
    let set = format!("--set=chain.cometbft.application.env={{APP: {}}}", application.display());
    let (output, verdict) = run(&topology, &node, "process", results.path(), &[set]);
    assert_eq!((output.status.code(), &verdict["verdict"]), (Some(1), &"PANIC_ON_RESTART".into()), "{verdict:#}");
    let finding = &verdict["findings"][0];
    assert_eq!(finding["node"], "val-2", "{finding:#}");
    let detail = finding["detail"].as_str().expect("text");
    assert!(detail.contains("code 3") && detail.contains("application: panic: the grove burns"), "{detail}");
    assert!(!verdict.to_string().contains("TOOL_ERROR"), "{verdict:#}");
}

#[test]
fn drive_abci_beside_tenderdash_is_given_its_places() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/tenderdash-drive.yaml");
    let text = std::fs::read(file).expect("the topology");
    let loaded = midflush::topology::load("tenderdash-drive.yaml", &text, &[]).expect("a topology");
    let plan = midflush::plan::build(&loaded.topology, 7).expect("a plan");
    let place = |name: &str, n: usize| NodeBinding {
        ip: format!("127.80.3.{n}").parse().expect("an address"),
        p2p_port: 26656,
        rpc_port: 26657,
        metrics_port: 26660,
        home: format!("/home/{name}").into(),
        program: vec![format!("/opt/{name}")],
        env: std::collections::BTreeMap::new(),
        place: String::new(),
    };
    let names = (1..=4).flat_map(|n| [(format!("val-{n}"), n), (format!("val-{n}.app"), 4 + n)]);
    let nodes = names.map(|(name, n)| (name.clone(), place(&name, n))).collect();
    let binding = Binding { engine: "test".to_owned(), nodes };
    let files = Tenderdash::new().render(&plan, &binding, &Made::new(), &plan.nodes[0]).expect("files");
    let config = String::from_utf8_lossy(&files.files["config/config.toml"].bytes).into_owned();
    let abci: Vec<&str> = config.lines().skip_while(|line| *line != "[abci]").take(3).collect();
    let drive = beside(&plan).expect("an application").render(&binding, &plan.nodes[0]).expect("files");
    let mut told = format!("{}\n\n{}\n\n", files.command.join(" "), abci.join("\n"));
    told.push_str(&drive.command.join(" "));
    drive.env.iter().for_each(|(name, value)| told.push_str(&format!("\n{name}={value}")));
    insta::assert_snapshot!(told);
}
