//! `chain.cosmos-sdk`.

use std::collections::BTreeMap;

use super::application;
use super::chain::{ChainSection, block_time, initial_height};
use crate::topology::diagnostic::Problem;
use crate::topology::reader::{At, Fields, Reader};
use crate::topology::types::{Build, Chain, CosmosSdk};

/// Files whose values a topology may change.
const FILES: &[&str] = &["config.toml", "app.toml"];
/// Highest number of base units for one unit of power: that of chains with 18 decimals.
const STAKE_MAX: u64 = 1_000_000_000_000_000_000;

pub(super) fn chain(reader: &mut Reader, at: &At) -> Option<ChainSection> {
    let known = [
        "binary",
        "image",
        "denom",
        "block_time",
        "initial_height",
        "stake_per_power",
        "genesis",
        "config",
        "arguments",
    ];
    application::refuse(reader, at)?;
    let fields = reader.map(at, "a map", "{ binary: simd }", &known)?;
    let initial_height = initial_height(reader, &fields);
    let block_time_ms = block_time(reader, &fields, 1_000);
    let build = build(reader, &fields);
    let denom = match fields.get("denom") {
        None => Some("stake".to_owned()),
        Some(at) => denom(reader, &at),
    };
    let stake_per_power = fields.get("stake_per_power").map_or(Some(1_000_000), |at| reader.whole(&at, 1, STAKE_MAX));
    let genesis = fields.get("genesis").map_or(Some(BTreeMap::new()), |at| changes(reader, &at));
    let config = match fields.get("config") {
        None => Some(BTreeMap::new()),
        Some(at) => {
            let files = reader.map(&at, "a map of files", "{ app.toml: { pruning: nothing } }", FILES)?;
            files.iter().map(|(file, at)| Some((file.to_owned(), changes(reader, &at)?))).collect()
        }
    };
    let arguments = match fields.get("arguments") {
        None => Some(Vec::new()),
        Some(at) => texts(reader, &at, "[--inv-check-period, \"10\"]"),
    };
    let family = Chain::CosmosSdk(CosmosSdk {
        build: build?,
        denom: denom?,
        block_time_ms: block_time_ms?,
        stake_per_power: stake_per_power?,
        genesis: genesis?,
        config: config?,
        arguments: arguments?,
    });
    Some(ChainSection { family, application: None, initial_height: initial_height?, built_blocks: 0 })
}

/// `binary` or `image`, one of the two.
pub(super) fn build(reader: &mut Reader, fields: &Fields) -> Option<Build> {
    let text = |reader: &mut Reader, key: &str, at: At, example: &str| {
        let text = reader.text(&at, example)?;
        if text.is_empty() {
            reader.push(Problem::new("empty", &at.path, format!("`{key}` is empty")).label("empty"));
            return None;
        }
        Some(text.to_owned())
    };
    match (fields.get("binary"), fields.get("image")) {
        (Some(at), None) => text(reader, "binary", at, "/usr/local/bin/node").map(Build::Binary),
        (None, Some(at)) => text(reader, "image", at, "node:v1").map(Build::Image),
        (Some(_), Some(at)) => {
            let problem = Problem::at_key("two-builds", &at.path, "a node is made from a program or from an image");
            reader.push(problem.label("one too many").help("keep `binary` or `image`"));
            None
        }
        (None, None) => {
            let title = format!("`{}` names neither program nor image", fields.path);
            let problem = Problem::at_key("missing-key", &fields.path, title).label("needs `binary` or `image`");
            reader.push(problem.help("add `binary: PATH`, a name on the search path, or `image: REFERENCE`"));
            None
        }
    }
}

/// What the SDK takes as a denomination.
fn denom(reader: &mut Reader, at: &At) -> Option<String> {
    let text = reader.text(at, "stake")?;
    let good = (3..=128).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "/:._-".contains(c));
    if !good {
        let title = "a denomination has 3 to 128 letters, digits, `/`, `:`, `.`, `_` or `-`, and begins with a letter";
        reader.push(Problem::new("bad-value", &at.path, title).label("cannot be a denomination"));
    }
    good.then(|| text.to_owned())
}

/// Paths and values.
pub(super) fn changes(reader: &mut Reader, at: &At) -> Option<BTreeMap<String, serde_json::Value>> {
    let fields =
        reader.any_map(at, "a map of paths and values", "{ app_state.gov.voting_params.voting_period: 30s }")?;
    let mut changes = BTreeMap::new();
    for (path, at) in fields.iter() {
        if path.is_empty() || path.split('.').any(str::is_empty) {
            let title = format!("`{path}` is no path: it has an empty step");
            reader.push(Problem::at_key("bad-value", &at.path, title).label("cannot be a path"));
            return None;
        }
        changes.insert(path.to_owned(), serde_json::to_value(at.tree).ok()?);
    }
    Some(changes)
}

/// A list of texts.
pub(super) fn texts(reader: &mut Reader, at: &At, example: &str) -> Option<Vec<String>> {
    let list = reader.list(at, "a list of texts", example)?;
    list.iter().map(|at| reader.text(at, "--flag").map(str::to_owned)).collect()
}
