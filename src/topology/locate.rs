//! The place of a value in the text, found by reading the text once more along its path and failing there:
//! serde_yaml tells positions only in errors.

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::path::{Path, Step};
use super::tree::KeySeed;

/// Which part of a map's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spot {
    /// The value.
    #[default]
    Value,
    /// The key in front of it.
    Key,
}

/// The bytes of `text` that hold the value, or the key, at `path`. Falls back to the nearest place above it.
pub(super) fn locate(text: &str, path: &Path, spot: Spot) -> Option<Range<usize>> {
    if path.steps.is_empty() {
        return first_line(text);
    }
    let walk = Walk { steps: &path.steps, spot };
    let found = walk
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .err()
        .filter(|error| error.to_string().contains(HERE))
        .and_then(|error| Some(span_from(text, error.location()?.index())));
    found.or_else(|| {
        let above = Path { steps: path.steps[..path.steps.len() - 1].to_vec() };
        let keyed = matches!(above.steps.last(), Some(Step::Key(..)));
        locate(text, &above, if keyed { Spot::Key } else { Spot::Value })
    })
}

/// The first line with something on it.
fn first_line(text: &str) -> Option<Range<usize>> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        if !bare.is_empty() && !bare.starts_with('#') {
            return Some(start..start + line.trim_end().len());
        }
        start += line.len();
    }
    (!text.is_empty()).then_some(0..text.len().min(1))
}

/// The token that begins at the given byte.
pub(super) fn span_from(text: &str, byte: usize) -> Range<usize> {
    let mut start = byte.min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    start..start + token_length(&text[start..])
}

fn token_length(rest: &str) -> usize {
    let line = rest.split(['\n', '\r']).next().unwrap_or_default();
    for quote in ['"', '\''] {
        if let Some(inner) = line.strip_prefix(quote) {
            return inner.find(quote).map_or(line.trim_end().len(), |end| end + 2);
        }
    }
    if line.starts_with(['{', '[']) {
        return matching(line).unwrap_or(1);
    }
    let ends = [": ", " #", ",", "}", "]"].iter().filter_map(|end| line.find(end)).min();
    let token = &line[..ends.unwrap_or(line.len())];
    let token = token.trim_end();
    token.strip_suffix(':').unwrap_or(token).len().max(usize::from(!line.is_empty()))
}

/// Length of a flow collection that closes on the same line.
fn matching(line: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (position, c) in line.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(position + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Marks the error that is no error.
const HERE: &str = "\u{1}here";

#[derive(Clone, Copy)]
struct Walk<'a> {
    steps: &'a [Step],
    spot: Spot,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.steps.is_empty() { deserializer.deserialize_any(Stop) } else { deserializer.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((Step::Key(wanted, nth), below)) = self.steps.split_first() else {
            return Err(A::Error::custom("a map where a list was expected"));
        };
        let stop_at_key = below.is_empty() && self.spot == Spot::Key;
        let mut seen = 0;
        loop {
            let key = KeyWalk { wanted, skip: nth.checked_sub(seen).filter(|_| stop_at_key) };
            let Some(key) = access.next_key_seed(key)? else { return Ok(()) };
            if key != *wanted {
                access.next_value::<IgnoredAny>()?;
                continue;
            }
            if seen == *nth {
                return access.next_value_seed(Self { steps: below, spot: self.spot });
            }
            seen += 1;
            access.next_value::<IgnoredAny>()?;
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((Step::Index(wanted), below)) = self.steps.split_first() else {
            return Err(A::Error::custom("a list where a map was expected"));
        };
        for _ in 0..*wanted {
            if access.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        access.next_element_seed(Self { steps: below, spot: self.spot }).map(|_| ())
    }
}

/// Reads a key and fails at the wanted one, when `skip` says that no equal key comes before it.
struct KeyWalk<'a> {
    wanted: &'a str,
    skip: Option<usize>,
}

impl<'de> DeserializeSeed<'de> for KeyWalk<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! keys_as_text {
    ($($visit:ident: $kind:ty),*) => {$(
        fn $visit<E: Error>(self, value: $kind) -> Result<String, E> {
            let key = KeySeed.$visit(value)?;
            if self.skip == Some(0) && key == self.wanted { Err(E::custom(HERE)) } else { Ok(key) }
        }
    )*};
}

impl<'de> Visitor<'de> for KeyWalk<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word as key")
    }

    fn visit_unit<E: Error>(self) -> Result<String, E> {
        KeySeed.visit_unit()
    }

    keys_as_text!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);
}

/// Fails at whatever it meets.
struct Stop;

macro_rules! stop {
    ($($visit:ident: $kind:ty),*) => {$(
        fn $visit<E: Error>(self, _: $kind) -> Result<(), E> {
            Err(E::custom(HERE))
        }
    )*};
}

impl<'de> Visitor<'de> for Stop {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HERE)
    }

    stop!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64, visit_str: &str);

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Err(E::custom(HERE))
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        Err(E::custom(HERE))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::custom(HERE))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::custom(HERE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: é x # note\nnodes:\n  val: { count: 4, role: validator }\n  - odd: [1, 2]\n";
    const GOOD: &str = "name: é x # note\nnodes:\n  val: { count: 4, role: \"validator\" }\nfaults:\n  - kill: late\n    at: {}\n  - stop: val\n";

    fn at(path: &str, spot: Spot) -> &'static str {
        locate(GOOD, &Path::parse(path).unwrap(), spot).map_or("", |span| &GOOD[span])
    }

    #[test]
    fn values_and_keys_are_found() {
        assert_eq!(at("name", Spot::Value), "é x");
        assert_eq!(at("nodes.val", Spot::Value), "{ count: 4, role: \"validator\" }");
        assert_eq!(at("nodes.val.count", Spot::Value), "4");
        assert_eq!(at("nodes.val.count", Spot::Key), "count");
        assert_eq!(at("nodes.val.role", Spot::Value), "\"validator\"");
        assert_eq!(at("nodes.val", Spot::Key), "val");
        assert_eq!(at("faults[1].stop", Spot::Value), "val");
        assert_eq!(at("faults[0].at", Spot::Key), "at");
    }

    #[test]
    fn what_is_not_there_is_shown_where_it_would_be() {
        assert_eq!(at("nodes.val.power", Spot::Value), "val");
        assert_eq!(at("nodes.nobody.power", Spot::Value), "nodes");
        assert_eq!(at("faults[1].at.store", Spot::Value), "stop");
        assert_eq!(at("load", Spot::Value), "name: é x # note");
    }

    #[test]
    fn equal_keys_are_told_apart() {
        let text = "a: 1\nb: 2\na: 3\n";
        let span = locate(text, &Path::root().nth_key("a", 1), Spot::Key).unwrap();
        assert_eq!(span, 10..11);
    }

    #[test]
    fn a_text_that_does_not_parse_gives_no_panic() {
        let path = Path::parse("nodes.val").unwrap();
        assert!(locate(TEXT, &path, Spot::Value).is_some());
        assert_eq!(locate("", &path, Spot::Value), None);
    }
}
