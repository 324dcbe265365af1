//! The sections of a bench, and its variants: the file read once for each combination of values of the axes.

use indexmap::IndexMap;

use super::nodes::{consent, disk, only_reference, storage, watch};
use super::{chain, name, version};
use crate::topology::bench::{Arm, Bench, FixtureSpec, Limits, Settings, Until, Variant, Window};
use crate::topology::diagnostic::Problem;
use crate::topology::families;
use crate::topology::path::Path;
use crate::topology::reader::{At, Fields, Reader};
use crate::topology::tree::Tree;
use crate::topology::types::Chain;
use crate::topology::{set, units};

mod require;

const KEYS: &[&str] = &["midflush", "name", "chain", "fixture", "bench"];
const BENCH_KEYS: &[&str] =
    &["window", "rounds", "until", "limits", "pin", "cell_limit", "peers", "disk", "link", "arms", "axes", "require"];
const ARM_KEYS: &[&str] = &["storage", "unsafe", "binary", "image", "peers", "disk", "link", "watch", "options"];
/// Most rounds of one bench.
const ROUNDS_MAX: u64 = 1_000;
/// Rounds where the file names none: the fewest that an interval is told from.
const ROUNDS: u32 = 6;
/// Most cells of one round.
const CELLS_MAX: usize = 200;
/// Fewest blocks of a window: a rate over fewer says nothing.
const WINDOW_MIN: u64 = 20;
/// Blocks that the chain must hold above the window: the last ones are not fetched as the others are.
const ABOVE_WINDOW: u64 = 2;
/// Longest time of one cell where the file names none.
const CELL_LIMIT_MS: u64 = 600_000;
/// Longest one-way latency of a link.
const LINK_MAX_US: u64 = 5_000_000;

/// Reads a whole bench. `None` when something is missing that everything else hangs on.
pub(in crate::topology) fn bench(reader: &mut Reader, tree: &Tree) -> Option<Bench> {
    let at = At { tree, path: Path::root() };
    let fields = reader.map(&at, "a map", "midflush: 1", KEYS)?;
    if let Some(at) = reader.required(&fields, "midflush", "midflush: 1") {
        version(reader, &at);
    }
    let name = reader.required(&fields, "name", "name: one-sync-fewer").and_then(|at| name(reader, &at));
    let base = settings(reader, tree);
    let bench = reader.required(&fields, "bench", "bench: { arms: { base: {} } }")?;
    let bench = reader.map(&bench, "a map", "{ window: { from: 500, to: 5500 } }", BENCH_KEYS)?;
    let rounds = match bench.get("rounds") {
        None => Some(ROUNDS),
        Some(at) => reader.whole(&at, 1, ROUNDS_MAX).and_then(|n| u32::try_from(n).ok()),
    };
    let until = bench.get("until").and_then(|at| until(reader, &at));
    let limits = bench.get("limits").map(|at| limits(reader, &at)).unwrap_or_default();
    let pin = bench.get("pin").map_or(Some(true), |at| reader.flag(&at));
    let cell_limit_ms = match bench.get("cell_limit") {
        None => Some(CELL_LIMIT_MS),
        Some(at) => reader.unit(&at, "5m", units::duration_ms),
    };
    // A file that is wrong as it stands would be told wrong once a variant.
    let base = base.filter(|_| reader.problems.is_empty())?;
    let axes = axes(reader, &bench);
    let variants = variants(reader, tree, &axes, &base)?;
    let require = require::require(reader, &bench, &base, &axes);
    Some(Bench {
        name: name?,
        rounds: rounds?,
        until,
        limits,
        pin: pin?,
        cell_limit_ms: cell_limit_ms?,
        axes: axes.iter().map(|axis| axis.name.clone()).collect(),
        variants,
        require,
    })
}

