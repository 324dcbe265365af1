//! `require`: what must hold of the result.

use super::{Axis, number, word};
use crate::topology::bench::{Gate, GateOf, Settings};
use crate::topology::diagnostic::Problem;
use crate::topology::reader::{At, Fields, Reader, listed};
use crate::topology::tree::Tree;

/// One gate, or a list of them.
pub(super) fn require(reader: &mut Reader, bench: &Fields, base: &Settings, axes: &[Axis]) -> Vec<Gate> {
    let Some(at) = bench.get("require") else { return Vec::new() };
    let list = match at.tree {
        Tree::List(_) => reader.list(&at, "a list", "[{ ratio: a/b, at_least: 0.95 }]").unwrap_or_default(),
        _ => vec![at],
    };
    list.iter().filter_map(|at| gate(reader, at, base, axes)).collect()
}

fn gate(reader: &mut Reader, at: &At, base: &Settings, axes: &[Axis]) -> Option<Gate> {
    let known = ["ratio", "blocks_per_s", "at_least", "at_most"];
    let fields = reader.map(at, "a map", "{ ratio: pr/base, at_least: 0.95 }", &known)?;
    let mut at_least = fields.get("at_least").and_then(|at| number(reader, &at));
    let mut at_most = fields.get("at_most").and_then(|at| number(reader, &at));
    let of = match (fields.get("ratio"), fields.get("blocks_per_s")) {
        (Some(ratio), None) => {
            let text = reader.text(&ratio, "pr/base")?;
            match comparison(text) {
                Some((least, value)) => {
                    *(if least { &mut at_least } else { &mut at_most }) = Some(value);
                    GateOf::EveryRatio
                }
                None => sides(reader, &ratio, text, base, axes)?,
            }
        }
        (None, Some(arm)) => {
            let text = reader.text(&arm, "base")?;
            known_side(reader, &arm, text, base, axes)?;
            GateOf::BlocksPerS(text.to_owned())
        }
        _ => {
            let problem = Problem::new("bad-gate", &at.path, "a gate is about `ratio` or about `blocks_per_s`");
            reader.push(problem.label("not one of the two").help("write `{ ratio: pr/base, at_least: 0.95 }`"));
            return None;
        }
    };
    if at_least.is_none() && at_most.is_none() {
        let problem = Problem::new("bad-gate", &at.path, "a gate needs a bound").label("nothing is asked");
        reader.push(problem.help("write `at_least: 0.95` or `at_most: 1.05`"));
        return None;
    }
    Some(Gate { of, at_least, at_most })
}

/// `>= 0.95` or `<= 1.05`: true and the value for a lower bound.
fn comparison(text: &str) -> Option<(bool, f64)> {
    let least = text.trim().starts_with('>');
    let rest = text.trim().strip_prefix(['>', '<'])?;
    let value: f64 = rest.trim_start_matches('=').trim().parse().ok()?;
    (value.is_finite() && value > 0.0).then_some((least, value))
}

fn sides(reader: &mut Reader, at: &At, text: &str, base: &Settings, axes: &[Axis]) -> Option<GateOf> {
    let Some((a, b)) = text.split_once('/') else {
        let problem = Problem::new("bad-gate", &at.path, format!("`{text}` names no ratio")).label("no `/`");
        reader.push(problem.help("write `ratio: pr/base`, `ratio: peers=2/peers=1` or `ratio: \">= 0.95\"`"));
        return None;
    };
    let (a, b) = (a.trim(), b.trim());
    known_side(reader, at, a, base, axes)?;
    known_side(reader, at, b, base, axes)?;
    Some(GateOf::Ratio(a.to_owned(), b.to_owned()))
}

/// An arm, or a value of an axis.
fn known_side(reader: &mut Reader, at: &At, text: &str, base: &Settings, axes: &[Axis]) -> Option<()> {
    let value = |(name, value): (&str, &str)| {
        axes.iter().any(|axis| axis.name == name && axis.values.iter().any(|(tree, _)| word(tree) == value))
    };
    if base.arms.contains_key(text) || text.split_once('=').is_some_and(value) {
        return Some(());
    }
    let title = format!("`{text}` is no arm and no value of an axis");
    let help = format!("arms are {}", listed(base.arms.keys().map(String::as_str)));
    reader.push(Problem::new("unknown-arm", &at.path, title).label("not known here").help(help));
    None
}
