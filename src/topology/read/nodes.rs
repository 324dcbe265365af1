//! `nodes`: groups of equal nodes.

use indexmap::IndexMap;

use super::builds::named;
use super::chain::{HEIGHT_MAX, options};
use crate::timeline::{Latency, Role, Tier};
use crate::topology::diagnostic::Problem;
use crate::topology::families::STORAGE;
use crate::topology::reader::{At, Fields, Reader};
use crate::topology::tree::Tree;
use crate::topology::types::{Chain, Group, Made, Peers, Start};
use crate::topology::units;

/// Most nodes of one group.
const COUNT_MAX: u64 = 1_000;
/// Highest voting power of one node: sums stay far below what nodes accept.
const POWER_MAX: u64 = 1_000_000_000;
const KEYS: &[&str] =
    &["count", "role", "power", "build", "storage", "unsafe", "start", "peers", "disk", "watch", "options"];
const DISTRIBUTIONS: &[&str] = &["exponential", "lognormal", "empirical"];

/// All groups that could be read; `None` when there are none at all.
pub(super) fn nodes(
    reader: &mut Reader,
    at: &At,
    chain: Option<&Chain>,
    builds: Option<&IndexMap<String, Made>>,
) -> Option<IndexMap<String, Group>> {
    let example = "{ val: { role: validator, count: 4 } }";
    let fields = reader.any_map(at, "a map of node groups", example)?;
    let mut groups = IndexMap::new();
    let mut whole = true;
    for (name, at) in fields.iter() {
        if !super::is_name(name, 40) {
            let title = "a group's name has lower-case letters, digits and `-`, and begins with a letter; at most 40";
            reader.push(Problem::at_key("bad-name", &at.path, title).label("cannot be a name"));
            whole = false;
        }
        match group(reader, &at, chain, builds) {
            Some(group) => drop(groups.insert(name.to_owned(), group)),
            None => whole = false,
        }
    }
    if groups.is_empty() && whole {
        let problem = Problem::at_key("empty", &fields.path, "there are no nodes").label("empty");
        reader.push(problem.help(format!("write `nodes: {example}`")));
    }
    // Names in faults and expectations are checked only against a full list.
    (whole && !groups.is_empty()).then_some(groups)
}

fn group(
    reader: &mut Reader,
    at: &At,
    chain: Option<&Chain>,
    builds: Option<&IndexMap<String, Made>>,
) -> Option<Group> {
    let fields = reader.map(at, "a map", "{ role: validator, count: 4 }", KEYS)?;
    let count = fields.get("count").map_or(Some(1), |at| reader.whole(&at, 1, COUNT_MAX));
    let role = reader.required(&fields, "role", "role: validator").and_then(|at| {
        let word = reader.word(&at, &["validator", "full"])?;
        Some(if word == "validator" { Role::Validator } else { Role::Full })
    });
    let power = power(reader, &fields, role, chain);
    let build = match fields.get("build") {
        None => Some(None),
        Some(at) => named(reader, &at, builds).map(Some),
    };
    let storage = storage(reader, &fields, chain);
    let start = fields.get("start").map_or(Some(Start::Run), |at| start(reader, &at));
    let peers = fields.get("peers").map_or(Some(Peers::All), |at| peers(reader, &at));
    let sync_latency = fields.get("disk").map_or(Some(IndexMap::new()), |at| disk(reader, &at));
    consent(reader, &fields, sync_latency.as_ref());
    let watch = fields.get("watch").map_or(Some(None), |at| watch(reader, &at, sync_latency.as_ref()));
    let options = options(reader, &fields);
    if let (Some(at), Some(chain)) = (fields.get("options"), chain)
        && !matches!(chain, Chain::Reference(_))
    {
        only_reference(reader, &at, "`options`");
    }
    Some(Group {
        count: usize::try_from(count?).ok()?,
        role: role?,
        power: power?,
        build: build?,
        storage: storage?,
        start: start?,
        peers: peers?,
        sync_latency: sync_latency?,
        watch: watch?,
        options: options?,
    })
}

