//! Where in the text of a file a value stands, for what is wrong with it only beside others.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Line and column, both from 1, of the value at a path such as `faults[0].nodes[1]`. Keys may hold dots.
pub(super) fn of(text: &str, path: &str) -> Option<(usize, usize)> {
    let walk = Walk { path };
    if text.trim_start().starts_with('{') {
        let error = walk.deserialize(&mut serde_json::Deserializer::from_str(text)).err()?;
        return Some((error.line(), error.column()));
    }
    let error = walk.deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
    error.location().map(|at| (at.line(), at.column()))
}

/// Reads up to the value at the end of the path and fails there, since both parsers tell where they fail.
#[derive(Clone, Copy)]
struct Walk<'a> {
    path: &'a str,
}

impl<'a> Walk<'a> {
    /// What is left of the path below a key, if the path goes through it.
    fn below(self, key: &str) -> Option<Self> {
        let rest = self.path.strip_prefix(key)?;
        let path = rest.strip_prefix('.').or(Some(rest).filter(|rest| rest.is_empty() || rest.starts_with('[')))?;
        Some(Self { path })
    }

    /// The same for a position in a list.
    fn item(self) -> Option<(usize, Self)> {
        let (number, rest) = self.path.strip_prefix('[')?.split_once(']')?;
        Some((number.parse().ok()?, Self { path: rest.strip_prefix('.').unwrap_or(rest) }))
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value that is looked for")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while !self.path.is_empty() {
            let Some(key) = map.next_key::<Key>()? else { break };
            match self.below(&key.0) {
                Some(rest) => map.next_value_seed(rest)?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Err(A::Error::custom("here"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if let Some((number, rest)) = self.item() {
            for _ in 0..number {
                seq.next_element::<IgnoredAny>()?;
            }
            seq.next_element_seed(rest)?;
        }
        Err(A::Error::custom("here"))
    }
}

/// A key as text, whatever it was written as.
struct Key(String);

impl<'de> serde::Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E: Error>(self, v: &str) -> Result<Key, E> {
                Ok(Key(v.to_owned()))
            }

            fn visit_u64<E: Error>(self, v: u64) -> Result<Key, E> {
                Ok(Key(v.to_string()))
            }
        }
        deserializer.deserialize_any(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_both_languages() {
        let yaml = "a:\n  - {x: 1}\n  - {b.c: [5, 6], 41: here}\n";
        for (path, place) in [("a[1].b.c[1]", (3, 15)), ("a[1].41", (3, 23)), ("a", (2, 3)), ("a[0].x", (2, 9))] {
            assert_eq!(of(yaml, path), Some(place), "{path}");
        }
        let (line, _) = of("{\"a\":\n [1,\n  2]}", "a[1]").expect("a place");
        assert_eq!(line, 3);
    }
}
