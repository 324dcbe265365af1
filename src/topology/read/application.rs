//! `application` of a node family: a program in a process of its own beside each node, which it serves over ABCI.

use std::collections::BTreeMap;

use super::cosmos_sdk::{build, texts};
use super::custom;
use crate::timeline::{Commit, Layout};
use crate::topology::diagnostic::Problem;
use crate::topology::families::APPLICATION_STORES;
use crate::topology::reader::{At, Fields, Reader};
use crate::topology::tree::Tree;
use crate::topology::types::Application;

const KEYS: &[&str] = &["binary", "image", "command", "env", "files", "stores", "flush", "height_mark", "log"];

pub(super) fn application(reader: &mut Reader, at: &At) -> Option<Application> {
    let example = "{ binary: abci-app, command: [--address, \"{{ node.application.address }}\"] }";
    let fields = reader.map(at, "a map", example, KEYS)?;
    let build = build(reader, &fields);
    let command = fields
        .get("command")
        .map_or(Some(Vec::new()), |at| texts(reader, &at, "[--address, \"{{ node.application.address }}\"]"));
    let env = fields.get("env").map_or(Some(BTreeMap::new()), |at| custom::named_texts(reader, &at, "{ NAME: value }"));
    let files = fields.get("files").map_or(Some(BTreeMap::new()), |at| custom::files(reader, &at));
    let layout = layout(reader, &fields);
    Some(Application { build: build?, command: command?, env: env?, files: files?, layout: layout? })
}

/// Refuses one for a family whose nodes have none beside them.
pub(super) fn refuse(reader: &mut Reader, at: &At) -> Option<()> {
    let Tree::Map(entries) = at.tree else { return Some(()) };
    if !entries.iter().any(|(key, _)| key == "application") {
        return Some(());
    }
    let title = "nodes of this family have their application in their own process";
    let problem = Problem::at_key("not-of-this-family", &at.path.key("application"), title);
    reader.push(problem.label("not for this chain").help("`cometbft`, `tenderdash` and `custom` take one beside"));
    None
}

fn layout(reader: &mut Reader, fields: &Fields) -> Option<Layout> {
    let stores = fields.get("stores").map_or(Some(Vec::new()), |at| custom::stores_of(reader, &at));
    let names: Vec<String> = stores.iter().flatten().map(|store| store.name.clone()).collect();
    let flush = match fields.get("flush") {
        // Writes can be aimed at wherever a store is known.
        None => Some(names.iter().map(|name| Commit { store: name.clone(), ..written() }).collect()),
        Some(at) => {
            let list = reader.list(&at, "a list of commits", "[{ store: state, sync: 1, what: state }]")?;
            list.iter().map(|at| commit(reader, at, &names)).collect::<Option<Vec<_>>>()
        }
    };
    let height_mark = custom::height_mark(reader, fields, &names);
    let log_marks = match fields.get("log") {
        None => Some(Vec::new()),
        Some(at) => {
            let log = reader.map(&at, "a map", "{ troubles: { panic: [\"panic: \"] } }", &["troubles"])?;
            let troubles = log.get("troubles").map_or(Some(Vec::new()), |at| custom::troubles(reader, &at));
            troubles.and_then(|marks| custom::some_text(reader, &at, marks))
        }
    };
    let mut layout = Layout { stores: stores?, flush: flush?, height_mark: height_mark?, log_marks: log_marks? };
    let own = |name: &mut String| name.insert_str(0, APPLICATION_STORES);
    layout.stores.iter_mut().for_each(|store| own(&mut store.name));
    layout.flush.iter_mut().for_each(|commit| own(&mut commit.store));
    layout.height_mark.iter_mut().for_each(|mark| own(&mut mark.store));
    Some(layout)
}

/// Its output tells neither mode nor heights, so that a commit has no key for them.
fn commit(reader: &mut Reader, at: &At, stores: &[String]) -> Option<Commit> {
    let example = "{ store: state, sync: 1, what: state }";
    let fields = reader.map(at, "a map", example, &["store", "sync", "what"])?;
    let store = reader.required(&fields, "store", "store: state");
    let store = store.and_then(|at| custom::store_name(reader, &at, stores));
    let sync = match fields.get("sync") {
        None => Some(None),
        Some(at) => reader.whole(&at, 1, 1_000).and_then(|sync| u32::try_from(sync).ok()).map(Some),
    };
    let what = fields.get("what").map_or(Some(""), |at| reader.text(&at, "state"));
    Some(Commit { store: store?, sync: sync?, what: what?.to_owned(), ..written() })
}

/// A commit that is written and never synced.
fn written() -> Commit {
    Commit { store: String::new(), sync: None, modes: Vec::new(), advances: None, what: String::new() }
}
