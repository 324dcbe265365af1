//! `faults`: a trigger and an action each.

use indexmap::IndexMap;

use super::builds;
use super::chain::HEIGHT_MAX;
use crate::timeline::{Address, Errno, FaultKind, HeightRange, Mode, Phase, WriteAt};
use crate::topology::diagnostic::Problem;
use crate::topology::reader::{At, Fields, Reader, listed};
use crate::topology::similar::nearest;
use crate::topology::tree::Tree;
use crate::topology::types::{Fault, Made, Target, Trigger};
use crate::topology::units::{self, Delay};

/// Which names of nodes and groups there are.
pub(super) struct Known<'a> {
    /// Group names with the names of their nodes.
    pub(super) groups: Vec<(&'a str, Vec<String>)>,
    /// Whether every group could be read; otherwise any name may be right.
    pub(super) whole: bool,
    /// Builds by name, if they could be read.
    pub(super) builds: Option<&'a IndexMap<String, Made>>,
}

/// How long a node stays down when the fault does not say.
const DOWN_MS: u64 = 500;
/// How long a fault is waited for when it does not say.
const WITHIN_MS: u64 = 60_000;
/// How long a node that lives on after a failed call is left alone when the fault does not say.
const LIVES_ON_MS: u64 = 3_000;
const TIMES_MAX: u64 = 10_000;
const ACTIONS: &[&str] = &["kill", "stop", "pause", "restart", "upgrade", "fail"];
const TRIGGERS: &[&str] = &["at", "every", "after"];
const KEYS: &[&str] =
    &["name", "kill", "stop", "pause", "restart", "upgrade", "fail", "errno", "at", "every", "after", "for", "within"];
const ADDRESS_KEYS: &[&str] = &["height", "store", "sync", "write", "phase", "mode", "window"];

/// Every fault that could be read.
pub(super) fn faults(reader: &mut Reader, at: &At, known: &Known) -> Vec<Fault> {
    if *at.tree == Tree::Null {
        return Vec::new();
    }
    let list = reader.list(at, "a list of faults", "- { name: one, kill: val-1, at: { time: 5s } }");
    list.unwrap_or_default()
        .iter()
        .enumerate()
        .filter_map(|(position, at)| fault(reader, at, position, known))
        .collect()
}

fn fault(reader: &mut Reader, at: &At, position: usize, known: &Known) -> Option<Fault> {
    let fields = reader.map(at, "a map", "{ name: one, kill: val-1, at: { time: 5s } }", KEYS)?;
    let name = reader.required(&fields, "name", "name: in the commit").and_then(|at| fault_name(reader, &at));
    let action = action(reader, &fields);
    let deed = action.as_ref().and_then(|(kind, at)| match kind {
        FaultKind::Upgrade => builds::upgrade(reader, at, known).map(|(target, upgrade)| (target, Some(upgrade))),
        _ => target(reader, at, known).map(|target| (target, None)),
    });
    let kind = action.map(|(kind, _)| kind);
    let trigger = trigger(reader, &fields);
    let down = down(reader, &fields, kind);
    let errno = errno(reader, &fields, kind);
    let lives_on = lives_on(reader, &fields, kind);
    let within_ms = fields.get("within").map_or(Some(WITHIN_MS), |at| reader.unit(&at, "60s", units::duration_ms));
    if let (Some(Trigger::Address(_)), Some(FaultKind::Pause | FaultKind::Restart | FaultKind::Upgrade)) =
        (&trigger, kind)
    {
        let title = "only `kill` and `stop` can be aimed at an address";
        reader.push(
            Problem::at_key("not-aimable", &fields.path.key("at"), title)
                .label("an address")
                .help("use `at: { height: N }` or `at: { time: 5s }`"),
        );
        return None;
    }
    if let (Some(trigger), Some(FaultKind::Fail)) = (&trigger, kind) {
        can_fail(reader, &fields, trigger)?;
    }
    let (target, upgrade) = deed?;
    Some(Fault {
        position,
        name: name?,
        kind: kind?,
        target,
        upgrade,
        trigger: trigger?,
        down: down?,
        errno: errno?,
        lives_on: lives_on?,
        within_ms: within_ms?,
    })
}

