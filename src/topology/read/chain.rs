//! `chain`: the node family, its options, and where the chain begins.

use std::collections::BTreeMap;

use super::{application, cosmos_sdk, custom};
use crate::topology::diagnostic::Problem;
use crate::topology::families::{
    BESIDE, COMETBFT_APPS, COMETBFT_DATABASES, COMETBFT_VERSIONS, GNOLAND_DATABASES, REFERENCE_OPTIONS, TENDERDASH_APPS,
};
use crate::topology::reader::{At, Fields, Reader, listed};
use crate::topology::tree::Tree;
use crate::topology::types::{Application, Chain, Cometbft, Gnoland, Reference, Tenderdash};
use crate::topology::units;

const FAMILIES: &[&str] = &["reference", "cometbft", "gnoland", "tenderdash", "cosmos-sdk", "custom"];
/// Highest number of blocks that are built before a run.
const BUILT_MAX: u64 = 10_000_000;
/// Highest height that a topology may name.
pub(super) const HEIGHT_MAX: u64 = 1_000_000_000_000;

/// What `chain` says.
pub(super) struct ChainSection {
    pub(super) family: Chain,
    pub(super) application: Option<Application>,
    pub(super) initial_height: u64,
    pub(super) built_blocks: u64,
}

pub(super) fn chain(reader: &mut Reader, at: &At) -> Option<ChainSection> {
    let example = "{ reference: { block_time: 200ms } }";
    let fields = reader.map(at, "a map with one node family", example, FAMILIES)?;
    let families: Vec<_> = fields.iter().filter(|(key, _)| FAMILIES.contains(key)).collect();
    match &families[..] {
        [("reference", at)] => reference(reader, at),
        [("custom", at)] => custom::chain(reader, at),
        [("cosmos-sdk", at)] => cosmos_sdk::chain(reader, at),
        [("gnoland", at)] => gnoland(reader, at),
        [("tenderdash", at)] => tenderdash(reader, at),
        [(_, at)] => cometbft(reader, at),
        [] => {
            let title = "`chain` names no node family";
            reader.push(Problem::at_key("missing-key", &fields.path, title).label("needs one").help(format!(
                "write `chain: {{ reference: {{}} }}`, or name one of {}",
                listed(FAMILIES.iter().copied())
            )));
            None
        }
        [_, (_, second), ..] => {
            let title = "a chain has one node family";
            reader.push(Problem::at_key("two-families", &second.path, title).label("one too many"));
            None
        }
    }
}

pub(super) fn initial_height(reader: &mut Reader, fields: &Fields) -> Option<u64> {
    fields.get("initial_height").map_or(Some(1), |at| reader.whole(&at, 1, HEIGHT_MAX))
}

pub(super) fn block_time(reader: &mut Reader, fields: &Fields, default_ms: u64) -> Option<u64> {
    let Some(at) = fields.get("block_time") else { return Some(default_ms) };
    let ms = reader.unit(&at, "200ms", units::duration_ms)?;
    if ms == 0 {
        reader.push(Problem::new("out-of-bounds", &at.path, "`block_time` must be above 0").label("found 0"));
        return None;
    }
    Some(ms)
}

fn reference(reader: &mut Reader, at: &At) -> Option<ChainSection> {
    let known = ["block_time", "start_from", "initial_height", "halt_height", "options"];
    application::refuse(reader, at)?;
    let fields = reader.map(at, "a map", "{ block_time: 200ms }", &known)?;
    let initial_height = initial_height(reader, &fields);
    let block_time_ms = block_time(reader, &fields, 1_000);
    let built_blocks = match fields.get("start_from") {
        None => Some(0),
        Some(at) => {
            let fields = reader.map(&at, "a map", "{ built_blocks: 3000 }", &["built_blocks"])?;
            let built = reader.required(&fields, "built_blocks", "built_blocks: 3000");
            built.and_then(|at| reader.whole(&at, 1, BUILT_MAX))
        }
    };
    let halt_height = match fields.get("halt_height") {
        None => Some(None),
        Some(at) => reader.whole(&at, 1, HEIGHT_MAX).map(Some),
    };
    let options = options(reader, &fields);
    let reference = Reference { block_time_ms: block_time_ms?, halt_height: halt_height?, options: options? };
    Some(ChainSection {
        family: Chain::Reference(reference),
        application: None,
        initial_height: initial_height?,
        built_blocks: built_blocks?,
    })
}

/// Settings for the node's own configuration, which checks their values itself.
pub(super) fn options(reader: &mut Reader, fields: &Fields) -> Option<BTreeMap<String, serde_json::Value>> {
    let Some(at) = fields.get("options") else { return Some(BTreeMap::new()) };
    let example = "{ verify_window: 16 }";
    let options = reader.map(&at, "a map of node settings", example, REFERENCE_OPTIONS)?;
    let values = options.iter().filter_map(|(key, at)| Some((key.to_owned(), serde_json::to_value(at.tree).ok()?)));
    Some(values.collect())
}

