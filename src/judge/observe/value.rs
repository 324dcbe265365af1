//! Values as people and nodes write them: numbers as text, times in seconds, samples as pairs, output as text or lines.
//!
//! Visitors rather than untagged enums, so that an error names the place and what was expected there.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use indexmap::IndexMap;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Larger ones no family has, whose heights and powers are signed.
const INT_MAX: u64 = i64::MAX.unsigned_abs();

/// An integer as a number or as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Int(pub(super) u64);

struct IntVisitor;

impl Visitor<'_> for IntVisitor {
    type Value = Int;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {INT_MAX}, as a number or as text")
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Int, E> {
        if v > INT_MAX {
            return Err(E::invalid_value(serde::de::Unexpected::Unsigned(v), &self));
        }
        Ok(Int(v))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Int, E> {
        u64::try_from(v).map(Int).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(v), &self))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Int, E> {
        let number = v.trim().parse().ok().filter(|number| *number <= INT_MAX);
        number.map(Int).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(v), &self))
    }
}

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntVisitor)
    }
}

/// A map from heights, whose keys are numbers or text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByHeight<T>(pub(super) BTreeMap<u64, T>);

struct ByHeightVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ByHeightVisitor<T> {
    type Value = ByHeight<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from heights")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ByHeight<T>, A::Error> {
        let mut all = BTreeMap::new();
        while let Some(Int(height)) = map.next_key()? {
            if all.insert(height, map.next_value()?).is_some() {
                return Err(A::Error::custom(format!("height {height} is given twice")));
            }
        }
        Ok(ByHeight(all))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByHeight<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ByHeightVisitor(PhantomData))
    }
}

impl<T> Default for ByHeight<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// A map whose keys are names, each given once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named<T>(IndexMap<String, T>);

impl<T> Named<T> {
    /// What belongs to each name.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut()
    }
}

struct NamedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for NamedVisitor<T> {
    type Value = Named<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
        let mut all = IndexMap::new();
        while let Some(name) = map.next_key::<String>()? {
            if all.contains_key(&name) {
                return Err(A::Error::custom(format!("`{name}` is given twice: leave one out")));
            }
            all.insert(name, map.next_value()?);
        }
        Ok(Named(all))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NamedVisitor(PhantomData))
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(IndexMap::new())
    }
}

impl<T> Deref for Named<T> {
    type Target = IndexMap<String, T>;

    fn deref(&self) -> &IndexMap<String, T> {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a Named<T> {
    type Item = (&'a String, &'a T);
    type IntoIter = indexmap::map::Iter<'a, String, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// A hash as text in the encoding of its field; `null` and empty text are no hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HashText(pub(super) String);

struct HashVisitor;

impl Visitor<'_> for HashVisitor {
    type Value = HashText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a hash in quotes, or null")
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<HashText, E> {
        Ok(HashText(v.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<HashText, E> {
        Ok(HashText::default())
    }
}

impl<'de> Deserialize<'de> for HashText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HashVisitor)
    }
}

/// A time in seconds, kept in microseconds; may be negative, before some moment of interest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seconds(pub(super) i64);

impl Seconds {
    /// In seconds, as people write them.
    pub(super) fn words(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        // Ten thousand years either way; the cast cannot overflow.
        if !seconds.is_finite() || seconds.abs() > 3.2e11 {
            return Err(D::Error::custom(format!("{seconds} is no time in seconds")));
        }
        Ok(Self((seconds * 1e6).round() as i64))
    }
}

/// One look at a height: `[t, h]`, `[t, h, catching_up]` or `{t: …, h: …, catching_up: …}`; `h: null` is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) t: Seconds,
    pub(super) h: Option<u64>,
    pub(super) catching_up: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LookFields {
    t: Seconds,
    #[serde(alias = "height")]
    h: Option<Int>,
    #[serde(default, alias = "cu")]
    catching_up: Option<bool>,
}

struct LookVisitor;

impl<'de> Visitor<'de> for LookVisitor {
    type Value = Look;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`[seconds, height]`, `[seconds, height, catching_up]` or a map with `t`, `h` and `catching_up`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Look, A::Error> {
        let t = seq.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let h: Option<Int> = seq.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
        let catching_up = seq.next_element::<Option<bool>>()?.flatten();
        if seq.next_element::<IgnoredAny>()?.is_some() {
            return Err(A::Error::invalid_length(4, &self));
        }
        Ok(Look { t, h: h.map(|h| h.0), catching_up })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Look, A::Error> {
        let fields = LookFields::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        Ok(Look { t: fields.t, h: fields.h.map(|h| h.0), catching_up: fields.catching_up })
    }
}

impl<'de> Deserialize<'de> for Look {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LookVisitor)
    }
}

/// One line of output, with its time where it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) t: Option<Seconds>,
    pub(super) text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineFields {
    t: Option<Seconds>,
    line: String,
}

struct LineVisitor;

impl<'de> Visitor<'de> for LineVisitor {
    type Value = Line;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a line of output, or a map with `t` and `line`")
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Line, E> {
        Ok(Line { t: None, text: v.to_owned() })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Line, A::Error> {
        let fields = LineFields::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        Ok(Line { t: fields.t, text: fields.line })
    }
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LineVisitor)
    }
}