fn fault_name(reader: &mut Reader, at: &At) -> Option<String> {
    let text = reader.text(at, "in the commit")?;
    if text.trim().is_empty() || text.len() > 100 || text.contains(char::is_control) {
        let problem = Problem::new("bad-name", &at.path, "a fault's name is one line of 1 to 100 bytes");
        reader.push(problem.label("cannot be a name"));
        return None;
    }
    Some(text.to_owned())
}

/// The action and whom it is for. `restart: { after: … }` is no action but says how long the node stays down.
fn action<'a>(reader: &mut Reader, fields: &Fields<'a>) -> Option<(FaultKind, At<'a>)> {
    let mut found: Option<(FaultKind, At)> = None;
    for (key, at) in fields.iter().filter(|(key, at)| ACTIONS.contains(key) && !(*key == "restart" && modifies(at))) {
        if found.is_some() {
            let problem = Problem::at_key("two-actions", &at.path, "a fault has one action").label("one too many");
            reader.push(problem.help("make two faults of it; the second may have `after: NAME`"));
            return None;
        }
        let kind = match key {
            "kill" => FaultKind::Kill,
            "stop" => FaultKind::Stop,
            "pause" => FaultKind::Pause,
            "fail" => FaultKind::Fail,
            "upgrade" => FaultKind::Upgrade,
            _ => FaultKind::Restart,
        };
        found = Some((kind, at));
    }
    if found.is_none() && !fields.has_unknown() {
        let problem = Problem::at_key("missing-key", &fields.path, "the fault has no action").label("does nothing");
        reader.push(problem.help(format!("add one of {}, each with a node", listed(ACTIONS.iter().copied()))));
    }
    found
}

fn modifies(restart: &At) -> bool {
    match restart.tree {
        Tree::Map(map) => !map.iter().any(|(key, _)| key == "one_of"),
        Tree::Null => true,
        _ => false,
    }
}

fn target(reader: &mut Reader, at: &At, known: &Known) -> Option<Target> {
    let (inner, one_of) = match at.tree {
        Tree::Map(_) => {
            let fields = reader.map(at, "a node, a group, a list of them, or `{ one_of: … }`", "val-1", &["one_of"])?;
            (reader.required(&fields, "one_of", "one_of: val")?, true)
        }
        _ => (at.clone(), false),
    };
    let nodes = names(reader, &inner, known)?;
    Some(Target { nodes, one_of })
}

/// Node names from one name or a list of names of nodes and groups, without repetition.
pub(super) fn names(reader: &mut Reader, at: &At, known: &Known) -> Option<Vec<String>> {
    let list = match at.tree {
        Tree::List(_) => reader.list(at, "a list", "[val-1, val-2]")?,
        Tree::Text(_) => vec![at.clone()],
        _ => {
            reader.wrong_type(at, "the name of a node or group, or a list of them", "val-1");
            return None;
        }
    };
    if list.is_empty() {
        reader.push(Problem::new("empty", &at.path, "no node is named").label("empty"));
        return None;
    }
    let mut nodes: Vec<String> = Vec::new();
    let mut whole = true;
    for at in &list {
        match reader.text(at, "val-1").and_then(|name| resolve(reader, at, name, known)) {
            None => whole = false,
            Some(found) => {
                for node in found {
                    if !nodes.contains(&node) {
                        nodes.push(node);
                    }
                }
            }
        }
    }
    whole.then_some(nodes)
}

/// The nodes that a name stands for.
pub(super) fn resolve(reader: &mut Reader, at: &At, name: &str, known: &Known) -> Option<Vec<String>> {
    if let Some((_, nodes)) = known.groups.iter().find(|(group, _)| *group == name) {
        return Some(nodes.clone());
    }
    if !known.whole || known.groups.iter().any(|(_, nodes)| nodes.iter().any(|node| node == name)) {
        return Some(vec![name.to_owned()]);
    }
    let words = || known.groups.iter().flat_map(|(group, nodes)| nodes.iter().map(String::as_str).chain([*group]));
    let label = nearest(name, words())
        .map_or_else(|| "no such node or group".to_owned(), |meant| format!("did you mean `{meant}`?"));
    let groups = known.groups.iter().map(|(group, nodes)| match &nodes[..] {
        [_] => format!("`{group}`"),
        [first, .., last] => format!("`{group}` with `{first}` to `{last}`"),
        [] => String::new(),
    });
    let help = format!("there are {}", groups.collect::<Vec<_>>().join(", "));
    let title = format!("no node or group is named `{}`", crate::topology::tree::shorten(name));
    reader.push(Problem::new("unknown-node", &at.path, title).label(label).help(help));
    None
}

