//! What follows from rounds: verdicts, gates, knees.

use super::*;
use crate::bench::sample::{cell, rates, result};

fn concluded(cells: Vec<CellResult>, require: &[Gate]) -> BenchResult {
    let mut of = result(cells);
    conclude(&mut of, require);
    of
}

fn twin(of: &CellResult, phase: usize) -> CellResult {
    let mut twin = cell(&of.arm, &[], &rates(100.0, phase));
    twin.axes.clone_from(&of.axes);
    twin.twin = true;
    twin
}

fn gate(a: &str, b: &str, at_least: f64) -> Gate {
    Gate { of: GateOf::Ratio(a.to_owned(), b.to_owned()), at_least: Some(at_least), at_most: None }
}

#[test]
fn a_difference_inside_the_floor_is_no_change_and_one_outside_is_named() {
    let base = cell("base", &[], &rates(100.0, 0));
    let cells = vec![
        base.clone(),
        twin(&base, 3),
        cell("same", &[], &rates(100.2, 2)),
        cell("fast", &[], &rates(121.5, 1)),
        cell("slow", &[], &rates(80.0, 1)),
    ];
    let of = concluded(cells, &[]);
    let floor = of.floor.expect("a floor");
    assert!(floor.lo < 1.0 && floor.hi > 1.0 && floor.hi - floor.lo < 0.03, "{floor:?}");
    let verdicts: Vec<&str> = of.ratios.iter().map(|ratio| ratio.verdict.as_str()).collect();
    assert_eq!(verdicts, ["no change", "no change", "faster", "slower"]);
    assert_eq!(of.ratios[2].sides, ("fast".to_owned(), "base".to_owned()));
    let fast = of.ratios[2].ratio.expect("a ratio");
    assert!((fast.value - 1.215).abs() < 0.01 && fast.half_width() < 0.03, "{fast:?}");
}

#[test]
fn few_rounds_and_voided_rounds_give_no_verdict() {
    let few = concluded(vec![cell("a", &[], &[100.0, 101.0]), cell("b", &[], &[200.0, 201.0])], &[gate("b", "a", 1.0)]);
    assert_eq!(few.ratios[0].verdict, "inconclusive");
    assert_eq!(few.gates[0].holds, None);
    let mut voided = cell("b", &[], &rates(200.0, 0));
    voided.rounds[0].voided = Some("load 9 is above 4".to_owned());
    let of = concluded(vec![cell("a", &[], &rates(100.0, 0)), voided], &[]);
    assert_eq!((of.rounds, of.ratios[0].verdict.as_str()), (5, "inconclusive"));
}

#[test]
fn tiers_and_cells_that_mean_nothing_are_never_compared() {
    let mut other = cell("b", &[], &rates(200.0, 0));
    other.tier = "none".to_owned();
    let of = concluded(vec![cell("a", &[], &rates(100.0, 0)), other.clone()], &[]);
    assert_eq!(of.ratios[0].verdict, "inconclusive");
    assert!(of.ratios[0].why.contains("never compared"), "{}", of.ratios[0].why);
    other.tier = "observe".to_owned();
    other.inconclusive = Some("asked 4 ms, got 9 ms".to_owned());
    let of = concluded(vec![cell("a", &[], &rates(100.0, 0)), other], &[gate("b", "a", 0.5)]);
    assert_eq!((of.ratios[0].verdict.as_str(), of.gates[0].holds), ("inconclusive", None));
}

#[test]
fn gates_hold_fail_or_cannot_be_told() {
    let cells =
        || vec![cell("a", &[], &rates(100.0, 0)), cell("b", &[], &rates(120.0, 1)), cell("c", &[], &rates(90.0, 2))];
    let holds = |gate: Gate| concluded(cells(), &[gate]).gates[0].holds;
    assert_eq!(holds(gate("b", "a", 1.0)), Some(true));
    assert_eq!(holds(gate("b", "a", 1.5)), Some(false));
    assert_eq!(holds(gate("b", "a", 1.2)), None, "the interval lies on both sides");
    assert_eq!(holds(gate("a", "b", 0.8)), Some(true), "turned round");
    assert_eq!(holds(gate("b", "c", 1.3)), Some(true), "two arms that are not the first");
    let every = Gate { of: GateOf::EveryRatio, at_least: Some(0.95), at_most: None };
    assert_eq!(holds(every), Some(false), "c is slower");
    let rate = Gate { of: GateOf::BlocksPerS("a".to_owned()), at_least: Some(50.0), at_most: Some(200.0) };
    assert_eq!(holds(rate), Some(true));
}

#[test]
fn values_of_an_axis_are_compared_with_the_first_and_the_knee_is_found() {
    let peers = |value: &str, rate: f64, phase| cell("base", &[("peers", value)], &rates(rate, phase));
    let cells = vec![peers("1", 97.0, 0), peers("2", 140.0, 1), peers("4", 141.0, 2), peers("8", 139.0, 4)];
    let of = concluded(cells, &[gate("peers=2", "peers=1", 1.3)]);
    assert_eq!(of.ratios[0].sides, ("peers=2".to_owned(), "peers=1".to_owned()));
    assert_eq!(of.gates[0].holds, Some(true), "{}", of.gates[0].why);
    assert_eq!(of.knees, ["base: beyond peers 2 no gain"]);
    let syncs = |value: &str, rate: f64| cell("base", &[("disk.sync", value)], &rates(rate, 0));
    let of = concluded(vec![syncs("230us", 200.0), syncs("1ms", 199.0), syncs("4ms", 90.0)], &[]);
    assert_eq!(of.knees, ["base: above disk.sync 1ms it is the limit"]);
    let of = concluded(vec![peers("1", 97.0, 0), peers("2", 97.2, 1), peers("4", 96.9, 2)], &[]);
    assert_eq!(of.knees, ["base: peers changes nothing from 1 to 4"]);
}

#[test]
fn a_node_whose_own_count_differs_from_its_heights_is_told_of() {
    let mut odd = cell("odd", &[], &rates(100.0, 1));
    for round in &mut odd.rounds {
        round.own_blocks_per_s = round.own_blocks_per_s.map(|rate| rate * 1.2);
    }
    odd.rounds[0].voided = Some("load".to_owned());
    let of = concluded(vec![cell("even", &[], &rates(100.0, 0)), odd], &[]);
    assert_eq!(of.notes.len(), 1, "{:?}", of.notes);
    assert!(of.notes[0].starts_with("odd: by the node's own count it made 12"), "{}", of.notes[0]);
    let mut silent = cell("silent", &[], &rates(100.0, 1));
    silent.rounds.iter_mut().for_each(|round| round.own_blocks_per_s = None);
    assert!(concluded(vec![silent], &[]).notes.is_empty());
}