/// Everything that an axis may change.
fn settings(reader: &mut Reader, tree: &Tree) -> Option<Settings> {
    let at = At { tree, path: Path::root() };
    // Unknown keys are told by the caller.
    let top = reader.any_map(&at, "a map", "midflush: 1")?;
    let section = reader.required(&top, "chain", "chain: { reference: {} }").and_then(|at| {
        let section = chain::chain(reader, &at)?;
        if section.application.is_some() {
            let title = "a bench runs nodes without an application beside them";
            reader.push(Problem::at_key("not-in-a-bench", &at.path, title).label("has an `application`"));
            return None;
        }
        if section.built_blocks > 0 {
            let title = "a bench makes its chain as `fixture` says";
            let problem = Problem::at_key("two-fixtures", &at.path, title).label("has `start_from`");
            reader.push(problem.help("write `fixture: { heights: 6000 }` in its place"));
            return None;
        }
        if sets_itself_up(&section.family) {
            let title = "a chain that its own command line sets up has no bench";
            let problem = Problem::at_key("no-bench", &at.path, title).label("needs a set-up");
            reader.push(problem.help("the other families have one: `reference`, `cometbft`, `gnoland`, `tenderdash`"));
            return None;
        }
        Some(section)
    });
    let family = section.as_ref().map(|section| &section.family);
    let fixture =
        reader.required(&top, "fixture", "fixture: { heights: 6000 }").and_then(|at| fixture(reader, &at, family));
    let bench = top.get("bench")?;
    let bench = reader.any_map(&bench, "a map", "{ arms: { base: {} } }")?;
    let window = reader
        .required(&bench, "window", "window: { from: 500, to: 5500 }")
        .and_then(|at| window(reader, &at, fixture.as_ref()));
    let peers = bench.get("peers").map_or(Some(1), |at| peers(reader, &at));
    let sync_latency = bench.get("disk").map_or(Some(IndexMap::new()), |at| disk(reader, &at));
    let link_us = bench.get("link").map_or(Some(0), |at| link(reader, &at));
    let arms = reader.required(&bench, "arms", "arms: { base: {} }").and_then(|at| arms(reader, &at, family));
    Some(Settings {
        chain: section?.family,
        fixture: fixture?,
        window: window?,
        peers: peers?,
        sync_latency: sync_latency?,
        link_us: link_us?,
        arms: arms?,
    })
}

/// Whether files of a node come from a command that runs once before the network: a bench has no such step.
fn sets_itself_up(chain: &Chain) -> bool {
    match chain {
        Chain::CosmosSdk(_) => true,
        Chain::Custom(custom) => custom.set_up.is_some(),
        Chain::Reference(_) | Chain::Cometbft(_) | Chain::Gnoland(_) | Chain::Tenderdash(_) => false,
    }
}

fn fixture(reader: &mut Reader, at: &At, family: Option<&Chain>) -> Option<FixtureSpec> {
    let known = ["heights", "transactions_per_block", "transaction_size", "validators", "data"];
    let fields = reader.map(at, "a map", "{ heights: 6000, transactions_per_block: 20 }", &known)?;
    let heights = reader.required(&fields, "heights", "heights: 6000").and_then(|at| reader.whole(&at, 1, 10_000_000));
    let per_block = fields.get("transactions_per_block").map_or(Some(4), |at| reader.whole(&at, 0, 10_000));
    let size = fields.get("transaction_size").map_or(Some(250), |at| reader.unit(&at, "250B", units::size));
    let validators = fields.get("validators").map_or(Some(4), |at| reader.whole(&at, 1, 200));
    let data = match fields.get("data") {
        None => Some(None),
        Some(at) => reader.text(&at, "/var/lib/node/data").map(|text| Some(text.to_owned())),
    };
    Some(FixtureSpec {
        heights: heights?,
        transactions_per_block: per_block?,
        transaction_size: size?,
        kind: families::kinds(family)[0],
        validators: usize::try_from(validators?).ok()?,
        data: data?,
    })
}

fn window(reader: &mut Reader, at: &At, fixture: Option<&FixtureSpec>) -> Option<Window> {
    let example = "{ from: 500, to: 5500 }";
    let fields = reader.map(at, "a map", example, &["from", "to", "warm_up", "measure"])?;
    let heights = fields.get("from").is_some() || fields.get("to").is_some();
    if !heights && fields.get("measure").is_some() {
        let warm_up_ms = fields.get("warm_up").map_or(Some(0), |at| reader.unit(&at, "5s", units::duration_ms));
        let measure_ms = fields.get("measure").and_then(|at| reader.unit(&at, "10s", units::duration_ms));
        return Some(Window::Time { warm_up_ms: warm_up_ms?, measure_ms: measure_ms?.max(1) });
    }
    let from = reader.required(&fields, "from", "from: 500").and_then(|at| reader.whole(&at, 1, 10_000_000))?;
    let to_at = reader.required(&fields, "to", "to: 5500")?;
    let to = reader.whole(&to_at, 1, 10_000_000)?;
    let fixture = fixture?;
    if to < from + WINDOW_MIN {
        let title = format!("a window has at least {WINDOW_MIN} blocks");
        reader.push(
            Problem::new("too-few-blocks", &to_at.path, title).label(format!("{} here", to.saturating_sub(from))),
        );
        return None;
    }
    if to + ABOVE_WINDOW > fixture.heights {
        let title = format!("too few blocks for the window: the chain has {}", fixture.heights);
        let help = format!("raise `fixture.heights` to {} or more, or lower `to`", to + ABOVE_WINDOW);
        reader.push(Problem::new("too-few-blocks", &to_at.path, title).label("too high").help(help));
        return None;
    }
    Some(Window::Heights { from, to })
}