fn trigger(reader: &mut Reader, fields: &Fields) -> Option<Trigger> {
    let given: Vec<_> = fields.iter().filter(|(key, _)| TRIGGERS.contains(key)).collect();
    match &given[..] {
        [("at", at)] => at_trigger(reader, at),
        [("every", at)] => every(reader, at),
        [(_, at)] => after(reader, at),
        [] => {
            let problem = Problem::at_key("missing-key", &fields.path, "the fault has no trigger").label("never fires");
            if !fields.has_unknown() {
                reader.push(problem.help("add `at:` (once), `every:` (repeated) or `after:` (another fault)"));
            }
            None
        }
        [_, (_, at), ..] => {
            let problem = Problem::at_key("two-triggers", &at.path, "a fault has one trigger").label("one too many");
            reader.push(problem.help("keep one of `at:`, `every:` and `after:`"));
            None
        }
    }
}

fn at_trigger(reader: &mut Reader, at: &At) -> Option<Trigger> {
    let mut keys = ADDRESS_KEYS.to_vec();
    keys.push("time");
    let fields = reader.map(at, "an address, `{ height: N }` or `{ time: 5s }`", "{ height: 40 }", &keys)?;
    let aims = fields.iter().any(|(key, _)| ADDRESS_KEYS.contains(&key) && key != "height");
    if let Some(time) = fields.get("time") {
        if aims || fields.get("height").is_some() {
            let problem = Problem::at_key("two-triggers", &time.path, "a time cannot be part of an address");
            reader.push(problem.label("one too many"));
            return None;
        }
        return reader.unit(&time, "5s", units::delay).map(Trigger::Time);
    }
    if aims {
        return address(reader, &fields).map(Trigger::Address);
    }
    match fields.get("height") {
        Some(height) => Some(Trigger::Height(range(reader, &height, "40")?.from)),
        None => {
            let problem = Problem::at_key("missing-key", &fields.path, "`at` names nothing").label("empty");
            reader.push(problem.help("write an address with `store:`, or `{ height: 40 }`, or `{ time: 5s }`"));
            None
        }
    }
}

fn address(reader: &mut Reader, fields: &Fields) -> Option<Address> {
    let height = fields.get("height").map_or(Some(HeightRange::default()), |at| range(reader, &at, "40.."));
    let example = "store: application.db";
    let store = reader.required(fields, "store", example).and_then(|at| reader.text(&at, "application.db"));
    let sync = optional(fields.get("sync"), |at| reader.whole(&at, 1, 10_000));
    let write = optional(fields.get("write"), |at| write(reader, &at));
    let phase = fields.get("phase").map_or(Some(Phase::Before), |at| {
        let word = reader.word(&at, &["before", "after"])?;
        Some(if word == "before" { Phase::Before } else { Phase::After })
    });
    let mode = optional(fields.get("mode"), |at| mode(reader, &at));
    let window = optional(fields.get("window"), |at| window(reader, &at));
    let (sync, write, phase) = (sync?, write?, phase?);
    if write == Some(WriteAt::Last) && phase == Phase::Before {
        let title = "the last write of a commit is known only when its sync begins";
        reader.push(
            Problem::new("last-before", &fields.path.key("write"), title)
                .label("cannot be held before it happens")
                .help("write `phase: after`, or `write: first`, or leave `write` out to aim at the sync"),
        );
        return None;
    }
    if sync.is_none() && (write.is_none() || write == Some(WriteAt::Last)) {
        let title = "the address does not say which event of the store";
        reader.push(
            Problem::at_key("vague-address", &fields.path, title)
                .label("needs `sync` or `write`")
                .help("add `sync: 1`, or `write: first` where the store is written and never synced"),
        );
        return None;
    }
    let sync = match sync {
        Some(number) => Some(u32::try_from(number).ok()?),
        None => None,
    };
    Some(Address { height: height?, store: store?.to_owned(), sync, write, phase, mode: mode?, window: window? })
}

