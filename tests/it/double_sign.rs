//! Two CometBFT nodes that sign with one validator key, as a standby does that should not have been started.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// `topologies/custom.yaml` with other nodes, in which `twin` signs with the key of the first validator.
fn topology(nodes: &str, changes: &[(&str, &str)]) -> String {
    let text = std::fs::read_to_string("topologies/custom.yaml").expect("the topology");
    let mut text = text.split("nodes:\n  val:").next().expect("the chain").to_owned();
    let key = (
        "{{ node.validator_key }}",
        "{{ validators[0].validator_key if node.name == 'twin' else node.validator_key }}",
    );
    for (old, new) in [key].iter().chain(changes) {
        assert!(text.contains(old), "{old} is no longer in the topology");
        text = text.replace(old, new);
    }
    format!("{text}{nodes}\nload: {{ rate: 20/s, size: 100B }}\n")
}

/// The verdict of a run that ends with a finding.
fn run(binary: &Path, topology: &str) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("twins.yaml");
    std::fs::write(&file, topology).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .arg("run")
        .arg(&file)
        .args(["--engine", "process", "--json", "--results"])
        .arg(folder.path().join("results"))
        .args(["--set", &format!("chain.custom.binary={}", binary.display())])
        .output()
        .expect("midflush runs");
    let verdict: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(output.status.code(), Some(1), "{verdict:#}");
    verdict
}

fn findings<'a>(verdict: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = verdict["findings"].as_array().expect("findings");
    all.iter().filter(|finding| finding["verdict"] == kind).collect()
}

/// The twin gives up waiting for a proposal at once and votes nil where the other votes for the block, and both propose when it is
/// their turn. The others hold such votes against their key, in a block.
#[test]
fn evidence_in_blocks_names_the_validator_and_both_nodes() {
    let Some(binary) = crate::cometbft::binary("MIDFLUSH_COMETBFT") else { return };
    let nodes = "nodes:\n  val: { role: validator, count: 4 }\n  twin: { role: full }\n\
                 faults: [{ name: later, restart: val-4, at: { height: 20 } }]";
    let propose = "timeout_propose = \"{{ '1ms' if node.name == 'twin' else '1s' }}\"\n        \
                   peer_query_maj23_sleep_duration = \"100ms\"";
    // The kvstore of this release fails on two pieces of evidence in one block.
    let changes = [("timeout_propose = \"1s\"", propose), ("persistent_kvstore]", "noop]")];
    let verdict = run(&binary, &topology(nodes, &changes));
    assert_eq!(verdict["verdict"], "DOUBLE_SIGN", "{verdict:#}");
    let found = findings(&verdict, "DOUBLE_SIGN");
    assert_eq!((found.len(), &found[0]["node"]), (1, &Value::from("val-1, twin")), "{verdict:#}");
    let detail = found[0]["detail"].as_str().expect("words");
    let height = found[0]["height"].as_u64().expect("a height");
    assert!(detail.contains(&format!(" at height {height}, round ")), "{detail}");
    assert!(detail.contains("in the evidence of block "), "{detail}");
    assert!(detail.ends_with("val-1, twin sign with this key"), "{detail}");
    assert!(!found[0]["evidence"].as_array().expect("records").is_empty());
    assert!(verdict["heights_compared"].as_u64() > Some(20), "{verdict:#}");
}

/// Two halves that never hear of each other, each with more than two thirds of the power since one validator is in both.
#[test]
fn a_fork_names_who_signed_both_blocks() {
    let Some(binary) = crate::cometbft::binary("MIDFLUSH_COMETBFT") else { return };
    let nodes = "nodes:\n  big: { role: validator, power: 30 }\n  a: { role: validator }\n  b: { role: validator }\n  \
                 twin: { role: full }\n\
                 faults: [{ name: later, restart: a, at: { height: 10 } }]";
    let half = "{% for peer in peers if (peer.name in ['big', 'a']) == (node.name in ['big', 'a']) %}";
    let verdict = run(&binary, &topology(nodes, &[("{% for peer in peers %}", half)]));
    assert_eq!(verdict["verdict"], "FORKED", "{verdict:#}");
    let forked = findings(&verdict, "FORKED");
    assert_eq!((forked.len(), &forked[0]["node"]), (1, &Value::from("b, twin")), "{verdict:#}");
    let found = findings(&verdict, "DOUBLE_SIGN");
    assert_eq!((found.len(), &found[0]["node"]), (1, &Value::from("big, twin")), "{verdict:#}");
    let detail = found[0]["detail"].as_str().expect("words");
    assert!(detail.contains("two signatures for precommit at height "), "{detail}");
    let sides = [" (seen in the commit of big)", " (seen in the commit of b)"];
    assert!(sides.iter().all(|side| detail.contains(side)), "{detail}");
}
