//! Files, transactions and answers of the family.

use indexmap::IndexMap;

use super::*;
use crate::chain::sample;
use crate::plan::{BuildPlan, LoadPlan};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/recordings/gnoland-1.7/");

fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(format!("{RECORDED}{name}.json")).expect("a recording")
}

fn sample_plan() -> Plan {
    let options = GnolandPlan {
        database: "pebbledb".to_owned(),
        block_time_ms: 200,
        genesis: None,
        root: Some("/opt/gno".to_owned()),
        build: BuildPlan::Binary("/opt/gnoland".to_owned()),
    };
    sample::plan(ChainPlan::Gnoland(options), 4)
}

fn family(plan: &Plan) -> Gnoland {
    Gnoland::for_plan(plan).expect("the family")
}

#[test]
fn files_of_a_full_node() {
    let plan = sample_plan();
    let binding = sample::binding(&plan, "/opt/gnoland");
    let late = plan.nodes.last().expect("a node");
    let files = family(&plan).render(&plan, &binding, &Made::new(), late).expect("files");
    assert_eq!(files, family(&plan).render(&plan, &binding, &Made::new(), late).expect("files"));
    assert_eq!(files.env["GNOROOT"], "/opt/gno");
    insta::assert_snapshot!("command", files.command.join(" "));
    let text = |path: &str| String::from_utf8(files.files[path].bytes.clone()).expect("text");
    insta::assert_snapshot!("config.toml", text("config/config.toml"));
    insta::assert_snapshot!("genesis.json", text("genesis.json"));
    insta::assert_snapshot!("node_key.json", text("secrets/node_key.json"));
    insta::assert_snapshot!("priv_validator_key.json", text("secrets/priv_validator_key.json"));
    for secret in ["secrets/node_key.json", "secrets/priv_validator_key.json"] {
        assert_eq!(files.files[secret].mode, 0o600);
    }
    assert!(!text("config/config.toml").contains("0.0.0.0"));
}

#[test]
fn a_folder_that_is_not_found_is_named_with_the_mend() {
    let plan = sample_plan();
    let binding = sample::binding(&plan, "/opt/gnoland");
    let error = Gnoland::default().render(&plan, &binding, &Made::new(), &plan.nodes[0]).expect_err("an error");
    assert!(error.0.contains("`root: FOLDER`") && error.0.contains("gnovm/stdlibs"), "{error}");
}

#[test]
fn accounts_of_the_load_come_first_in_the_genesis() {
    let mut plan = sample_plan();
    let count = |plan: &Plan| {
        let genesis = genesis::genesis(plan, None).expect("a genesis");
        genesis["app_state"]["balances"].as_array().expect("a list").len()
    };
    assert_eq!(count(&plan), 0);
    plan.load = Some(LoadPlan { rate: 1.0, size: 0, kinds: IndexMap::from([("send".to_owned(), 1)]), seed: 1 });
    assert_eq!(count(&plan), 1_000);
    let file = serde_json::json!({ "balances": ["g1other=1ugnot"], "txs": ["t"] });
    let genesis = genesis::genesis(&plan, Some(&file)).expect("a genesis");
    assert_eq!(genesis["app_state"]["balances"][1_000], "g1other=1ugnot");
    assert_eq!(genesis["app_state"]["txs"][0], "t");
}

#[test]
fn sends_have_the_asked_size_and_are_never_equal() {
    let plan = sample_plan();
    let make = |n, size| family(&plan).transaction(&plan, &Made::new(), "send", n, size).expect("a transaction");
    assert_eq!(make(1, 0), make(1, 0));
    assert_ne!(make(1, 0), make(2, 0));
    // The same account, its next sequence: only the signature differs.
    assert_ne!(make(1, 0), make(1_001, 0));
    assert_eq!(make(1, 0).len(), make(1_001, 0).len());
    for size in [300, 1_000, 20_000] {
        assert!(make(3, size).len().abs_diff(size) <= 2, "{}", make(3, size).len());
    }
    assert!(family(&plan).transaction(&plan, &Made::new(), "set", 1, 0).is_err());
}

/// An address and a key file that `gnoland secrets init` made.
#[test]
fn addresses_are_those_that_the_node_derives() {
    let made = "3HIOCv48npEYQ5eSXoB3UmbvQi8sHp7Dbe9T8B1XSMHY2i/W9j7h606uMhbFZ8qa8k1tAyj/cds4Y5j5t11U8Q==";
    let key = crate::chain::ed25519::Key::from_private_base64(made);
    assert_eq!(keys::address_text(key.address()).expect("text"), "g1mmsdwhzvh4ylrn5eewlahusx2cl43savaqr0tf");
    assert_eq!(key.public_base64(), "2Nov1vY+4etOrjIWxWfKmvJNbQMo/3HbOGOY+bddVPE=");
}

#[test]
fn reads_the_answers_of_a_live_node() {
    let status = Tm2Shapes.status(&recorded("status")).expect("a status");
    assert_eq!((status.height, status.catching_up), (142, false));
    assert_eq!(status.app_hash, "f0de29dbb586b3c8b8a6b4081dd0081b10b40a424d0cdd40c9fd437e18a6f299");
    assert_eq!(Tm2Shapes.peers(&recorded("net_info")).expect("peers"), 1);
    let hashes = Tm2Shapes.hashes(&recorded("blockchain")).expect("hashes");
    assert_eq!((hashes.first, hashes.blocks.len()), (2, 2));
    assert_eq!(hashes.blocks[0].0, "044abf64bac4c18fe91fedda1196afbb6642c0249205fe0a8ee38b9acf0d3cb2");
    let app =
        br#"{"jsonrpc":"2.0","id":"","result":{"response":{"ResponseBase":{"Error":null},"LastBlockHeight":"12"}}}"#;
    assert_eq!(Tm2Shapes.app_height(app).expect("a height"), 12);
    let taken = br#"{"jsonrpc":"2.0","id":"","result":{"error":null,"data":null,"log":"","hash":"bjQLnA=="}}"#;
    assert!(Tm2Shapes.submitted(taken));
    assert!(!Tm2Shapes.submitted(&recorded("broadcast_tx_sync_refused")));
    let error = Tm2Shapes.hashes(&recorded("blockchain_too_high")).expect_err("an error");
    assert!(error.0.contains("can't be greater than max height"), "{error}");
}