/// How much is intercepted. Injected latency needs a filter.
pub(super) fn watch(reader: &mut Reader, at: &At, latency: Option<&IndexMap<String, Latency>>) -> Option<Option<Tier>> {
    let tier = match reader.word(at, &["auto", "none", "observe", "record"])? {
        "auto" => None,
        "none" => Some(Tier::None),
        "observe" => Some(Tier::Observe),
        _ => Some(Tier::Record),
    };
    if tier == Some(Tier::None) && latency.is_some_and(|latency| !latency.is_empty()) {
        let title = "a node that is not watched cannot be given sync latency";
        reader.push(Problem::new("unwatched", &at.path, title).label("needs `observe`").help("write `watch: observe`"));
        return None;
    }
    Some(tier)
}

fn power(reader: &mut Reader, fields: &Fields, role: Option<Role>, chain: Option<&Chain>) -> Option<u64> {
    match (fields.get("power"), role) {
        (None, Some(Role::Full)) => Some(0),
        (Some(at), Some(Role::Validator)) if matches!(chain, Some(Chain::Tenderdash(_))) => {
            let problem =
                Problem::at_key("not-of-this-family", &at.path, "all validators of Tenderdash have the same power");
            reader.push(problem.label("of no use here").help("leave `power` out"));
            None
        }
        (None, _) => Some(10),
        (Some(at), Some(Role::Full)) => {
            let problem = Problem::at_key("power-of-full-node", &at.path, "a full node has no voting power");
            reader.push(problem.label("of no use here").help("leave `power` out, or write `role: validator`"));
            None
        }
        (Some(at), _) => reader.whole(&at, 1, POWER_MAX),
    }
}

/// Syncs that are not made need consent, as the reference node's own `no-sync` does.
pub(super) fn consent(reader: &mut Reader, fields: &Fields, latency: Option<&IndexMap<String, Latency>>) {
    let none = latency.is_some_and(|latency| latency.values().any(|latency| *latency == Latency::NotMade));
    let given = fields.get("unsafe").is_some_and(|at| *at.tree == Tree::Bool(true));
    if let Some(at) = fields.get("disk").filter(|_| none && !given) {
        let title = "syncs that are not made lose blocks at a power cut, and are for profiling only";
        reader.push(
            Problem::new("unsafe-storage", &at.path.key("sync"), title)
                .label("needs consent")
                .help("write `unsafe: true` in this group, or give `sync` a duration"),
        );
    }
}

pub(super) fn only_reference(reader: &mut Reader, at: &At, what: &str) {
    let title = format!("only the reference node has {what}");
    reader.push(Problem::at_key("not-of-this-family", &at.path, title).label("not for this chain"));
}

pub(super) fn storage(reader: &mut Reader, fields: &Fields, chain: Option<&Chain>) -> Option<Option<String>> {
    let accept = match fields.get("unsafe") {
        Some(at) => reader.flag(&at)?,
        None => false,
    };
    let Some(at) = fields.get("storage") else {
        return Some(matches!(chain, Some(Chain::Reference(_))).then(|| "per-block".to_owned()));
    };
    if chain.is_some_and(|chain| !matches!(chain, Chain::Reference(_))) {
        only_reference(reader, &at, "storage disciplines");
        return None;
    }
    let storage = reader.word(&at, STORAGE)?;
    if storage == "no-sync" && !accept {
        let title = "`no-sync` loses blocks at a power cut and is for profiling only";
        reader.push(
            Problem::new("unsafe-storage", &at.path, title)
                .label("needs consent")
                .help("write `unsafe: true` beside it, or choose `per-block`, `single-flush` or `deferred`"),
        );
        return None;
    }
    Some(Some(storage.to_owned()))
}

fn start(reader: &mut Reader, at: &At) -> Option<Start> {
    let fields = reader.map(at, "a map", "{ after: 2s }", &["after", "height"])?;
    match (fields.get("after"), fields.get("height")) {
        (Some(at), None) => reader.unit(&at, "2s", units::delay).map(Start::After),
        (None, Some(at)) => reader.whole(&at, 1, HEIGHT_MAX).map(Start::Height),
        _ => {
            let title = "`start` is either `{ after: 2s }` or `{ height: 200 }`";
            reader.push(
                Problem::at_key("bad-start", &fields.path, title)
                    .label("needs one of the two")
                    .help("leave `start` out to start with the run"),
            );
            None
        }
    }
}

