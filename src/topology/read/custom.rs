//! `chain.custom`: a node family described in the topology.

use std::collections::BTreeMap;

use super::application;
use super::chain::{ChainSection, block_time, initial_height};
use super::cosmos_sdk::{build, changes, texts};
use crate::timeline::{Commit, HeightKind, HeightMark, Layout, LogMark, LogMeaning, Mode, Store};
use crate::topology::diagnostic::Problem;
use crate::topology::reader::{At, Fields, Reader, listed};
use crate::topology::types::{Chain, Custom, CustomSetUp, CustomStep};

const KEYS: &[&str] = &[
    "binary",
    "image",
    "command",
    "env",
    "files",
    "changes",
    "set_up",
    "transaction",
    "rpc",
    "block_time",
    "initial_height",
    "stores",
    "flush",
    "height_mark",
    "log",
    "application",
];
/// RPC shapes that can be named.
const RPC: &[&str] = &["cometbft"];
const MODES: &[&str] = &["consensus", "block_sync", "replay"];
const HEIGHTS: &[&str] = &["app", "state", "store"];

pub(super) fn chain(reader: &mut Reader, at: &At) -> Option<ChainSection> {
    let fields = reader.map(at, "a map", "{ binary: node, command: [start], stores: { … } }", KEYS)?;
    let initial_height = initial_height(reader, &fields);
    let block_time_ms = block_time(reader, &fields, 1_000);
    let build = build(reader, &fields);
    let command = fields
        .get("command")
        .map_or(Some(Vec::new()), |at| texts(reader, &at, "[start, --home, \"{{ node.place.home }}\"]"));
    let env = fields.get("env").map_or(Some(BTreeMap::new()), |at| named_texts(reader, &at, "{ NAME: value }"));
    let files = fields.get("files").map_or(Some(BTreeMap::new()), |at| files(reader, &at));
    let changed = match fields.get("changes") {
        None => Some(BTreeMap::new()),
        Some(at) => {
            let files = reader.any_map(&at, "a map of files", "{ config/app.toml: { grpc.enable: false } }")?;
            files.iter().map(|(file, at)| Some((file.to_owned(), changes(reader, &at)?))).collect()
        }
    };
    let set_up = fields.get("set_up").map_or(Some(None), |at| set_up(reader, &at).map(Some));
    let transaction = match fields.get("transaction") {
        None => Some(None),
        Some(at) => {
            reader.text(&at, "k{{ transaction.number }}={{ transaction.filling }}").map(|text| Some(text.to_owned()))
        }
    };
    let rpc = fields.get("rpc").map_or(Some("cometbft"), |at| reader.word(&at, RPC).map(|_| "cometbft"));
    let layout = layout(reader, &fields);
    let application =
        fields.get("application").map_or(Some(None), |at| application::application(reader, &at).map(Some));
    if let (Some(at), Some(layout), Some(Some(beside))) = (fields.get("stores"), &layout, &application) {
        let twice = layout.stores.iter().find(|own| beside.layout.stores.iter().any(|other| other.name == own.name));
        if let Some(Store { name, .. }) = twice {
            let title = format!("the node has a store `{name}`, and so has the application beside it");
            let problem = Problem::at_key("duplicate-store", &at.path.key(name), title).label("named twice");
            reader
                .push(problem.help("stores of an application are called `app/NAME`: give one of the two another name"));
        }
    }
    rpc?;
    let family = Chain::Custom(Box::new(Custom {
        build: build?,
        block_time_ms: block_time_ms?,
        command: command?,
        env: env?,
        files: files?,
        changes: changed?,
        set_up: set_up?,
        transaction: transaction?,
        layout: layout?,
    }));
    Some(ChainSection { family, application: application?, initial_height: initial_height?, built_blocks: 0 })
}

pub(super) fn named_texts(reader: &mut Reader, at: &At, example: &str) -> Option<BTreeMap<String, String>> {
    let fields = reader.any_map(at, "a map of texts", example)?;
    fields.iter().map(|(key, at)| Some((key.to_owned(), reader.text(&at, "text")?.to_owned()))).collect()
}

/// Files by path below the node's home, where they stay.
pub(super) fn files(reader: &mut Reader, at: &At) -> Option<BTreeMap<String, String>> {
    let fields = reader.any_map(at, "a map of files and their text", "{ config/config.toml: \"moniker = …\" }")?;
    let mut files = BTreeMap::new();
    for (path, at) in fields.iter() {
        below_home(reader, path, &at)?;
        files.insert(path.to_owned(), reader.text(&at, "text")?.to_owned());
    }
    Some(files)
}

