//! Reads values out of the tree and collects everything that is wrong on the way, so that all of it is told at once.

use std::collections::BTreeMap;

use super::diagnostic::Problem;
use super::path::Path;
use super::similar::nearest;
use super::tree::{Tree, shorten};

/// Longest list that a topology may hold.
const LIST_MAX: usize = 1_000;

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    pub(super) tree: &'a Tree,
    pub(super) path: Path,
}

/// The entries of a map, each key once.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    pub(super) path: Path,
    entries: Vec<(&'a str, At<'a>)>,
    /// Keys that are not known here.
    unknown: Vec<&'a str>,
}

impl<'a> Fields<'a> {
    /// The value under `key`.
    pub(super) fn get(&self, key: &str) -> Option<At<'a>> {
        self.entries.iter().find(|(name, _)| *name == key).map(|(_, at)| at.clone())
    }

    /// Whether there are keys that are not known here, which have been told.
    pub(super) fn has_unknown(&self) -> bool {
        !self.unknown.is_empty()
    }

    /// All of them, in file order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, At<'a>)> + '_ {
        self.entries.iter().map(|(key, at)| (*key, at.clone()))
    }
}

/// Collects problems.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) problems: Vec<Problem>,
}

impl Reader {
    pub(super) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// A value of the wrong type: `what` is what it should be, `example` how it could look.
    pub(super) fn wrong_type(&mut self, at: &At, what: &str, example: &str) {
        let whole = at.path == super::path::Path::root();
        let title = if whole { format!("the file must be {what}") } else { format!("`{}` must be {what}", at.path) };
        let label = format!("found {}", at.tree.describe());
        self.push(Problem::new("wrong-type", &at.path, title).label(label).help(format!("write it like `{example}`")));
    }