/// `Some(None)` when it is not there, `None` when it is and cannot be read.
fn optional<'a, T>(at: Option<At<'a>>, read: impl FnOnce(At<'a>) -> Option<T>) -> Option<Option<T>> {
    match at {
        None => Some(None),
        Some(at) => read(at).map(Some),
    }
}

fn write(reader: &mut Reader, at: &At) -> Option<WriteAt> {
    match at.tree {
        Tree::Int(_) => {
            let number = reader.whole(at, 1, 1_000_000)?;
            u32::try_from(number).ok().map(WriteAt::Nth)
        }
        _ => {
            let word = reader.word(at, &["first", "last"])?;
            Some(if word == "first" { WriteAt::First } else { WriteAt::Last })
        }
    }
}

/// One of the three modes.
pub(super) fn mode(reader: &mut Reader, at: &At) -> Option<Mode> {
    let word = reader.word(at, &["consensus", "block_sync", "replay"])?;
    Some(match word {
        "consensus" => Mode::Consensus,
        "block_sync" => Mode::BlockSync,
        _ => Mode::Replay,
    })
}

fn window(reader: &mut Reader, at: &At) -> Option<u64> {
    let range = range(reader, at, "2..")?;
    if range.from == 0 || (range.to.is_some() && range.to != Some(range.from)) {
        let problem =
            Problem::new("bad-value", &at.path, "`window` is the least number of blocks in the flush, from 1");
        reader.push(problem.label("cannot be read").help("write it like `2..`"));
        return None;
    }
    Some(range.from)
}

pub(super) fn range(reader: &mut Reader, at: &At, example: &str) -> Option<HeightRange> {
    let text = match at.tree {
        Tree::Int(number) => number.to_string(),
        Tree::Text(text) => text.clone(),
        _ => {
            reader.wrong_type(at, "a number or a range", example);
            return None;
        }
    };
    match text.parse::<HeightRange>() {
        Ok(range) if range.from <= HEIGHT_MAX => Some(range),
        Ok(_) => {
            let title = format!("`{}` is above {HEIGHT_MAX}", at.path);
            reader.push(Problem::new("out-of-bounds", &at.path, title).label("too high"));
            None
        }
        Err(why) => {
            let why = if why.contains("empty range") {
                why
            } else {
                format!("`{}` is no range", crate::topology::tree::shorten(&text))
            };
            let help = "write `40` exactly, `40..` from 40 on, `40..60` between";
            reader.push(Problem::new("bad-value", &at.path, why).label("cannot be read").help(help));
            None
        }
    }
}

fn every(reader: &mut Reader, at: &At) -> Option<Trigger> {
    let example = "{ interval: 8s, jitter: 3s, times: 2 }";
    let fields = reader.map(at, "a map", example, &["interval", "jitter", "times"])?;
    let interval = reader.required(&fields, "interval", "interval: 8s");
    let interval = interval.and_then(|at| reader.unit(&at, "8s", units::duration_ms));
    let jitter = fields.get("jitter").map_or(Some(0), |at| reader.unit(&at, "3s", units::duration_ms));
    let times = reader.required(&fields, "times", "times: 2").and_then(|at| reader.whole(&at, 1, TIMES_MAX));
    let (interval_ms, jitter_ms) = (interval?, jitter?);
    if interval_ms == 0 || jitter_ms > interval_ms {
        let title = "`interval` is above 0, and `jitter` at most as long";
        reader.push(Problem::new("out-of-bounds", &fields.path, title).label("not possible"));
        return None;
    }
    Some(Trigger::Every { interval_ms, jitter_ms, times: u32::try_from(times?).ok()? })
}