fn below_home(reader: &mut Reader, path: &str, at: &At) -> Option<()> {
    let good = !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !good {
        let title = format!("`{path}` is no path below the node's home");
        reader.push(Problem::at_key("bad-path", &at.path, title).label("must stay below home"));
    }
    good.then_some(())
}

fn set_up(reader: &mut Reader, at: &At) -> Option<CustomSetUp> {
    let fields = reader.map(
        at,
        "a map",
        "{ steps: [{ run: [init] }], keep: [config/genesis.json] }",
        &["files", "steps", "keep"],
    )?;
    let files = fields.get("files").map_or(Some(BTreeMap::new()), |at| files(reader, &at));
    let steps = reader.required(&fields, "steps", "steps: [{ run: [init] }]").and_then(|at| {
        let list = reader.list(&at, "a list of steps", "[{ run: [init] }]")?;
        list.iter().map(|at| step(reader, at)).collect::<Option<Vec<_>>>()
    });
    let keep = reader.required(&fields, "keep", "keep: [config/genesis.json]");
    let keep = keep.and_then(|at| texts(reader, &at, "[config/genesis.json]"));
    Some(CustomSetUp { files: files?, steps: steps?, keep: keep? })
}

fn step(reader: &mut Reader, at: &At) -> Option<CustomStep> {
    let fields = reader.map(at, "a map", "{ run: [init] }", &["run", "or", "input"])?;
    let run = reader.required(&fields, "run", "run: [init]").and_then(|at| texts(reader, &at, "[init]"));
    let or = fields.get("or").map_or(Some(None), |at| texts(reader, &at, "[init]").map(Some));
    let input = fields.get("input").map_or(Some(""), |at| reader.text(&at, "text"));
    Some(CustomStep { run: run?, or: or?, input: input?.to_owned() })
}

fn layout(reader: &mut Reader, fields: &Fields) -> Option<Layout> {
    let stores = reader.required(fields, "stores", "stores: { state.db: { paths: [data/state.db/] } }");
    let stores = stores.and_then(|at| stores_of(reader, &at));
    let names: Vec<String> = stores.iter().flatten().map(|store| store.name.clone()).collect();
    let flush = reader.required(fields, "flush", "flush: [{ store: state.db, sync: 1, what: state }]").and_then(|at| {
        let list = reader.list(&at, "a list of commits", "[{ store: state.db, sync: 1, what: state }]")?;
        list.iter().map(|at| commit(reader, at, &names)).collect::<Option<Vec<_>>>()
    });
    let height_mark = height_mark(reader, fields, &names);
    let log_marks = fields.get("log").map_or(Some(Vec::new()), |at| log(reader, &at));
    Some(Layout { stores: stores?, flush: flush?, height_mark: height_mark?, log_marks: log_marks? })
}

/// How a height shows in what is written, where that is told.
pub(super) fn height_mark(reader: &mut Reader, fields: &Fields, stores: &[String]) -> Option<Option<HeightMark>> {
    let Some(at) = fields.get("height_mark") else { return Some(None) };
    let mark = reader.map(&at, "a map", "{ store: blockstore.db, prefix: \"H:\" }", &["store", "prefix"])?;
    let store = reader.required(&mark, "store", "store: blockstore.db");
    let store = store.and_then(|at| store_name(reader, &at, stores));
    let prefix = reader.required(&mark, "prefix", "prefix: \"H:\"");
    let prefix = prefix.and_then(|at| reader.text(&at, "\"H:\""));
    Some(Some(HeightMark { store: store?, prefix: prefix?.to_owned() }))
}

pub(super) fn stores_of(reader: &mut Reader, at: &At) -> Option<Vec<Store>> {
    let fields = reader.any_map(at, "a map of stores", "{ state.db: { paths: [data/state.db/] } }")?;
    let mut stores = Vec::new();
    for (name, at) in fields.iter() {
        let store = reader.map(&at, "a map", "{ paths: [data/state.db/] }", &["paths", "except"])?;
        let paths = reader.required(&store, "paths", "paths: [data/state.db/]");
        let paths = paths.and_then(|at| texts(reader, &at, "[data/state.db/]"));
        let except = store.get("except").map_or(Some(Vec::new()), |at| texts(reader, &at, "[LOG, \"*.ldb\"]"));
        stores.push(Store { name: name.to_owned(), paths: paths?, except: except? });
    }
    Some(stores)
}

