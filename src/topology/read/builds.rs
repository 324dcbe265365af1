//! `builds`: programs and images by name, for groups and upgrades.

use indexmap::IndexMap;

use super::chain;
use super::faults::{Known, names};
use crate::topology::diagnostic::Problem;
use crate::topology::reader::{At, Fields, Reader, listed};
use crate::topology::similar::nearest;
use crate::topology::types::{Chain, Made, Target, Upgrade};
use crate::topology::units;

/// All builds; `None` when one cannot be read.
pub(super) fn builds(reader: &mut Reader, at: &At, chain: Option<&Chain>) -> Option<IndexMap<String, Made>> {
    let example = "{ old: { binary: /opt/old/cometbft }, new: { binary: /opt/new/cometbft } }";
    if let Some(Chain::Reference(_)) = chain {
        let problem = Problem::at_key("not-of-this-family", &at.path, "a reference node is always midflush itself");
        reader.push(problem.label("not for this chain"));
        return None;
    }
    let mut builds = IndexMap::new();
    for (name, at) in reader.any_map(at, "a map of builds", example)?.iter() {
        let fields = reader.map(&at, "a map", "{ binary: /opt/new/cometbft }", &["binary", "image"])?;
        let (binary, image) = chain::build(reader, &fields, "/opt/new/cometbft", "cometbft:v0.38.21")?;
        if binary.is_none() && image.is_none() && !fields.has_unknown() {
            let problem = Problem::at_key("missing-key", &at.path, format!("build `{name}` is made from nothing"));
            reader.push(problem.label("needs one").help("write `binary: PATH` or `image: REFERENCE`"));
        }
        builds.insert(name.to_owned(), Made { binary, image });
    }
    Some(builds)
}

/// The name of a build, where one is named.
pub(super) fn named(reader: &mut Reader, at: &At, builds: Option<&IndexMap<String, Made>>) -> Option<String> {
    let name = reader.text(at, "new")?;
    // Builds that could not be read have their own problem.
    let Some(builds) = builds else { return Some(name.to_owned()) };
    if builds.contains_key(name) {
        return Some(name.to_owned());
    }
    let known = || builds.keys().map(String::as_str);
    let label =
        nearest(name, known()).map_or_else(|| "no such build".to_owned(), |meant| format!("did you mean `{meant}`?"));
    let help = if builds.is_empty() {
        "add `builds: { new: { binary: PATH } }` at the top".to_owned()
    } else {
        format!("builds are {}", listed(known()))
    };
    reader.push(Problem::new("unknown-build", &at.path, format!("there is no build `{name}`")).label(label).help(help));
    None
}

/// `upgrade: { node: val, to: new, pace: 20s }`.
pub(super) fn upgrade(reader: &mut Reader, at: &At, known: &Known) -> Option<(Target, Upgrade)> {
    let fields: Fields = reader.map(at, "a map", "{ node: val, to: new }", &["node", "to", "pace"])?;
    let nodes = reader.required(&fields, "node", "node: val").and_then(|at| names(reader, &at, known));
    let to = reader.required(&fields, "to", "to: new").and_then(|at| named(reader, &at, known.builds));
    let pace_ms = match fields.get("pace") {
        None => Some(None),
        Some(at) => reader.unit(&at, "20s", units::duration_ms).map(Some),
    };
    Some((Target { nodes: nodes?, one_of: false }, Upgrade { to: to?, pace_ms: pace_ms? }))
}
