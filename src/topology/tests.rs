//! Whole topologies, good and bad.

use proptest::prelude::*;

use super::*;
use crate::timeline::{FaultKind, Mode, Phase, Role, WriteAt};

const BASE: &str = "midflush: 1\nname: t\nchain: { reference: {} }\nnodes:\n  val: { role: validator, count: 4 }\n  late: { role: full, storage: deferred, start: { after: 2s }, peers: 3 }\n";

fn good(text: &str) -> Topology {
    load("t.yaml", text.as_bytes(), &[]).map(|loaded| loaded.topology).unwrap_or_else(|error| panic!("{error}"))
}

/// Codes and places of all problems: `unknown-key 5:3`.
fn bad(text: &str, sets: &[&str]) -> Vec<String> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let problems = load("t.yaml", text.as_bytes(), &sets).expect_err("problems");
    assert!(!problems.to_string().is_empty());
    let places = problems.places();
    let places = problems.list().iter().zip(places);
    places
        .map(|(problem, (file, line, column))| {
            let file = if file == "t.yaml" { String::new() } else { format!("{file} ") };
            format!("{file}{} {line}:{column}", problem.code)
        })
        .collect()
}

#[test]
fn the_smallest_topology_has_defaults() {
    let topology = good(BASE);
    let names: Vec<String> = topology.nodes().map(|(node, _, _)| node).collect();
    assert_eq!(names, ["val-1", "val-2", "val-3", "val-4", "late"]);
    assert_eq!((topology.initial_height, topology.built_blocks), (1, 0));
    let val = &topology.nodes["val"];
    assert_eq!((val.role, val.power, val.storage.as_deref()), (Role::Validator, 10, Some("per-block")));
    let late = &topology.nodes["late"];
    assert_eq!((late.role, late.power, late.peers.clone()), (Role::Full, 0, Peers::Count(3)));
    assert_eq!(late.start, Start::After(Delay::fixed(2_000)));
}

#[test]
fn a_fault_is_read_with_its_defaults() {
    let text = format!(
        "{BASE}faults:\n  - name: a\n    kill: late\n    at: {{ store: state.db, sync: 2, write: first, mode: block_sync, window: 2.. }}\n  - {{ name: b, restart: {{ one_of: val }}, every: {{ interval: 8s, times: 2 }} }}\n  - {{ name: c, stop: [val-1, val-3], after: a, restart: {{ after: 1s..3s }} }}\n"
    );
    let topology = good(&text);
    let Trigger::Address(address) = &topology.faults[0].trigger else { panic!("an address") };
    assert_eq!((address.phase, address.write, address.window), (Phase::Before, Some(WriteAt::First), Some(2)));
    assert_eq!((address.mode, address.height.to_string()), (Some(Mode::BlockSync), "0..".to_owned()));
    assert_eq!(topology.faults[0].down, Delay::fixed(500));
    assert_eq!(topology.faults[1].kind, FaultKind::Restart);
    assert!(topology.faults[1].target.one_of);
    assert_eq!(topology.faults[1].target.nodes.len(), 4);
    assert_eq!(topology.faults[2].target.nodes, ["val-1", "val-3"]);
    assert_eq!(topology.faults[2].down, Delay { min_ms: 1_000, max_ms: 3_000 });
}

#[test]
fn all_problems_are_told_together() {
    let text = "midflush: 1\nname: Bad Name\nchain: { reference: { block_tme: 1s } }\nnodes:\n  val: { role: validatr, count: four }\n  late: { role: full, perrs: 2 }\n  late: { role: full }\nlinks: []\n";
    assert_eq!(
        bad(text, &[]),
        [
            "bad-name 2:7",
            "unknown-key 3:23",
            "unknown-value 5:16",
            "wrong-type 5:33",
            "unknown-key 6:23",
            "duplicate-key 7:3",
            "unknown-key 8:1",
        ]
    );
}

