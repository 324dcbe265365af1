//! `expect`: what must hold at the end.

use std::collections::BTreeMap;

use super::chain::HEIGHT_MAX;
use super::faults::{Known, resolve};
use crate::timeline::{Expect, Mode};
use crate::topology::diagnostic::Problem;
use crate::topology::reader::{At, Reader};
use crate::topology::units;

const MODES: &[&str] = &["consensus", "block_sync", "replay"];

pub(super) fn expect(reader: &mut Reader, at: &At, known: &Known) -> Option<Expect> {
    let fields = reader.map(at, "a map", "{ converge: { within: 60s } }", &["converge", "halt", "syncs_per_block"])?;
    let mut expect = Expect::default();
    if let Some(at) = fields.get("converge") {
        let fields = reader.map(&at, "a map", "{ within: 60s }", &["within"])?;
        let within = reader.required(&fields, "within", "within: 60s");
        expect.converge_within_ms = within.and_then(|at| reader.unit(&at, "60s", units::duration_ms));
    }
    if let Some(at) = fields.get("halt") {
        expect.halt_height = reader.whole(&at, 1, HEIGHT_MAX);
    }
    if let Some(at) = fields.get("syncs_per_block") {
        expect.syncs_per_block = syncs_per_block(reader, &at, known)?;
    }
    Some(expect)
}

type Syncs = BTreeMap<String, BTreeMap<Mode, BTreeMap<String, u64>>>;

fn syncs_per_block(reader: &mut Reader, at: &At, known: &Known) -> Option<Syncs> {
    let example = "{ val: { consensus: { application.db: 1 } } }";
    let mut out = Syncs::new();
    for (name, at) in reader.any_map(at, "a map of nodes and groups", example)?.iter() {
        // The key is the name: a problem with it is shown there.
        let before = reader.problems.len();
        if resolve(reader, &at, name, known).is_none() {
            for problem in reader.problems.drain(before..).collect::<Vec<_>>() {
                let Problem { code, title, label, help, .. } = problem;
                let moved = Problem::at_key(code, &at.path, title).label(label);
                reader.push(match help {
                    Some(help) => moved.help(help),
                    None => moved,
                });
            }
        }
        let modes = reader.map(&at, "a map of modes", "{ block_sync: { state.db: 2 } }", MODES)?;
        for (word, at) in modes.iter().filter(|(word, _)| MODES.contains(word)) {
            let mode = match word {
                "consensus" => Mode::Consensus,
                "block_sync" => Mode::BlockSync,
                _ => Mode::Replay,
            };
            for (store, at) in reader.any_map(&at, "a map of stores", "{ state.db: 2 }")?.iter() {
                if let Some(count) = reader.whole(&at, 0, 10_000) {
                    let by_mode = out.entry(name.to_owned()).or_default();
                    by_mode.entry(mode).or_default().insert(store.to_owned(), count);
                }
            }
        }
    }
    Some(out)
}
