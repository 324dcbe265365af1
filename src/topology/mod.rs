//! YAML to checked types, with diagnostics that name the place and the mend.
//!
//! [`load`] is the way in: text and `--set` arguments become a [`Topology`], or all the [`Problems`] that stand against it.
//! `topologies/README.md` describes the language.

pub mod bench;
mod check;
mod diagnostic;
mod families;
mod locate;
mod path;
mod read;
mod reader;
mod set;
mod similar;
#[cfg(test)]
mod tests;
mod tree;
mod types;
mod units;

pub use diagnostic::{Problem, Problems, Source};
pub use families::{APPLICATION_STORES, BESIDE};
pub use path::Path;
pub(crate) use reader::listed;
pub(crate) use similar::nearest;
pub use types::{
    Application, Build, Chain, Cometbft, CosmosSdk, Custom, CustomSetUp, CustomStep, Fault, Gnoland, Group, Load, Made,
    Peers, Reference, Start, Target, Tenderdash, Topology, Trigger, Upgrade,
};
pub use units::Delay;

use std::io::Read as _;

use tree::Tree;

/// A topology that can be run, with what it was read from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The checked types.
    pub topology: Topology,
    /// For showing problems that are found later.
    pub source: Source,
    /// The file with all `--set` arguments carried out, as YAML that reads back as the same topology.
    pub resolved: String,
    /// What is allowed and worth knowing, a sentence each.
    pub notes: Vec<String>,
}

/// Reads a topology. `file` is its name for messages; `sets` are `path=value` arguments, carried out in order before types
/// are checked.
///
/// # Errors
/// Everything that is wrong, with places; nothing has been created. Never panics, whatever the bytes.
pub fn load(file: &str, bytes: &[u8], sets: &[String]) -> Result<Loaded, Problems> {
    let mut source = Source { file: file.to_owned(), text: String::new(), sets: Vec::new() };
    let mut tree = match read_text(bytes, &mut source).and_then(|()| read_tree(&source.text)) {
        Ok(tree) => tree,
        Err(list) => return Err(Problems::new(&source, list)),
    };
    let mut problems = Vec::new();
    for (index, argument) in sets.iter().enumerate() {
        let applied = set::apply(&mut tree, argument);
        source.sets.push((applied.as_ref().ok().cloned(), argument.clone()));
        if let Err(why) = applied {
            problems.push(Problem::in_argument("bad-set", index, why).label("cannot be set"));
        }
    }
    let mut reader = reader::Reader { problems };
    let topology = read::topology(&mut reader, &tree);
    if let Some(topology) = &topology {
        let before = reader.problems.len();
        reader.problems.extend(check::check(topology, before == 0));
    }
    match topology {
        Some(topology) if reader.problems.is_empty() => {
            let resolved = if sets.is_empty() { source.text.clone() } else { write(&tree) };
            let notes = check::notes(&topology);
            Ok(Loaded { topology, source, resolved, notes })
        }
        _ => Err(Problems::new(&source, reader.problems)),
    }
}

fn write(tree: &Tree) -> String {
    serde_yaml::to_string(tree).expect("a tree of plain values can always be written")
}

/// The bytes of a file, and no more of a larger one than shows that it is too large: a device may have no end.
///
/// # Errors
/// When it cannot be read.
pub fn read(file: &std::path::Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(tree::BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Bytes to text, within the limits.
fn read_text(bytes: &[u8], source: &mut Source) -> Result<(), Vec<Problem>> {
    if bytes.len() > tree::BYTES_MAX {
        let title = format!("the file is larger than the {} bytes that a topology has at most", tree::BYTES_MAX);
        return Err(vec![Problem::at_span("too-large", 0..0, title)]);
    }
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            text.clone_into(&mut source.text);
            Ok(())
        }
        Err(error) => {
            let valid = error.valid_up_to();
            source.text = String::from_utf8_lossy(bytes).into_owned();
            let problem = Problem::at_span("not-utf-8", valid..valid + 3, "the file is not UTF-8 text");
            Err(vec![problem.label("this byte is no text")])
        }
    }
}

/// Text to a tree. Tabs are looked for before the parser sees them, since its message would be about something else.
fn read_tree(text: &str) -> Result<Tree, Vec<Problem>> {
    let tabs = tabs(text);
    if !tabs.is_empty() {
        return Err(tabs);
    }
    tree::parse(text).map_err(|error| {
        let at = error.location().map_or(0, |location| location.index());
        let whole = error.to_string();
        // The parser repeats the place, which is shown anyway.
        let title = whole.split(" at line ").next().unwrap_or(&whole).to_owned();
        let problem = Problem::at_span("not-yaml", locate::span_from(text, at), title).label("reading stopped here");
        vec![problem.help("a text with `: `, `#`, `{`, `[`, `*` or `&` in it needs quotes")]
    })
}

/// Tabs in front of something, which YAML does not take as indentation.
fn tabs(text: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let indent = &line[..line.len() - line.trim_start().len()];
        let rest = line.trim_start();
        if let Some(tab) = indent.find('\t').filter(|_| !rest.is_empty() && !rest.starts_with('#')) {
            let at = start + tab;
            let problem = Problem::at_span("tab", at..at + 1, "tab not allowed").label("a tab");
            found.push(problem.help("indent with spaces"));
        }
        start += line.len();
    }
    found
}
