//! `midflush observe` on a node that nothing is known about.

use std::process::Command;

use midflush::timeline::Address;

use super::program::PROGRAM;

#[test]
fn observe_finds_stores_and_addresses_of_any_binary() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .args(["observe", "--json", "--for", "1s", "--home"])
        .arg(home.path())
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "agent::program::program", "--nocapture", "--test-threads=1"])
        .env(PROGRAM, "chain")
        .current_dir(home.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let seen = &report["observation"];
    let flush: Vec<(&str, Option<u64>)> = seen["flush"]
        .as_array()
        .unwrap()
        .iter()
        .map(|commit| (commit["store"].as_str().unwrap(), commit["sync"].as_u64()))
        .collect();
    // The application is written between the last two syncs and never synced, so it is no store of its own: only a
    // name that ends in `.db` would tell.
    assert_eq!(&flush[..2], [("blocks", Some(1)), ("state", Some(1))], "{seen:#}");
    assert!(seen["blocks"].as_u64().unwrap() > 3, "{seen:#}");
    for address in seen["addresses"].as_array().unwrap() {
        let _parses: Address = serde_yaml::from_str(address.as_str().unwrap()).unwrap();
    }
}
