//! Where in a flush: the address that a fault asks for, and the place where it landed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a node is doing when it makes a block durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Deciding blocks with the other validators, or following them one by one.
    Consensus,
    /// Catching up from peers.
    BlockSync,
    /// Replaying stored blocks into the application after a restart.
    Replay,
}

/// Which side of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The event is held and never happens.
    Before,
    /// The event has returned and nothing else has passed.
    After,
}

/// A write of the commit that a sync ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAt {
    /// The first write of the commit.
    First,
    /// The last one, known only when its sync begins: `after` only.
    Last,
    /// The n-th, counted from 1.
    Nth(u32),
}

/// Heights from `from` to `to`, both within; written `40`, `40..` or `40..60`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeightRange {
    /// The lowest height that matches.
    pub from: u64,
    /// The highest height that matches; `None` is unbounded.
    pub to: Option<u64>,
}

/// Where a fault is aimed. Counting starts anew with each flush.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// The height of the block, or the last height of the window, that the flush makes durable. Any by default.
    #[serde(default)]
    pub height: HeightRange,
    /// Store name, such as `state.db`.
    pub store: String,
    /// The k-th sync of that store in the flush, from 1; `None` for a store that is never synced,
    /// whose writes count from the flush's first event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<u32>,
    /// A write of the commit that this sync ends; `None` is the sync itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<WriteAt>,
    /// Before or after the event.
    pub phase: Phase,
    /// The node's mode; any by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The least number of blocks in the flush; any by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
}

/// How the height of an event was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeightSource {
    /// Read from the bytes that the node wrote to the store.
    Decoded,
    /// Read from a log line that the node wrote before the event.
    Logged,
    /// Counted in flushes from the last height known for certain.
    Counted,
}

/// What one store has done in the current flush when a fault lands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreProgress {
    /// Syncs that have returned.
    pub syncs: u32,
    /// Writes that have returned since the last of these syncs, or since the flush began.
    pub writes: u32,
    /// A file with something in it was opened so that it is empty: what it held was gone before any of these writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emptied: bool,
}

/// Where a fault landed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landed {
    /// The height of the flush: of its last block.
    pub height: u64,
    /// How `height` is known.
    pub height_source: HeightSource,
    /// Store of the event.
    pub store: String,
    /// Which sync of this store the event is, or belongs to the commit of; from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<u32>,
    /// The write as asked for; `None` is the sync itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<WriteAt>,
    /// Before or after the event.
    pub phase: Phase,
    /// What the node was doing.
    pub mode: Mode,
    /// Blocks in this flush: F′ − F.
    pub window: u64,
    /// Stores in this flush, as far as each had come when everything was held.
    pub done: BTreeMap<String, StoreProgress>,
}

/// The three heights of one node, printed in this order everywhere: app / state / store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heights {
    /// The application's last committed height.
    pub app: Option<u64>,
    /// The state store's last height.
    pub state: Option<u64>,
    /// The block store's last height.
    pub store: Option<u64>,
}

impl Heights {
    /// All three known.
    pub fn new(app: u64, state: u64, store: u64) -> Self {
        Self { app: Some(app), state: Some(state), store: Some(store) }
    }
}

impl fmt::Display for Heights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |h: Option<u64>| h.map_or_else(|| "?".to_owned(), |h| h.to_string());
        write!(f, "{}/{}/{}", show(self.app), show(self.state), show(self.store))
    }
}

impl HeightRange {
    /// Whether `height` is in the range.
    pub fn contains(&self, height: u64) -> bool {
        height >= self.from && self.to.is_none_or(|to| height <= to)
    }
}

impl fmt::Display for HeightRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            None => write!(f, "{}..", self.from),
            Some(to) if to == self.from => write!(f, "{to}"),
            Some(to) => write!(f, "{}..{to}", self.from),
        }
    }
}

impl FromStr for HeightRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            part.trim().parse::<u64>().map_err(|_| format!("`{text}` is no height: write `40`, `40..` or `40..60`"))
        };
        match text.split_once("..") {
            None => number(text).map(|h| Self { from: h, to: Some(h) }),
            Some((from, "")) => Ok(Self { from: number(from)?, to: None }),
            Some((from, to)) => {
                let (from, to) = (number(from)?, number(to)?);
                if to < from {
                    return Err(format!("`{text}` is an empty range of heights"));
                }
                Ok(Self { from, to: Some(to) })
            }
        }
    }
}

impl Serialize for HeightRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Accepts a number as well as text, since `height: 40` is how people write it.
struct NumberOrText;

impl serde::de::Visitor<'_> for NumberOrText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or text")
    }

    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<String, E> {
        Ok(v.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<String, E> {
        Ok(v.to_string())
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<String, E> {
        Ok(v.to_owned())
    }
}

impl<'de> Deserialize<'de> for HeightRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for WriteAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("first"),
            Self::Last => f.write_str("last"),
            Self::Nth(n) => write!(f, "{n}"),
        }
    }
}

impl Serialize for WriteAt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nth(n) => serializer.serialize_u32(*n),
            named => serializer.collect_str(named),
        }
    }
}

impl<'de> Deserialize<'de> for WriteAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(NumberOrText)?;
        match text.as_str() {
            "first" => Ok(Self::First),
            "last" => Ok(Self::Last),
            other => match other.parse() {
                Ok(n) if n > 0 => Ok(Self::Nth(n)),
                _ => Err(serde::de::Error::custom(format!(
                    "`{other}` is no write: use `first`, `last` or a number from 1"
                ))),
            },
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, &self.height.to_string(), &self.store, self.sync, self.write, self.phase)
    }
}

impl fmt::Display for Landed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, &self.height.to_string(), &self.store, self.sync, self.write, self.phase)
    }
}

fn write_place(
    f: &mut fmt::Formatter<'_>,
    height: &str,
    store: &str,
    sync: Option<u32>,
    write: Option<WriteAt>,
    phase: Phase,
) -> fmt::Result {
    write!(f, "height {height}, {store}")?;
    if let Some(sync) = sync {
        write!(f, ", sync {sync}")?;
    }
    if let Some(write) = write {
        match write {
            WriteAt::Nth(n) => write!(f, ", write {n}")?,
            named => write!(f, ", {named} write")?,
        }
    }
    f.write_str(match phase {
        Phase::Before => ", before",
        Phase::After => ", after",
    })
}