    /// A map with any keys. An empty value counts as an empty map.
    pub(super) fn any_map<'a>(&mut self, at: &At<'a>, what: &str, example: &str) -> Option<Fields<'a>> {
        let map: &[(String, Tree)] = match at.tree {
            Tree::Map(map) => map,
            Tree::Null => &[],
            _ => {
                self.wrong_type(at, what, example);
                return None;
            }
        };
        let mut entries: Vec<(&str, At)> = Vec::with_capacity(map.len());
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (key, tree) in map {
            let times = seen.entry(key).or_default();
            let before = *times;
            *times += 1;
            if before == 0 {
                entries.push((key, At { tree, path: at.path.key(key) }));
            } else {
                let path = at.path.nth_key(key, before);
                let title = format!("`{}` is given twice", at.path.key(key));
                self.push(
                    Problem::at_key("duplicate-key", &path, title).label("given before").help("keep one of the two"),
                );
            }
        }
        Some(Fields { path: at.path.clone(), entries, unknown: Vec::new() })
    }

    /// A map with these keys and no others.
    pub(super) fn map<'a>(&mut self, at: &At<'a>, what: &str, example: &str, known: &[&str]) -> Option<Fields<'a>> {
        let mut fields = self.any_map(at, what, example)?;
        for (key, at) in fields.iter().filter(|(key, _)| !known.contains(key)) {
            self.unknown_key(&at.path, key, known);
        }
        fields.unknown = fields.iter().map(|(key, _)| key).filter(|key| !known.contains(key)).collect();
        Some(fields)
    }

    fn unknown_key(&mut self, path: &Path, key: &str, known: &[&str]) {
        let label = nearest(key, known.iter().copied())
            .map_or_else(|| "not known here".to_owned(), |meant| format!("did you mean `{meant}`?"));
        let help = format!("known here: {}", listed(known.iter().copied()));
        let title = format!("unknown key `{}`", shorten(key));
        self.push(Problem::at_key("unknown-key", path, title).label(label).help(help));
    }

    /// A value that must be there.
    pub(super) fn required<'a>(&mut self, fields: &Fields<'a>, key: &str, example: &str) -> Option<At<'a>> {
        let found = fields.get(key);
        let misspelt = fields.unknown.iter().any(|unknown| nearest(unknown, [key]).is_some());
        if found.is_none() && !misspelt {
            let title = if fields.path.steps.is_empty() {
                format!("`{key}` is missing")
            } else {
                format!("`{key}` is missing in `{}`", fields.path)
            };
            self.push(
                Problem::at_key("missing-key", &fields.path, title)
                    .label(format!("needs `{key}`"))
                    .help(format!("add `{example}`")),
            );
        }
        found
    }

    /// Text.
    pub(super) fn text<'a>(&mut self, at: &At<'a>, example: &str) -> Option<&'a str> {
        match at.tree {
            Tree::Text(text) => Some(text),
            Tree::Int(_) | Tree::Float(_) | Tree::Bool(_) => {
                self.wrong_type(at, "text, in quotes where it looks like something else", example);
                None
            }
            _ => {
                self.wrong_type(at, "text", example);
                None
            }
        }
    }

    /// One of some words.
    pub(super) fn word<'a>(&mut self, at: &At<'a>, known: &[&str]) -> Option<&'a str> {
        let text = self.text(at, known.first().copied().unwrap_or_default())?;
        if known.contains(&text) {
            return Some(text);
        }
        let label = nearest(text, known.iter().copied())
            .map_or_else(|| "not known here".to_owned(), |meant| format!("did you mean `{meant}`?"));
        let title = format!("`{}` is not a value of `{}`", shorten(text), at.path);
        let help = format!("one of {}", listed(known.iter().copied()));
        self.push(Problem::new("unknown-value", &at.path, title).label(label).help(help));
        None
    }

    /// A whole number between two bounds, both allowed.
    pub(super) fn whole(&mut self, at: &At, min: u64, max: u64) -> Option<u64> {
        let Tree::Int(value) = at.tree else {
            self.wrong_type(at, "a whole number", &min.max(1).to_string());
            return None;
        };
        let found = u64::try_from(*value).ok().filter(|value| (min..=max).contains(value));
        if found.is_none() {
            let title = format!("`{}` must be between {min} and {max}", at.path);
            self.push(Problem::new("out-of-bounds", &at.path, title).label(format!("found {value}")));
        }
        found
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, at: &At) -> Option<bool> {
        if let Tree::Bool(value) = at.tree {
            return Some(*value);
        }
        self.wrong_type(at, "`true` or `false`", "true");
        None
    }

    /// A number with a unit, read by one of the functions of `units`.
    pub(super) fn unit<T>(&mut self, at: &At, example: &str, read: fn(&str) -> Result<T, String>) -> Option<T> {
        let text = match at.tree {
            Tree::Text(text) => text.clone(),
            Tree::Int(number) => number.to_string(),
            Tree::Float(number) => number.to_string(),
            _ => {
                self.wrong_type(at, "a number with a unit", example);
                return None;
            }
        };
        match read(text.trim()) {
            Ok(value) => Some(value),
            Err(why) => {
                let bare = matches!(at.tree, Tree::Int(_) | Tree::Float(_));
                let label = if bare { "the unit is missing" } else { "cannot be read" };
                self.push(
                    Problem::new("bad-value", &at.path, why).label(label).help(format!("write it like `{example}`")),
                );
                None
            }
        }
    }

    /// A list, each element with its place.
    pub(super) fn list<'a>(&mut self, at: &At<'a>, what: &str, example: &str) -> Option<Vec<At<'a>>> {
        let Tree::List(list) = at.tree else {
            self.wrong_type(at, what, example);
            return None;
        };
        if list.len() > LIST_MAX {
            let title = format!("`{}` has {} entries; a list has at most {LIST_MAX}", at.path, list.len());
            self.push(Problem::new("out-of-bounds", &at.path, title).label("too long"));
            return None;
        }
        Some(list.iter().enumerate().map(|(index, tree)| At { tree, path: at.path.index(index) }).collect())
    }
}

/// Words for a sentence: "`a`, `b`, `c`".
pub(crate) fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