fn peers(reader: &mut Reader, at: &At) -> Option<Peers> {
    if let Tree::List(_) = at.tree {
        let list = reader.list(at, "a list", "[val]")?;
        let names: Option<Vec<String>> = list.iter().map(|at| reader.text(at, "val").map(str::to_owned)).collect();
        return names.map(Peers::Named);
    }
    if !matches!(at.tree, Tree::Int(_)) {
        reader.wrong_type(at, "a number of peers, or a list of nodes and groups", "3");
        return None;
    }
    let count = reader.whole(at, 1, COUNT_MAX)?;
    usize::try_from(count).ok().map(Peers::Count)
}

pub(super) fn disk(reader: &mut Reader, at: &At) -> Option<IndexMap<String, Latency>> {
    let fields = reader.map(at, "a map", "{ sync: 4ms }", &["sync"])?;
    let at = reader.required(&fields, "sync", "sync: 4ms")?;
    let by_store = match at.tree {
        Tree::Map(map) => !map.iter().any(|(key, _)| DISTRIBUTIONS.contains(&key.as_str())),
        _ => false,
    };
    if !by_store {
        return Some(IndexMap::from([("*".to_owned(), latency(reader, &at)?)]));
    }
    let stores = reader.any_map(&at, "a map", "{ application.db: 4ms, \"*\": 230us }")?;
    let all: Option<Vec<_>> =
        stores.iter().map(|(store, at)| latency(reader, &at).map(|latency| (store.to_owned(), latency))).collect();
    Some(all?.into_iter().collect())
}

fn latency(reader: &mut Reader, at: &At) -> Option<Latency> {
    let what = "a duration or a distribution";
    match at.tree {
        Tree::Map(_) => {}
        Tree::Text(word) if word == "none" => return Some(Latency::NotMade),
        Tree::Text(_) | Tree::Int(_) | Tree::Float(_) => {
            return reader.unit(at, "4ms", units::duration_us).map(Latency::Fixed);
        }
        _ => {
            reader.wrong_type(at, what, "{ lognormal: { p50: 2ms, p99: 40ms } }");
            return None;
        }
    }
    let fields = reader.map(at, what, "4ms", DISTRIBUTIONS)?;
    let given: Vec<_> = fields.iter().filter(|(key, _)| DISTRIBUTIONS.contains(key)).collect();
    let [(key, inner)] = &given[..] else {
        let problem = Problem::new("bad-distribution", &at.path, "a latency has one distribution").label("not one");
        reader.push(problem.help(
            "write `{ exponential: 4ms }`, `{ lognormal: { p50: 2ms, p99: 40ms } }` or `{ empirical: [1ms, 9ms] }`",
        ));
        return None;
    };
    match *key {
        "exponential" => reader.unit(inner, "4ms", units::duration_us).map(Latency::Exponential),
        "lognormal" => lognormal(reader, inner),
        _ => empirical(reader, inner),
    }
}

fn lognormal(reader: &mut Reader, at: &At) -> Option<Latency> {
    let fields = reader.map(at, "a map", "{ p50: 2ms, p99: 40ms }", &["p50", "p99"])?;
    let mut quantile = |key: &str, example: &str| {
        let at = reader.required(&fields, key, example)?;
        reader.unit(&at, example.split(' ').next_back().unwrap_or(example), units::duration_us)
    };
    let (p50, p99) = (quantile("p50", "p50: 2ms"), quantile("p99", "p99: 40ms"));
    let (p50_us, p99_us) = (p50?, p99?);
    if p50_us == 0 || p99_us < p50_us {
        let title = "of a lognormal distribution the median is above 0 and at most the 99th percentile";
        reader.push(Problem::new("bad-distribution", &at.path, title).label("not possible"));
        return None;
    }
    Some(Latency::Lognormal { p50_us, p99_us })
}

fn empirical(reader: &mut Reader, at: &At) -> Option<Latency> {
    let list = reader.list(at, "a list of durations", "[1ms, 2ms, 9ms]")?;
    let values: Option<Vec<u64>> = list.iter().map(|at| reader.unit(at, "2ms", units::duration_us)).collect();
    let values = values?;
    if values.is_empty() {
        reader.push(Problem::new("empty", &at.path, "an empirical distribution has at least one value").label("empty"));
        return None;
    }
    Some(Latency::Empirical(values))
}
