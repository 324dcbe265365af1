//! `expect`: what must hold at the end.

use std::collections::BTreeMap;

use super::chain::HEIGHT_MAX;
use super::faults::{Known, range, resolve};
use crate::timeline::{Expect, ExpectedVerdict, Mode, Verdict};
use crate::topology::diagnostic::Problem;
use crate::topology::reader::{At, Reader};
use crate::topology::units;

const KEYS: &[&str] = &["converge", "halt", "syncs_per_block", "verdict"];

const MODES: &[&str] = &["consensus", "block_sync", "replay"];

pub(super) fn expect(reader: &mut Reader, at: &At, known: &Known) -> Option<Expect> {
    let fields = reader.map(at, "a map", "{ converge: { within: 60s } }", KEYS)?;
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
    if let Some(at) = fields.get("verdict") {
        expect.verdict = verdict(reader, &at, known);
    }
    Some(expect)
}

/// The finding that has to come out, of a network with a known defect.
fn verdict(reader: &mut Reader, at: &At, known: &Known) -> Option<ExpectedVerdict> {
    let fields = reader.map(at, "a map", "{ kind: DIVERGED, node: late }", &["kind", "node", "height"])?;
    let kind = reader.required(&fields, "kind", "kind: DIVERGED")?;
    let names = Verdict::ALL.map(|verdict| verdict.to_string());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let kind = reader.word(&kind, &names).and_then(Verdict::named)?;
    let node = match fields.get("node") {
        None => None,
        Some(at) => Some(one_node(reader, &at, known)?),
    };
    let height = match fields.get("height") {
        None => None,
        Some(at) => Some(range(reader, &at, "40..")?),
    };
    Some(ExpectedVerdict { kind, node, height })
}

fn one_node(reader: &mut Reader, at: &At, known: &Known) -> Option<String> {
    let name = reader.text(at, "late")?;
    let nodes = resolve(reader, at, name, known)?;
    match &nodes[..] {
        [node] => Some(node.clone()),
        _ => {
            let title = format!("`{name}` is a group of {} nodes", nodes.len());
            reader.push(
                Problem::new("one-node", &at.path, title).label("one node is wanted").help("a finding names one"),
            );
            None
        }
    }
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