fn after(reader: &mut Reader, at: &At) -> Option<Trigger> {
    if let Tree::Text(fault) = at.tree {
        return Some(Trigger::After { fault: fault.clone(), delay: Delay::fixed(0) });
    }
    let example = "{ fault: in the commit, delay: 2s }";
    let fields = reader.map(at, "a fault's name, or a map with `fault` and `delay`", example, &["fault", "delay"])?;
    let fault = reader.required(&fields, "fault", "fault: in the commit");
    let fault = fault.and_then(|at| reader.text(&at, "in the commit"));
    let delay = fields.get("delay").map_or(Some(Delay::fixed(0)), |at| reader.unit(&at, "2s", units::delay));
    Some(Trigger::After { fault: fault?.to_owned(), delay: delay? })
}

/// How long the node stays down, or paused.
fn down(reader: &mut Reader, fields: &Fields, kind: Option<FaultKind>) -> Option<Delay> {
    let kind = kind?;
    let pause = kind == FaultKind::Pause;
    if let Some(at) = fields.get("for").filter(|_| !pause && kind != FaultKind::Fail) {
        let title = "`for` belongs to `pause` and `fail`";
        let problem = Problem::at_key("not-for-this-action", &at.path, title).label("of no use here");
        reader.push(problem.help("a node that was killed or stopped comes back after `restart: { after: 500ms }`"));
        return None;
    }
    let restart = fields.get("restart").filter(modifies);
    if let Some(at) = restart.as_ref().filter(|_| pause) {
        let problem = Problem::at_key("not-for-this-action", &at.path, "a paused node is not restarted");
        reader.push(problem.label("of no use here").help("say how long the pause lasts with `for: 5s`"));
        return None;
    }
    if pause {
        return reader.required(fields, "for", "for: 5s").and_then(|at| reader.unit(&at, "5s", units::delay));
    }
    match (restart, kind) {
        (Some(at), _) => {
            let fields = reader.map(&at, "a map", "{ after: 500ms }", &["after"])?;
            let after = reader.required(&fields, "after", "after: 500ms");
            after.and_then(|at| reader.unit(&at, "500ms", units::delay))
        }
        (None, FaultKind::Restart | FaultKind::Upgrade) => Some(Delay::fixed(0)),
        (None, _) => Some(Delay::fixed(DOWN_MS)),
    }
}

/// What a failed call returns.
fn errno(reader: &mut Reader, fields: &Fields, kind: Option<FaultKind>) -> Option<Option<Errno>> {
    let at = fields.get("errno");
    if kind == Some(FaultKind::Fail) {
        let word = at.map_or(Some("EIO"), |at| reader.word(&at, &["EIO", "ENOSPC"]))?;
        return Some(Some(if word == "EIO" { Errno::Io } else { Errno::NoSpace }));
    }
    if let Some(at) = at.filter(|_| kind.is_some()) {
        let problem = Problem::at_key("not-for-this-action", &at.path, "`errno` belongs to `fail`");
        reader.push(problem.label("of no use here").help("write `fail: NODE` to let a call fail at an address"));
        return None;
    }
    Some(None)
}

/// How long a node that lives on after a failed call is left alone.
fn lives_on(reader: &mut Reader, fields: &Fields, kind: Option<FaultKind>) -> Option<Option<Delay>> {
    if kind != Some(FaultKind::Fail) {
        return Some(None);
    }
    let given = fields.get("for").map_or(Some(Delay::fixed(LIVES_ON_MS)), |at| reader.unit(&at, "3s", units::delay));
    given.map(Some)
}

/// A call can be made to fail only before it is made.
fn can_fail(reader: &mut Reader, fields: &Fields, trigger: &Trigger) -> Option<()> {
    let example = "write `at: { store: state.db, sync: 1, phase: before }`";
    let problem = match trigger {
        Trigger::Address(address) if address.phase == Phase::Before => return Some(()),
        Trigger::Address(_) => {
            let title = "a call that has returned cannot be made to fail";
            Problem::new("cannot-fail", &fields.path.key("at").key("phase"), title).label("must be `before`")
        }
        _ => {
            let title = "`fail` needs the address of a sync or a write";
            Problem::at_key("cannot-fail", &fields.path.key("fail"), title).label("which call?")
        }
    };
    reader.push(problem.help(example));
    None
}
