//! What the plan makes of a node, and the node's recorded log against the layout's marks.

use super::*;
use crate::chain::sample;
use crate::plan::BuildPlan;
use crate::timeline::line::number;
use crate::timeline::{LogMeaning, Mode};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/recordings/tenderdash-1.5/");

/// A recorded file.
pub(super) fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(format!("{RECORDED}{name}")).expect("a recording")
}

/// The body of a recorded answer, behind the head.
pub(super) fn body(name: &str) -> Vec<u8> {
    let answer = recorded(name);
    let end = answer.windows(2).position(|bytes| bytes == b"\n\n").expect("the end of the head");
    answer[end + 2..].to_vec()
}

/// Four validators and a full node `late`.
pub(super) fn sample_plan() -> Plan {
    let options = TenderdashPlan {
        app: "persistent_kvstore".to_owned(),
        block_time_ms: 200,
        build: BuildPlan::Binary("/opt/tenderdash".to_owned()),
    };
    sample::plan(ChainPlan::Tenderdash(options), 4)
}

fn files(node: usize) -> NodeFiles {
    let plan = sample_plan();
    let binding = sample::binding(&plan, "/opt/tenderdash");
    Tenderdash::new().render(&plan, &binding, &Made::new(), &plan.nodes[node]).expect("files")
}

fn text(files: &NodeFiles, path: &str) -> String {
    String::from_utf8(files.files[path].bytes.clone()).expect("text")
}

#[test]
fn files_of_a_validator() {
    let made = files(0);
    assert_eq!(made, files(0));
    assert_eq!(made.command, ["/opt/tenderdash", "start", "--home", "/run/sample/val-1"]);
    for path in ["config.toml", "genesis.json", "node_key.json", "priv_validator_key.json"] {
        insta::assert_snapshot!(path, text(&made, &format!("config/{path}")));
    }
    for secret in ["config/node_key.json", "config/priv_validator_key.json"] {
        assert_eq!(made.files[secret].mode, 0o600);
    }
    assert!(made.files.contains_key("data/priv_validator_state.json"));
    assert!(!text(&made, "config/config.toml").contains("0.0.0.0"));
}

#[test]
fn a_full_node_has_no_part_in_the_quorum() {
    let (validator, full) = (files(0), files(4));
    assert_eq!(text(&validator, "config/genesis.json"), text(&full, "config/genesis.json"));
    let config = text(&full, "config/config.toml");
    assert!(config.contains("mode = \"full\"") && config.contains("core-rpc-host = \"127.0.0.1:1\""), "{config}");
    assert!(!full.files.keys().any(|path| path.contains("priv_validator")), "{:?}", full.files.keys());
}

/// Every key of the genesis that a node served, and no other.
#[test]
fn the_genesis_has_the_shape_of_one_that_made_blocks() {
    fn shape(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                map.iter().for_each(|(key, value)| shape(value, &format!("{path}.{key}"), found));
            }
            serde_json::Value::Array(list) if !list.is_empty() => shape(&list[0], &format!("{path}[]"), found),
            _ => found.push(path.to_owned()),
        }
    }
    let keys = |genesis: &serde_json::Value| {
        let mut found = Vec::new();
        shape(genesis, "", &mut found);
        // Completed by the node itself.
        found.retain(|path| path != ".consensus_params.version.consensus");
        found.sort();
        found
    };
    let served: serde_json::Value = serde_json::from_slice(&body("genesis.get.txt")).expect("JSON");
    let made = serde_json::from_str(&text(&files(0), "config/genesis.json")).expect("JSON");
    assert_eq!(keys(&made), keys(&served["genesis"]));
}