/// Output as one text, or as a list of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines(pub(super) Vec<Line>);

struct LinesVisitor;

impl<'de> Visitor<'de> for LinesVisitor {
    type Value = Lines;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("output as text, or as a list of lines")
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Lines, E> {
        let lines = v.lines().filter(|l| !l.trim().is_empty());
        Ok(Lines(lines.map(|l| Line { t: None, text: l.to_owned() }).collect()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Lines, A::Error> {
        let mut lines = Vec::new();
        while let Some(line) = seq.next_element()? {
            lines.push(line);
        }
        Ok(Lines(lines))
    }
}

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LinesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, String> {
        serde_yaml::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn looks_in_every_shape() {
        let look = |t: i64, h, catching_up| Look { t: Seconds(t * 1_000_000), h, catching_up };
        assert_eq!(yaml("[4, 143]"), Ok(look(4, Some(143), None)));
        assert_eq!(yaml("[-1, null, true]"), Ok(look(-1, None, Some(true))));
        assert_eq!(yaml("{t: 60, h: \"611\", cu: false}"), Ok(look(60, Some(611), Some(false))));
        assert!(yaml::<Look>("[4]").unwrap_err().contains("expected `[seconds, height]`"));
        assert!(yaml::<Look>("{t: 1, h: 2, hight: 3}").unwrap_err().contains("unknown field `hight`"));
    }

    #[test]
    fn heights_as_keys() {
        let map: ByHeight<HashText> = yaml("{40: \"AB\", \"41\": null}").unwrap();
        assert_eq!(map.0.keys().copied().collect::<Vec<_>>(), [40, 41]);
        let json: ByHeight<HashText> = serde_json::from_str("{\"40\": \"AB\"}").unwrap();
        assert_eq!(json.0[&40], HashText("AB".to_owned()));
        assert!(yaml::<ByHeight<HashText>>("{40: 5748118}").unwrap_err().contains("expected a hash in quotes"));
        assert!(yaml::<ByHeight<HashText>>("{x: \"AB\"}").unwrap_err().contains("expected a whole number"));
        assert!(yaml::<ByHeight<HashText>>("{40: \"AB\", \"40\": \"AC\"}").unwrap_err().contains("twice"));
    }

    #[test]
    fn output_as_text_or_lines() {
        let lines: Lines = yaml("|\n  one\n\n  two\n").unwrap();
        assert_eq!(lines.0.len(), 2);
        let lines: Lines = yaml("[one, {t: 1.5, line: two}]").unwrap();
        assert_eq!(lines.0[1], Line { t: Some(Seconds(1_500_000)), text: "two".to_owned() });
    }
}
