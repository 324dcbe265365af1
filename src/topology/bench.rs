//! The language of benches: a chain, a fixture, arms and axes, how it is measured, and what is required of the ratios.
//!
//! [`load`] is the way in, as [`super::load`] is for topologies; `--set` works on both.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::diagnostic::{Problem, Problems, Source};
use super::path::Path;
use super::tree::Tree;
use super::{Chain, read, read_text, read_tree, reader, set, write};
use crate::timeline::{Latency, Tier};

/// A bench that can be run, with what it was read from.
#[derive(Clone, Debug)]
pub struct LoadedBench {
    /// The checked types.
    pub bench: Bench,
    /// For showing problems that are found later.
    pub source: Source,
    /// The file with all arguments carried out, as YAML that reads back as the same bench.
    pub resolved: String,
}

/// What is measured, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Bench {
    /// Its name.
    pub name: String,
    /// Rounds that count.
    pub rounds: u32,
    /// Stop early, or go on until an interval is this narrow.
    pub until: Option<Until>,
    /// Above these a round does not count.
    pub limits: Limits,
    /// Whether node and peers get cores of their own.
    pub pin: bool,
    /// Longest time of one cell, in milliseconds.
    pub cell_limit_ms: u64,
    /// Names of the axes, in file order.
    pub axes: Vec<String>,
    /// One for each combination of values of the axes, the first axis slowest; exactly one where there are no axes.
    pub variants: Vec<Variant>,
    /// What must hold of the result.
    pub require: Vec<Gate>,
}

/// When enough is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Until {
    /// Half the width of the widest interval of a ratio, relative to the ratio: 0.02 is 2 %.
    pub half_width: f64,
    /// Most rounds, whatever was reached.
    pub rounds: u32,
}

/// What a round may see of the machine. `None` is not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Load average over one minute.
    pub load: Option<f64>,
    /// CPU pressure, `some` over ten seconds, in percent.
    pub cpu_pressure: Option<f64>,
    /// I/O pressure, the same.
    pub io_pressure: Option<f64>,
}

/// One combination of values of the axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Value by axis, as written.
    pub axes: IndexMap<String, String>,
    /// Everything that the values may change.
    pub settings: Settings,
}

/// What a cell is made from, beside its arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The node family with its options.
    pub chain: Chain,
    /// The chain that is synced.
    pub fixture: FixtureSpec,
    /// Between what the rate is taken.
    pub window: Window,
    /// Peers that serve, where an arm does not say.
    pub peers: usize,
    /// Sync latency of the syncing node by store, where an arm does not say.
    pub sync_latency: IndexMap<String, Latency>,
    /// One-way latency of the links to the peers in microseconds, where an arm does not say.
    pub link_us: u64,
    /// The arms, in file order.
    pub arms: IndexMap<String, Arm>,
}

/// A chain made once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixtureSpec {
    /// Its height.
    pub heights: u64,
    /// Transactions in each block.
    pub transactions_per_block: u64,
    /// Bytes of each transaction.
    pub transaction_size: usize,
    /// Their kind: the usual one of the family.
    pub kind: &'static str,
    /// Validators that sign it, with equal power.
    pub validators: usize,
    /// A data folder of this chain that is there already.
    pub data: Option<String>,
}

/// Between what the rate is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// From the first look at or above a height to the first at or above another.
    Heights {
        /// The lower.
        from: u64,
        /// The upper.
        to: u64,
    },
    /// A time, after another since the first block.
    Time {
        /// Not measured.
        warm_up_ms: u64,
        /// Measured.
        measure_ms: u64,
    },
}

/// One side of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arm {
    /// Storage discipline, of reference nodes.
    pub storage: Option<String>,
    /// Program on this machine in place of the chain's.
    pub binary: Option<String>,
    /// Image in place of the chain's.
    pub image: Option<String>,
    /// Peers that serve.
    pub peers: Option<usize>,
    /// Sync latency by store.
    pub sync_latency: Option<IndexMap<String, Latency>>,
    /// One-way latency of the links to the peers in microseconds.
    pub link_us: Option<u64>,
    /// How much is intercepted; `observe` where nothing is said.
    pub watch: Option<Tier>,
    /// Settings handed to the node's configuration as they are.
    pub options: BTreeMap<String, serde_json::Value>,
}

/// Something that must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// What is looked at.
    pub of: GateOf,
    /// It must not be below.
    pub at_least: Option<f64>,
    /// It must not be above.
    pub at_most: Option<f64>,
}

/// What a gate looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateOf {
    /// The ratio of two arms, or of two values of an axis (`peers=2/peers=1`), wherever both were measured.
    Ratio(String, String),
    /// Every ratio of an arm to the first one.
    EveryRatio,
    /// Blocks a second of an arm in every cell.
    BlocksPerS(String),
}

/// Reads a bench. `builds` are named programs that take the place of the arms.
///
/// # Errors
/// Everything that is wrong, with places; nothing has been created.
pub fn load(file: &str, bytes: &[u8], sets: &[String], builds: &[(String, String)]) -> Result<LoadedBench, Problems> {
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
    if let Err(problem) = put_builds(&mut tree, builds) {
        problems.push(problem);
    }
    let mut reader = reader::Reader { problems };
    let bench = read::bench::bench(&mut reader, &tree);
    match bench {
        Some(bench) if reader.problems.is_empty() => {
            let resolved = if sets.is_empty() && builds.is_empty() { source.text.clone() } else { write(&tree) };
            Ok(LoadedBench { bench, source, resolved })
        }
        _ => Err(Problems::new(&source, reader.problems)),
    }
}

/// Each build becomes an arm; what the file's only arm says, if there is one, holds for all of them.
fn put_builds(tree: &mut Tree, builds: &[(String, String)]) -> Result<(), Problem> {
    if builds.is_empty() {
        return Ok(());
    }
    let path = Path::root().key("bench").key("arms");
    let base = match tree_at(tree, &["bench", "arms"]) {
        Some(Tree::Map(arms)) if arms.len() > 1 => {
            let title = "builds given on the command line take the place of the arms, and there are several";
            let problem = Problem::at_key("two-kinds-of-arms", &path, title).label("more than one arm");
            return Err(problem.help("keep one arm, whose settings then hold for every build"));
        }
        Some(Tree::Map(arms)) => match arms.first() {
            Some((_, Tree::Map(keys))) => keys.clone(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    let arms = builds.iter().map(|(name, program)| {
        let mut keys: Vec<(String, Tree)> = base.iter().filter(|(key, _)| key != "binary").cloned().collect();
        keys.push(("binary".to_owned(), Tree::Text(program.clone())));
        (name.clone(), Tree::Map(keys))
    });
    let arms = Tree::Map(arms.collect());
    set::put(tree, &path, arms).map_err(|why| Problem::new("bad-build", &path, why).label("cannot hold builds"))
}

fn tree_at<'t>(tree: &'t Tree, keys: &[&str]) -> Option<&'t Tree> {
    keys.iter().try_fold(tree, |tree, key| match tree {
        Tree::Map(map) => map.iter().find(|(name, _)| name == key).map(|(_, value)| value),
        _ => None,
    })
}