#[test]
fn a_tab_is_found_before_the_parser() {
    let text = "nodes:\n  - name: v0\n    engine: cometbft\n\tpower: 10\n    perrs: [v1]\n";
    assert_eq!(bad(text, &[]), ["tab 4:1"]);
    let problems = load("t.yaml", text.as_bytes(), &[]).unwrap_err().to_string();
    assert!(problems.contains("tab not allowed") && problems.contains("t.yaml:4:1"), "{problems}");
}

#[test]
fn numbers_must_fit_each_other() {
    let with = |nodes: &str| format!("midflush: 1\nname: t\nchain: {{ reference: {{}} }}\nnodes:\n{nodes}");
    let cases = [
        ("  a: { role: validator, count: 5, peers: 3 }\n", "impossible-graph 5:42"),
        ("  a: { role: validator, count: 4, peers: 1 }\n", "impossible-graph 5:42"),
        ("  a: { role: validator, count: 4, peers: 4 }\n", "impossible-graph 5:42"),
        ("  a: { role: validator, count: 0 }\n", "out-of-bounds 5:32"),
        ("  a: { role: full }\n", "no-validator 4:1"),
        ("  a: { role: validator, start: { after: 1s } }\n", "nobody-starts 4:1"),
        ("  a: { role: validator }\n  b: { role: validator, start: { height: 5 } }\n", "no-quorum 6:25"),
        ("  a: { role: validator, count: 2 }\n  a-1: { role: full }\n", "duplicate-node 6:3"),
        ("  a: { role: validator, storage: no-sync }\n", "unsafe-storage 5:34"),
        ("  a: { role: validator, watch: none, disk: { sync: 4ms } }\n", "unwatched 5:32"),
        ("  a: { role: validator, power: 0 }\n", "out-of-bounds 5:32"),
        ("  a: { role: validator }\n  f: { role: full, power: 1 }\n", "power-of-full-node 6:20"),
    ];
    for (nodes, expected) in cases {
        assert_eq!(bad(&with(nodes), &[]), [expected], "{nodes}");
    }
}

#[test]
fn faults_that_make_no_sense_are_refused() {
    let cases = [
        ("kill: val9, at: { time: 5s }", "unknown-node"),
        ("kill: val-1, stop: val-2, at: { time: 5s }", "two-actions"),
        ("kill: val-1, at: { time: 5s }, after: b", "two-triggers"),
        ("kill: val-1", "missing-key"),
        ("at: { time: 5s }", "missing-key"),
        ("kill: val-1, at: { store: s, sync: 1, write: last, phase: before }", "last-before"),
        ("kill: val-1, at: { store: s }", "vague-address"),
        ("kill: val-1, at: { store: s, write: last, phase: after }", "vague-address"),
        ("kill: val-1, at: { store: s, sync: 0 }", "out-of-bounds"),
        ("kill: val-1, at: { store: s, sync: 1, height: 9..4 }", "bad-value"),
        ("kill: val-1, at: { store: s, sync: 1, window: 2.. }", "unreachable-window"),
        ("kill: late, at: { store: s, sync: 1, window: 2.., mode: consensus }", "unreachable-window"),
        ("pause: val-1, at: { time: 5s }", "missing-key"),
        ("kill: val-1, at: { time: 5s }, for: 3s", "not-for-this-action"),
        ("pause: val-1, at: { store: s, sync: 1 }, for: 3s", "not-aimable"),
        ("kill: val-1, after: nothing", "unknown-fault"),
        ("kill: val-1, after: x", "circular-faults"),
        ("kill: val-1, every: { interval: 1s, jitter: 2s, times: 3 }", "out-of-bounds"),
        ("partition: val-1, at: { time: 5s }", "unknown-key"),
        ("power_cut: val-1, at: { time: 5s }", "unknown-key"),
        ("kill: val-1, at: { time: 5 }", "bad-value"),
    ];
    for (fault, expected) in cases {
        let found = bad(&format!("{BASE}faults:\n  - {{ name: x, {fault} }}\n"), &[]);
        assert!(found[0].starts_with(&format!("{expected} 8:")), "{fault}: {found:?}");
    }
    let twice =
        "faults:\n  - { name: x, kill: val-1, at: { time: 1s } }\n  - { name: x, kill: val-1, at: { time: 2s } }\n";
    assert_eq!(bad(&format!("{BASE}{twice}"), &[]), ["duplicate-fault 9:13"]);
}

