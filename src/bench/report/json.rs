//! The object that `--json` prints: a contract with scripts, which the stored result, richer, does not bind.

use serde_json::{Value, json};

use crate::bench::result::{BenchResult, CellResult, Ends, Ratio};

/// Version of the object.
const VERSION: u32 = 1;

/// The object.
pub fn json(result: &BenchResult) -> Value {
    json!({
        "version": VERSION,
        "cells": result.cells.iter().map(cell).collect::<Vec<_>>(),
        "ratios": result.ratios.iter().map(ratio).collect::<Vec<_>>(),
        "floor": result.floor.map(|Ends { lo, hi }| json!({ "lo": lo, "hi": hi })),
        "results": result.results,
    })
}

fn cell(cell: &CellResult) -> Value {
    let rounds = cell.rounds.iter().map(|round| {
        json!({
            "blocks_per_s": round.rate.blocks_per_s(),
            "ms_per_block": round.rate.ms_per_block(),
            "from": round.rate.from,
            "to": round.rate.to,
            "load1": round.load1,
            "voided": round.voided.is_some(),
        })
    });
    let mean = cell.blocks_per_s.map(|of| of.mean);
    json!({
        "arm": if cell.twin { format!("{} again", cell.arm) } else { cell.arm.clone() },
        "axes": cell.axes,
        "rounds": rounds.collect::<Vec<_>>(),
        "blocks_per_s": mean.map(|of| json!({ "mean": of.value, "lo": of.lo, "hi": of.hi })),
        "syncs_per_block": cell.syncs_per_block,
    })
}

fn ratio(ratio: &Ratio) -> Value {
    let of = ratio.ratio;
    json!({
        "a": ratio.a,
        "b": ratio.b,
        "ratio": of.map(|of| of.value),
        "lo": of.map(|of| of.lo),
        "hi": of.map(|of| of.hi),
        "verdict": ratio.verdict,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::conclude::conclude;
    use crate::bench::sample;

    #[test]
    fn the_object_has_exactly_these_keys() {
        let mut twin = sample::cell("base", &[], &sample::rates(100.0, 3));
        twin.twin = true;
        let cells = vec![
            sample::cell("base", &[], &sample::rates(100.0, 0)),
            twin,
            sample::cell("pr", &[], &sample::rates(110.0, 1)),
        ];
        let mut result = sample::result(cells);
        conclude(&mut result, &[]);
        let object = json(&result);
        let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&object), ["cells", "floor", "ratios", "results", "version"]);
        assert_eq!(keys(&object["cells"][0]), ["arm", "axes", "blocks_per_s", "rounds", "syncs_per_block"]);
        let round = ["blocks_per_s", "from", "load1", "ms_per_block", "to", "voided"];
        assert_eq!(keys(&object["cells"][0]["rounds"][0]), round);
        assert_eq!(keys(&object["cells"][0]["blocks_per_s"]), ["hi", "lo", "mean"]);
        assert_eq!(keys(&object["ratios"][0]), ["a", "b", "hi", "lo", "ratio", "verdict"]);
        assert_eq!(keys(&object["floor"]), ["hi", "lo"]);
        assert_eq!(object["cells"][1]["arm"], "base again");
        assert_eq!(object["ratios"][1]["verdict"], "faster");
    }
}