fn peers(reader: &mut Reader, at: &At) -> Option<usize> {
    usize::try_from(reader.whole(at, 1, 64)?).ok()
}

/// `{ latency: 10ms }`, one way.
fn link(reader: &mut Reader, at: &At) -> Option<u64> {
    let fields = reader.map(at, "a map", "{ latency: 10ms }", &["latency"])?;
    let latency = reader.required(&fields, "latency", "latency: 10ms")?;
    let us = reader.unit(&latency, "10ms", units::duration_us)?;
    if us <= LINK_MAX_US {
        return Some(us);
    }
    let problem = Problem::new("out-of-bounds", &latency.path, "a link's latency is at most 5 s").label("too long");
    reader.push(problem);
    None
}

fn arms(reader: &mut Reader, at: &At, family: Option<&Chain>) -> Option<IndexMap<String, Arm>> {
    let fields = reader.any_map(at, "a map of arms", "{ five-syncs: { storage: per-block } }")?;
    let mut arms = IndexMap::new();
    for (key, at) in fields.iter() {
        if !super::is_name(key, 40) {
            let title = "an arm's name has lower-case letters, digits and `-`, and begins with a letter; at most 40";
            reader.push(Problem::at_key("bad-name", &at.path, title).label("cannot be a name"));
            return None;
        }
        arms.insert(key.to_owned(), arm(reader, &at, family)?);
    }
    if arms.is_empty() {
        let problem = Problem::at_key("empty", &fields.path, "there are no arms").label("empty");
        reader.push(problem.help("write `arms: { base: {} }`"));
        return None;
    }
    Some(arms)
}

fn arm(reader: &mut Reader, at: &At, family: Option<&Chain>) -> Option<Arm> {
    let fields = reader.map(at, "a map", "{ storage: per-block }", ARM_KEYS)?;
    let storage = storage(reader, &fields, family);
    let sync_latency = match fields.get("disk") {
        None => Some(None),
        Some(at) => disk(reader, &at).map(Some),
    };
    let watched = sync_latency.clone().flatten();
    consent(reader, &fields, watched.as_ref());
    let watch = fields.get("watch").map_or(Some(None), |at| watch(reader, &at, watched.as_ref()));
    let options = chain::options(reader, &fields);
    if let Some(at) = fields.get("options").filter(|_| !matches!(family, None | Some(Chain::Reference(_)))) {
        only_reference(reader, &at, "`options`");
    }
    let text = |reader: &mut Reader, key: &str| match fields.get(key) {
        None => Some(None),
        Some(at) => reader.text(&at, "/opt/node").map(|text| Some(text.to_owned())),
    };
    let binary = text(reader, "binary");
    let image = text(reader, "image");
    let peers = match fields.get("peers") {
        None => Some(None),
        Some(at) => peers(reader, &at).map(Some),
    };
    let link_us = match fields.get("link") {
        None => Some(None),
        Some(at) => link(reader, &at).map(Some),
    };
    Some(Arm {
        storage: storage?,
        binary: binary?,
        image: image?,
        peers: peers?,
        sync_latency: sync_latency?,
        link_us: link_us?,
        watch: watch?,
        options: options?,
    })
}

fn until(reader: &mut Reader, at: &At) -> Option<Until> {
    let fields = reader.map(at, "a map", "{ half_width: 2%, rounds: 30 }", &["half_width", "rounds"])?;
    let width = reader.required(&fields, "half_width", "half_width: 2%");
    let half_width = width.and_then(|at| reader.unit(&at, "2%", units::percent));
    let rounds = fields.get("rounds").map_or(Some(30), |at| reader.whole(&at, 6, ROUNDS_MAX));
    Some(Until { half_width: half_width? / 100.0, rounds: u32::try_from(rounds?).ok()? })
}

fn limits(reader: &mut Reader, at: &At) -> Limits {
    let example = "{ load: 4, cpu_pressure: 40%, io_pressure: 40% }";
    let Some(fields) = reader.map(at, "a map", example, &["load", "cpu_pressure", "io_pressure"]) else {
        return Limits::default();
    };
    let percent =
        |reader: &mut Reader, key: &str| fields.get(key).and_then(|at| reader.unit(&at, "40%", units::percent));
    Limits {
        load: fields.get("load").and_then(|at| number(reader, &at)),
        cpu_pressure: percent(reader, "cpu_pressure"),
        io_pressure: percent(reader, "io_pressure"),
    }
}