fn cometbft(reader: &mut Reader, at: &At) -> Option<ChainSection> {
    let known = ["app", "application", "version", "database", "block_time", "binary", "image", "initial_height"];
    let fields = reader.map(at, "a map", "{ app: persistent_kvstore }", &known)?;
    let version = version(reader, &fields);
    let initial_height = initial_height(reader, &fields);
    let block_time_ms = block_time(reader, &fields, 1_000);
    let (app, application) = app(reader, &fields, COMETBFT_APPS)?;
    let database = word(reader, &fields, "database", COMETBFT_DATABASES);
    let (binary, image) = build(reader, &fields, "/usr/local/bin/cometbft", "cometbft:v0.38.17")?;
    let family = Chain::Cometbft(Cometbft {
        app,
        version: version?,
        database: database?,
        block_time_ms: block_time_ms?,
        binary,
        image,
    });
    Some(ChainSection { family, application, initial_height: initial_height?, built_blocks: 0 })
}

/// The application: one of those in the node's own process, or one beside it.
fn app(reader: &mut Reader, fields: &Fields, built_in: &[&str]) -> Option<(String, Option<Application>)> {
    match fields.get("application") {
        None => Some((word(reader, fields, "app", built_in)?, None)),
        Some(at) => {
            if let Some(at) = fields.get("app") {
                let title = "the application is in the node's own process or beside it";
                let problem = Problem::at_key("two-applications", &at.path, title).label("one too many");
                reader.push(problem.help("keep `app` or `application`"));
            }
            Some((BESIDE.to_owned(), Some(application::application(reader, &at)?)))
        }
    }
}

/// A line of releases; a number that YAML reads as such is meant too.
fn version(reader: &mut Reader, fields: &Fields) -> Option<Option<String>> {
    let Some(at) = fields.get("version") else { return Some(None) };
    let known = COMETBFT_VERSIONS.iter().find(|known| match at.tree {
        Tree::Int(number) => number.to_string() == **known,
        Tree::Float(number) => number.to_string() == **known,
        _ => false,
    });
    match known {
        Some(known) => Some(Some((*known).to_owned())),
        None => reader.word(&at, COMETBFT_VERSIONS).map(|word| Some(word.to_owned())),
    }
}

fn gnoland(reader: &mut Reader, at: &At) -> Option<ChainSection> {
    let known = ["database", "block_time", "genesis", "root", "binary", "image"];
    application::refuse(reader, at)?;
    let fields = reader.map(at, "a map", "{ database: pebbledb }", &known)?;
    let block_time_ms = block_time(reader, &fields, 1_000);
    let database = word(reader, &fields, "database", GNOLAND_DATABASES);
    let genesis = text(reader, &fields, "genesis", "genesis.json");
    let root = text(reader, &fields, "root", "/src/gno");
    let (binary, image) = build(reader, &fields, "/usr/local/bin/gnoland", "gnoland:v1.7.1")?;
    let family = Chain::Gnoland(Gnoland {
        database: database?,
        block_time_ms: block_time_ms?,
        genesis: genesis?,
        root: root?,
        binary,
        image,
    });
    Some(ChainSection { family, application: None, initial_height: 1, built_blocks: 0 })
}

fn tenderdash(reader: &mut Reader, at: &At) -> Option<ChainSection> {
    let known = ["app", "application", "block_time", "binary", "image", "initial_height"];
    let fields = reader.map(at, "a map", "{ app: persistent_kvstore }", &known)?;
    let initial_height = initial_height(reader, &fields);
    let block_time_ms = block_time(reader, &fields, 1_000);
    let (app, application) = app(reader, &fields, TENDERDASH_APPS)?;
    let (binary, image) = build(reader, &fields, "/usr/local/bin/tenderdash", "tenderdash:1.5")?;
    let family = Chain::Tenderdash(Tenderdash { app, block_time_ms: block_time_ms?, binary, image });
    Some(ChainSection { family, application, initial_height: initial_height?, built_blocks: 0 })
}

/// One of some words, by default the first.
fn word(reader: &mut Reader, fields: &Fields, key: &str, known: &[&str]) -> Option<String> {
    match fields.get(key) {
        None => known.first().map(|&first| first.to_owned()),
        Some(at) => reader.word(&at, known).map(str::to_owned),
    }
}

/// Some text, if it is there.
fn text(reader: &mut Reader, fields: &Fields, key: &str, example: &str) -> Option<Option<String>> {
    let Some(at) = fields.get(key) else { return Some(None) };
    let text = reader.text(&at, example)?;
    if text.is_empty() {
        reader.push(Problem::new("empty", &at.path, format!("`{key}` is empty")).label("empty"));
        return None;
    }
    Some(Some(text.to_owned()))
}

pub(super) type Build = (Option<String>, Option<String>);

/// What nodes are made from: at most one of `binary` and `image`.
pub(super) fn build(reader: &mut Reader, fields: &Fields, binary_example: &str, image_example: &str) -> Option<Build> {
    let binary = text(reader, fields, "binary", binary_example);
    let image = text(reader, fields, "image", image_example);
    if let (Some(_), Some(at)) = (fields.get("binary"), fields.get("image")) {
        let problem = Problem::at_key("two-builds", &at.path, "a node is made from a program or from an image");
        reader.push(problem.label("one too many").help("keep `binary` or `image`"));
    }
    Some((binary?, image?))
}