#[test]
fn arguments_change_the_topology_before_it_is_checked() {
    let sets = ["nodes.val.count=7".to_owned(), "load={rate: 5/s}".to_owned()];
    let loaded = load("t.yaml", BASE.as_bytes(), &sets).unwrap();
    assert_eq!(loaded.topology.nodes["val"].count, 7);
    let again = load("t.yaml", loaded.resolved.as_bytes(), &[]).unwrap();
    assert_eq!(again.topology, loaded.topology);
    assert_eq!(bad(BASE, &["nodes.val.cuont=7"]), ["--set unknown-key 1:1"]);
    assert_eq!(bad(BASE, &["nodes.val.count=x"]), ["--set wrong-type 1:17"]);
    assert_eq!(bad(BASE, &["nodes.vall.count=7"]), ["--set bad-set 1:1"]);
}

#[test]
fn killing_a_third_of_the_power_is_noted() {
    let text = format!("{BASE}faults:\n  - {{ name: two, kill: [val-1, val-2], at: {{ time: 5s }} }}\n");
    let notes = load("t.yaml", text.as_bytes(), &[]).unwrap().notes;
    assert_eq!(notes, ["fault `two` takes 20 of 40 voting power at once: the chain stands still until it is back"]);
}

#[test]
fn large_inputs_are_answered_and_not_only_in_the_end() {
    let keys: String = (0..12_000).map(|n| format!("k{n}: 1\n")).collect();
    let problems = load("t.yaml", keys.as_bytes(), &[]).unwrap_err();
    assert_eq!(problems.list().len(), 40);
    assert!(problems.to_string().contains("more"), "the rest is counted");
    let faults: String = (1..900).map(|n| format!("  - {{ name: f{n}, kill: val-1, after: f{} }}\n", n - 1)).collect();
    assert_eq!(bad(&format!("{BASE}faults:\n{faults}"), &[]), ["unknown-fault 8:37"]);
    let many = "faults: [{ name: x, kill: val, every: { interval: 1s, times: 600 } }]\n";
    assert_eq!(bad(&format!("{BASE}{many}"), &[]), ["out-of-bounds 7:1"]);
    assert_eq!(bad(&" ".repeat(300_000), &[]), ["too-large 1:1"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_give_a_topology_or_problems(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Err(problems) = load("t.yaml", &bytes, &[]) {
            prop_assert!(!problems.list().is_empty());
            prop_assert!(problems.render(true).contains("nothing was created"));
        }
    }

    /// Words of the language in any order come further than bytes do.
    #[test]
    fn any_words_give_a_topology_or_problems(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "midflush: 1\n", "name: t\n", "chain: ", "nodes:\n", "  val: ", "{ ", "} ", "[", "]", "role: validator, ",
                "count: 4, ", "faults:\n", "  - ", "kill: val\n", "    at: ", "store: state.db, ", "sync: 1 ", "é: ", "&a ",
                "*a ", "!t ", "\n", "  ", "'", "\"", "# c\n", "---\n", "? ", "| \n", "reference: {}\n", "load: ", "\u{2028}", "\r",
            ]),
            0..40,
        ),
        set in "[a-z.\\[\\]0-9=\"]{0,20}",
    ) {
        if let Err(problems) = load("t.yaml", words.concat().as_bytes(), &[set]) {
            prop_assert!(!problems.to_string().is_empty());
            prop_assert_eq!(problems.places().len(), problems.list().len());
        }
    }

    /// A good topology with a few bytes changed.
    #[test]
    fn small_damage_is_survived(at in 0..BASE.len(), byte in any::<u8>(), cut in 0..20_usize) {
        let mut bytes = BASE.as_bytes().to_vec();
        bytes[at] = byte;
        let end = (at + cut).min(bytes.len());
        bytes.drain(at..end);
        if let Err(problems) = load("t.yaml", &bytes, &[]) {
            prop_assert!(!problems.to_string().is_empty());
        }
    }
}