/// A number above 0, with or without a fraction.
fn number(reader: &mut Reader, at: &At) -> Option<f64> {
    let value = match at.tree {
        #[expect(clippy::cast_precision_loss, reason = "limits and ratios are small")]
        Tree::Int(value) => *value as f64,
        Tree::Float(value) => *value,
        _ => {
            reader.wrong_type(at, "a number", "0.95");
            return None;
        }
    };
    if value.is_finite() && value > 0.0 && value < 1e9 {
        return Some(value);
    }
    let title = format!("`{}` must be above 0 and below 1000000000", at.path);
    reader.push(Problem::new("out-of-bounds", &at.path, title).label(format!("found {value}")));
    None
}

/// One axis: what it is called, what it changes, and its values with their places.
struct Axis {
    name: String,
    path: Path,
    values: Vec<(Tree, Path)>,
}

fn axes(reader: &mut Reader, bench: &Fields) -> Vec<Axis> {
    let Some(at) = bench.get("axes") else { return Vec::new() };
    let Some(fields) = reader.any_map(&at, "a map of axes", "{ peers: [1, 2, 4, 8] }") else { return Vec::new() };
    let mut axes = Vec::new();
    for (name, at) in fields.iter() {
        let long = match name {
            "peers" | "disk.sync" | "link.latency" => format!("bench.{name}"),
            "transactions_per_block" | "transaction_size" | "validators" => format!("fixture.{name}"),
            other => other.to_owned(),
        };
        let path = match Path::parse(&long) {
            Ok(path) => path,
            Err(why) => {
                let title = format!("`{name}` is no path: {why}");
                reader.push(Problem::at_key("bad-axis", &at.path, title).label("no path"));
                continue;
            }
        };
        let Some(list) = reader.list(&at, "a list of values", "[1, 2, 4]") else { continue };
        if list.is_empty() {
            reader.push(Problem::new("empty", &at.path, format!("the axis `{name}` has no values")).label("empty"));
        }
        let values = list.iter().map(|at| (at.tree.clone(), at.path.clone())).collect();
        axes.push(Axis { name: name.to_owned(), path, values });
    }
    axes
}

fn variants(reader: &mut Reader, tree: &Tree, axes: &[Axis], base: &Settings) -> Option<Vec<Variant>> {
    let count: usize = axes.iter().map(|axis| axis.values.len()).fold(1, usize::saturating_mul);
    let cells = count.saturating_mul(base.arms.len());
    let place = Path::root().key("bench").key("axes");
    if cells > CELLS_MAX {
        let title = format!("arms and axes make {cells} cells a round; there are at most {CELLS_MAX}");
        reader.push(Problem::at_key("out-of-bounds", &place, title).label("too many"));
        return None;
    }
    let mut variants = Vec::with_capacity(count);
    for number in 0..count {
        let mut left = number;
        let mut chosen = Vec::with_capacity(axes.len());
        for axis in axes.iter().rev() {
            chosen.push((axis, &axis.values[left % axis.values.len()]));
            left /= axis.values.len();
        }
        chosen.reverse();
        variants.push(variant(reader, tree, &chosen)?);
    }
    Some(variants)
}

fn variant(reader: &mut Reader, tree: &Tree, chosen: &[(&Axis, &(Tree, Path))]) -> Option<Variant> {
    let mut tree = tree.clone();
    for (axis, (value, place)) in chosen {
        if let Err(why) = set::put(&mut tree, &axis.path, value.clone()) {
            reader.push(Problem::new("bad-axis", place, why).label("cannot be set"));
            return None;
        }
    }
    let mut own = Reader::default();
    let settings = settings(&mut own, &tree);
    for problem in own.problems {
        let mut moved = None;
        for (axis, (_, place)) in chosen {
            moved = moved.or_else(|| problem.clone().moved(&axis.path, place));
        }
        // Anything else is wrong between a value and the rest of the file: the last axis shows it.
        let elsewhere = chosen.last().and_then(|(_, (_, place))| problem.clone().moved(&Path::root(), place));
        reader.push(moved.or(elsewhere).unwrap_or(problem));
    }
    let axes = chosen.iter().map(|(axis, (value, _))| (axis.name.clone(), word(value))).collect();
    Some(Variant { axes, settings: settings? })
}

/// A value on one line.
fn word(tree: &Tree) -> String {
    match tree {
        Tree::Text(text) => text.clone(),
        Tree::Null => "null".to_owned(),
        Tree::Bool(value) => value.to_string(),
        Tree::Int(value) => value.to_string(),
        Tree::Float(value) => value.to_string(),
        Tree::List(list) => format!("[{}]", list.iter().map(word).collect::<Vec<_>>().join(" ")),
        Tree::Map(map) => {
            let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", word(value))).collect();
            format!("{{{}}}", entries.join(" "))
        }
    }
}