#[test]
fn peers_that_are_not_bound_or_not_planned_are_refused() {
    let mut plan = sample_plan();
    let mut binding = sample::binding(&plan, "/opt/tenderdash");
    binding.nodes.remove("val-2");
    let refused = |plan: &Plan, binding: &Binding| {
        Tenderdash::new().render(plan, binding, &Made::new(), &plan.nodes[0]).expect_err("an error").0
    };
    assert_eq!(refused(&plan, &binding), "render a node: `val-2` is not bound");
    plan.nodes[0].peers = vec!["nobody".to_owned()];
    assert_eq!(refused(&plan, &binding), "render a node: peer `nobody` is not in the plan");
    plan.built_blocks = 10;
    assert!(Tenderdash::new().fixture(&plan).is_err());
}

#[test]
fn transactions_set_a_few_keys_and_are_never_equal() {
    let plan = sample_plan();
    let make = |n| Tenderdash::new().transaction(&plan, &Made::new(), "set", n, 40).expect("a transaction");
    assert_eq!((make(1).len(), make(1)), (40, make(1)));
    assert!(make(33).starts_with(b"k1=33.") && make(1).starts_with(b"k1=1."));
    let small = Tenderdash::new().transaction(&plan, &Made::new(), "set", 65, 1).expect("a transaction");
    assert_eq!(small, b"k1=65.");
    assert!(Tenderdash::new().transaction(&plan, &Made::new(), "validator", 1, 40).is_err());
}

/// What each line of a recorded log means, without the lines that mean nothing.
fn meanings(log: &str, alone: bool) -> Vec<(LogMeaning, String)> {
    let text = String::from_utf8(recorded(log)).expect("text");
    let marks = stores::layout(alone, false).log_marks;
    let read = |line: &str| {
        let folded = line.to_ascii_lowercase();
        let met = marks.iter().filter(|mark| mark.tokens.iter().all(|t| folded.contains(&t.to_ascii_lowercase())));
        met.map(|mark| (mark.meaning.clone(), line.to_owned())).collect::<Vec<_>>()
    };
    text.lines().flat_map(read).collect()
}

#[test]
fn marks_of_a_restart_after_a_kill() {
    let found = meanings("log_restart_after_sigkill.plain.txt", false);
    let (replay, handshake, sync) = match &found[..] {
        [replay, handshake, sync] => (replay, handshake, sync),
        other => panic!("{other:?}"),
    };
    assert_eq!(replay.0, LogMeaning::Mode(Mode::Replay));
    let LogMeaning::Handshake { app, state, store } = &handshake.0 else { panic!("{handshake:?}") };
    let heights = [app, state, store].map(|key| number(&handshake.1, key));
    assert_eq!(heights, [Some(1576); 3]);
    assert_eq!(sync.0, LogMeaning::Mode(Mode::BlockSync));
}

#[test]
fn a_lone_validator_is_never_in_block_sync() {
    let modes = |alone| {
        let found = meanings("log_restart_after_sigkill.plain.txt", alone);
        found.iter().filter(|(meaning, _)| matches!(meaning, LogMeaning::Mode(Mode::BlockSync))).count()
    };
    assert_eq!((modes(false), modes(true)), (1, 0));
    let plan = sample::plan(sample_plan().chain, 1);
    let layout = |node: usize| Tenderdash::new().layout(&plan, &plan.nodes[node]);
    assert_eq!((layout(0), layout(1)), (stores::layout(true, false), stores::layout(false, false)));
}

#[test]
fn lines_that_mean_nothing_here_are_no_trouble() {
    let known: Vec<String> = crate::chain::marks::troubles().iter().map(|mark| mark.tokens.concat()).collect();
    let here: Vec<String> = stores::layout(false, false).log_marks.iter().map(|mark| mark.tokens.concat()).collect();
    let dropped: Vec<&String> = known.iter().filter(|mark| !here.contains(mark)).collect();
    assert_eq!(dropped, ["WAL does not contain #ENDHEIGHT", "step regression"]);
}

/// The node complains a lot when it stops, and none of it is trouble.
#[test]
fn a_clean_stop_means_nothing() {
    assert_eq!(meanings("log_sigterm_stop.plain.txt", false), []);
}