/// The name of a store that is there.
pub(super) fn store_name(reader: &mut Reader, at: &At, known: &[String]) -> Option<String> {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    reader.word(at, &known).map(str::to_owned)
}

fn commit(reader: &mut Reader, at: &At, stores: &[String]) -> Option<Commit> {
    let example = "{ store: state.db, sync: 1, advances: state, what: state }";
    let fields = reader.map(at, "a map", example, &["store", "sync", "modes", "advances", "what"])?;
    let store = reader.required(&fields, "store", "store: state.db").and_then(|at| store_name(reader, &at, stores));
    let sync = match fields.get("sync") {
        None => Some(None),
        Some(at) => reader.whole(&at, 1, 1_000).and_then(|sync| u32::try_from(sync).ok()).map(Some),
    };
    let modes = match fields.get("modes") {
        None => Some(Vec::new()),
        Some(at) => {
            let list = reader.list(&at, "a list of modes", "[consensus]")?;
            list.iter().map(|at| reader.word(at, MODES).map(mode)).collect()
        }
    };
    let advances = match fields.get("advances") {
        None => Some(None),
        Some(at) => reader.word(&at, HEIGHTS).map(|word| {
            Some(match word {
                "app" => HeightKind::App,
                "state" => HeightKind::State,
                _ => HeightKind::Store,
            })
        }),
    };
    let what = fields.get("what").map_or(Some(""), |at| reader.text(&at, "state"));
    Some(Commit { store: store?, sync: sync?, modes: modes?, advances: advances?, what: what?.to_owned() })
}

fn mode(word: &str) -> Mode {
    match word {
        "consensus" => Mode::Consensus,
        "block_sync" => Mode::BlockSync,
        _ => Mode::Replay,
    }
}

/// Lines of output that tell something: each a list of short texts that all occur in it.
fn log(reader: &mut Reader, at: &At) -> Option<Vec<LogMark>> {
    let fields = reader.map(
        at,
        "a map",
        "{ handshake: { line: [ABCI Replay Blocks] } }",
        &["handshake", "modes", "troubles"],
    )?;
    let mut marks = Vec::new();
    let example = "[Starting State service]";
    if let Some(at) = fields.get("handshake") {
        let shake = reader.map(&at, "a map", "{ line: [ABCI Replay Blocks] }", &["line", "app", "state", "store"])?;
        let line = reader.required(&shake, "line", "line: [ABCI Replay Blocks]");
        let tokens = line.and_then(|at| texts(reader, &at, "[ABCI Replay Blocks]"))?;
        let mut key = |name: &str, usual: &str| match shake.get(name) {
            None => Some(usual.to_owned()),
            Some(at) => reader.text(&at, usual).map(str::to_owned),
        };
        let (app, state, store) =
            (key("app", "appHeight")?, key("state", "stateHeight")?, key("store", "storeHeight")?);
        marks.push(LogMark { tokens, meaning: LogMeaning::Handshake { app, state, store } });
    }
    if let Some(at) = fields.get("modes") {
        let modes = reader.map(&at, "a map of modes", "{ consensus: [Starting State service] }", MODES)?;
        for (name, at) in modes.iter().filter(|(name, _)| MODES.contains(name)) {
            marks.push(LogMark { tokens: texts(reader, &at, example)?, meaning: LogMeaning::Mode(mode(name)) });
        }
    }
    if let Some(at) = fields.get("troubles") {
        marks.extend(troubles(reader, &at)?);
    }
    some_text(reader, at, marks)
}

/// Lines that tell of trouble, by class.
pub(super) fn troubles(reader: &mut Reader, at: &At) -> Option<Vec<LogMark>> {
    let classes = reader.any_map(at, "a map of troubles", "{ app-ahead: [is higher than core] }")?;
    let mark = |(class, at): (&str, At)| {
        let meaning = LogMeaning::Trouble { class: class.to_owned() };
        Some(LogMark { tokens: texts(reader, &at, "[is higher than core]")?, meaning })
    };
    classes.iter().map(mark).collect()
}

/// A mark without any text would match every line.
pub(super) fn some_text(reader: &mut Reader, at: &At, marks: Vec<LogMark>) -> Option<Vec<LogMark>> {
    let Some(empty) = marks.iter().position(|mark| mark.tokens.is_empty()) else { return Some(marks) };
    let title = format!("the {} line of `log` has no text, so that every line would match it", empty + 1);
    let help = format!("known here: {}", listed(["handshake", "modes", "troubles"]));
    reader.push(Problem::at_key("empty", &at.path, title).label("matches everything").help(help));
    None
}
