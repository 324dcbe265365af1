//! A YAML file as plain data that keeps the order of keys and keys given twice. Every limit of the input is here.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// Largest file that is read, in bytes.
pub(super) const BYTES_MAX: usize = 256 << 10;
/// Most values in one file, those that aliases repeat counted as often as they are used.
const VALUES_MAX: u32 = 50_000;

/// A YAML value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

impl Tree {
    /// What it is, as in "expected a map, found ...".
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => format!("`{value}`"),
            Self::Int(value) => format!("the number {value}"),
            Self::Float(value) => format!("the number {value}"),
            Self::Text(text) => format!("the text `{}`", shorten(text)),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a map".to_owned(),
        }
    }
}

/// At most 40 characters of a text on one line, for messages.
pub(super) fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(40).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// Reads one YAML document.
pub(super) fn parse(text: &str) -> Result<Tree, serde_yaml::Error> {
    let budget = Cell::new(VALUES_MAX);
    Seed(&budget).deserialize(serde_yaml::Deserializer::from_str(text))
}

/// Reads a value, counting.
struct Seed<'a>(&'a Cell<u32>);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        let left = self.0.get().checked_sub(1);
        self.0.set(left.ok_or_else(|| D::Error::custom(format!("more than {VALUES_MAX} values in one file")))?);
        deserializer.deserialize_any(TreeVisitor(self.0))
    }
}

struct TreeVisitor<'a>(&'a Cell<u32>);

impl<'de> Visitor<'de> for TreeVisitor<'_> {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain YAML value without a tag")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Seed(self.0).deserialize(deserializer)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Int(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Int(value.into()))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Tree, E> {
        Ok(Tree::Int(value))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Tree, E> {
        i128::try_from(value).map(Tree::Int).map_err(|_| E::custom("a number with too many digits"))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(Seed(self.0))? {
            list.push(value);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = access.next_key_seed(KeySeed)? {
            map.push((key, access.next_value_seed(Seed(self.0))?));
        }
        Ok(Tree::Map(map))
    }
}

/// Reads a key, as text whatever it looks like.
pub(super) struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word as key")
    }

    fn visit_unit<E: Error>(self) -> Result<String, E> {
        Ok("null".to_owned())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => match (u64::try_from(*value), i64::try_from(*value)) {
                (Ok(small), _) => serializer.serialize_u64(small),
                (_, Ok(small)) => serializer.serialize_i64(small),
                _ => serializer.serialize_i128(*value),
            },
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(list) => {
                let mut out = serializer.serialize_seq(Some(list.len()))?;
                for value in list {
                    out.serialize_element(value)?;
                }
                out.end()
            }
            Self::Map(map) => {
                let mut out = serializer.serialize_map(Some(map.len()))?;
                for (key, value) in map {
                    out.serialize_entry(key, value)?;
                }
                out.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_given_twice_are_both_kept() {
        let Tree::Map(map) = parse("{a: 1, a: 2, 3: x}").unwrap() else { panic!("a map") };
        let keys: Vec<_> = map.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["a", "a", "3"]);
    }

    #[test]
    fn aliases_cannot_blow_up() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let before = level - 1;
            let ten = vec![format!("*a{before}"); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{ten}]\n"));
        }
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("more than 50000 values") || error.contains("repetition limit"), "{error}");
    }

    #[test]
    fn deep_nesting_is_refused() {
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn tags_are_refused_where_they_stand() {
        let error = parse("a: 1\nb: !x 2").unwrap_err();
        assert_eq!(error.location().map(|l| (l.line(), l.column())), Some((2, 4)), "{error}");
    }
}
