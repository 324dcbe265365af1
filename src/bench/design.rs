//! From a bench to its cells, each with a plan. Pure.
//!
//! All plans of one fixture have the same keys: validators come first, then as many peers as any cell needs, then the node
//! that syncs. The validators are never started; they only sign the fixture.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::BenchError;
use crate::plan::{self, BuildPlan, NodePlan, Plan};
use crate::timeline::{Expect, Latency, Role, Tier};
use crate::topology::bench::{Arm, Bench, FixtureSpec, Settings, Window};
use crate::topology::{Group, Load, Peers, Start, Topology};

/// The syncing node's name in every plan.
pub const SYNC: &str = "sync";
/// Group of the serving peers.
const PEER: &str = "peer";

/// One thing to measure.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its arm.
    pub arm: String,
    /// Value by axis.
    pub axes: IndexMap<String, String>,
    /// Whether it is the first cell once more.
    pub twin: bool,
    /// Between what the rate is taken.
    pub window: Window,
    /// The plan, with peers and the syncing node.
    pub plan: Plan,
    /// Peers that serve.
    pub peers: usize,
    /// One-way latency of the links to them, in microseconds.
    pub link_us: u64,
    /// How much is intercepted of the syncing node.
    pub tier: Tier,
    /// Which fixture it syncs.
    pub fixture: usize,
}

/// Everything that a bench runs.
#[derive(Clone, Debug)]
pub struct Design {
    /// The cells of one round; the first is followed by its twin.
    pub cells: Vec<Cell>,
    /// The chains that are synced, each once.
    pub fixtures: Vec<FixturePlan>,
}

/// One chain that is synced.
#[derive(Clone, Debug)]
pub struct FixturePlan {
    /// What was asked.
    pub spec: FixtureSpec,
    /// A plan with its validators and peers.
    pub plan: Plan,
    /// Most peers that any cell needs.
    pub peers: usize,
}

impl Cell {
    /// The syncing node.
    pub fn node(&self) -> &NodePlan {
        self.plan.nodes.last().expect("every cell's plan ends with the syncing node")
    }
}

/// Makes the cells. The same bench and seed give the same.
///
/// # Errors
/// A plan that cannot be drawn.
pub fn design(bench: &Bench, seed: u64) -> Result<Design, BenchError> {
    let wanted = |settings: &Settings, arm: &Arm| arm.peers.unwrap_or(settings.peers);
    let all = bench.variants.iter().flat_map(|v| v.settings.arms.values().map(move |arm| wanted(&v.settings, arm)));
    let most = all.max().unwrap_or(1);
    let mut design = Design { cells: Vec::new(), fixtures: Vec::new() };
    for variant in &bench.variants {
        for (name, arm) in &variant.settings.arms {
            let peers = wanted(&variant.settings, arm);
            let plan = cell_plan(&bench.name, &variant.settings, arm, (peers, most), seed)?;
            let fixture = fixture_of(&mut design.fixtures, &variant.settings.fixture, &plan, most);
            let latency = plan.nodes.last().is_some_and(|node| !node.sync_latency.is_empty());
            let tier = arm.watch.unwrap_or(if latency { Tier::Observe } else { default_tier() });
            let cell = Cell {
                arm: name.clone(),
                axes: variant.axes.clone(),
                twin: false,
                window: variant.settings.window,
                plan,
                peers,
                link_us: arm.link_us.unwrap_or(variant.settings.link_us),
                tier,
                fixture,
            };
            let twin = design.cells.is_empty().then(|| Cell { twin: true, ..cell.clone() });
            design.cells.push(cell);
            design.cells.extend(twin);
        }
    }
    Ok(design)
}

/// Without syncs seen there are no syncs a block to tell, and the cost is a few percent, the same for all arms.
fn default_tier() -> Tier {
    Tier::Observe
}

fn program(arm: &Arm) -> Option<BuildPlan> {
    let image = || arm.image.clone().map(BuildPlan::Image);
    arm.binary.clone().map(BuildPlan::Binary).or_else(image)
}

fn fixture_of(fixtures: &mut Vec<FixturePlan>, spec: &FixtureSpec, plan: &Plan, peers: usize) -> usize {
    if let Some(found) = fixtures.iter().position(|fixture| fixture.spec == *spec) {
        return found;
    }
    fixtures.push(FixturePlan { spec: spec.clone(), plan: plan.clone(), peers });
    fixtures.len() - 1
}

fn cell_plan(
    name: &str,
    settings: &Settings,
    arm: &Arm,
    (peers, most): (usize, usize),
    seed: u64,
) -> Result<Plan, BenchError> {
    let group = |role, count| Group {
        count,
        role,
        power: if role == Role::Validator { 10 } else { 0 },
        build: None,
        storage: None,
        start: Start::Run,
        peers: Peers::All,
        sync_latency: IndexMap::new(),
        watch: None,
        options: BTreeMap::new(),
    };
    let reference = arm.storage.is_some();
    let syncing = Group {
        storage: arm.storage.clone(),
        sync_latency: arm.sync_latency.clone().unwrap_or_else(|| settings.sync_latency.clone()),
        options: arm.options.clone(),
        ..group(Role::Full, 1)
    };
    let serving = Group { storage: reference.then(|| "per-block".to_owned()), ..group(Role::Full, most) };
    let topology = Topology {
        name: name.to_owned(),
        chain: settings.chain.clone(),
        initial_height: 1,
        built_blocks: settings.fixture.heights,
        application: None,
        builds: IndexMap::new(),
        nodes: IndexMap::from([
            ("val".to_owned(), group(Role::Validator, settings.fixture.validators)),
            (PEER.to_owned(), serving),
            (SYNC.to_owned(), syncing),
        ]),
        load: load(&settings.fixture),
        faults: Vec::new(),
        expect: Expect::default(),
    };
    let mut plan = plan::build(&topology, seed).map_err(|problem| BenchError::Plan(Box::new(problem)))?;
    let names: Vec<String> =
        plan.nodes.iter().filter(|node| node.group == PEER).take(peers).map(|node| node.name.clone()).collect();
    for node in &mut plan.nodes {
        // Peers only answer.
        node.peers = if node.name == SYNC { names.clone() } else { Vec::new() };
        if node.name == SYNC {
            node.build = program(arm);
        }
    }
    Ok(plan)
}

/// What fills a chain that validators make: a genesis has accounts for it. Blocks and not seconds set its pace.
fn load(spec: &FixtureSpec) -> Option<Load> {
    (spec.transactions_per_block > 0).then(|| Load {
        rate: spec.transactions_per_block as f64,
        size: spec.transaction_size,
        kinds: IndexMap::from([(spec.kind.to_owned(), 1)]),
    })
}

/// The serving peers of a plan, in order.
pub fn peers(plan: &Plan) -> impl Iterator<Item = &NodePlan> {
    plan.nodes.iter().filter(|node| node.group == PEER)
}

/// A latency in words.
pub fn latency_words(latency: &Latency) -> String {
    let ms = |us: u64| if us.is_multiple_of(1_000) { format!("{} ms", us / 1_000) } else { format!("{us} µs") };
    match latency {
        Latency::Fixed(us) => ms(*us),
        Latency::Exponential(mean) => format!("{} on average, exponential", ms(*mean)),
        Latency::Lognormal { p50_us, p99_us } => format!("p50 {}, p99 {}", ms(*p50_us), ms(*p99_us)),
        Latency::Empirical(values) => format!("one of {} measured times", values.len()),
        Latency::NotMade => "not made".to_owned(),
    }
}

/// Median and 99th percentile of a latency, in microseconds; `None` where syncs are not made.
pub fn latency_quantiles(latency: &Latency) -> Option<(f64, f64)> {
    Some(match latency {
        Latency::NotMade => return None,
        Latency::Fixed(us) => (*us as f64, *us as f64),
        Latency::Exponential(mean) => (*mean as f64 * 2_f64.ln(), *mean as f64 * 100_f64.ln()),
        Latency::Lognormal { p50_us, p99_us } => (*p50_us as f64, *p99_us as f64),
        Latency::Empirical(values) => {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let at = |share: usize| sorted.get((sorted.len() * share / 100).min(sorted.len().saturating_sub(1)));
            let of = |share| at(share).copied().unwrap_or(0) as f64;
            (of(50), of(99))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::bench::load;

    const FILE: &str = "
midflush: 1
name: one-sync-fewer
chain: { reference: {} }
fixture: { heights: 600, transactions_per_block: 2 }
bench:
  window: { from: 100, to: 500 }
  arms:
    five-syncs: { storage: per-block }
    four-syncs: { storage: single-flush, peers: 3 }
  axes:
    peers: [1, 2]
    disk.sync: [4ms, { lognormal: { p50: 2ms, p99: 9ms } }]
";

    fn designed(text: &str) -> Design {
        let loaded = load("b.yaml", text.as_bytes(), &[], &[]).unwrap_or_else(|p| panic!("{p}"));
        design(&loaded.bench, 7).expect("a design")
    }

    #[test]
    fn cells_are_arms_times_values_with_one_twin_behind_the_first() {
        let of = designed(FILE);
        assert_eq!(of.cells.len(), 2 * 2 * 2 + 1);
        assert!(of.cells[1].twin && of.cells.iter().filter(|cell| cell.twin).count() == 1);
        assert_eq!(of.cells[1].arm, "five-syncs");
        assert_eq!(of.cells[2].arm, "four-syncs");
        assert_eq!(of.cells[0].axes["disk.sync"], "4ms");
        assert_eq!(of.cells[3].axes["disk.sync"], "{lognormal:{p50:2ms p99:9ms}}");
        assert_eq!((of.cells[0].peers, of.cells[2].peers), (1, 3), "an arm's own number is stronger");
        assert_eq!(of.cells[0].node().peers, ["peer-1"]);
        assert_eq!(of.cells[0].node().storage.as_deref(), Some("per-block"));
        assert_eq!(of.cells[0].node().sync_latency["*"], Latency::Fixed(4_000));
        assert_eq!((of.fixtures.len(), of.fixtures[0].peers), (1, 3));
    }

    #[test]
    fn all_cells_of_a_fixture_have_the_same_keys_and_chain() {
        let of = designed(FILE);
        let keys = |plan: &Plan| plan.nodes.iter().map(|node| node.key_seed.clone()).collect::<Vec<_>>();
        for cell in &of.cells {
            assert_eq!(keys(&cell.plan), keys(&of.fixtures[0].plan));
            assert_eq!(cell.plan.chain_id, of.fixtures[0].plan.chain_id);
        }
    }

    #[test]
    fn an_axis_of_the_fixture_makes_several() {
        let of = designed(&FILE.replace("peers: [1, 2]", "transaction_size: [100B, 1kB]"));
        assert_eq!(of.fixtures.len(), 2);
        assert_eq!(of.fixtures[1].spec.transaction_size, 1_000);
        assert_eq!(of.cells.last().expect("cells").fixture, 1);
    }

    #[test]
    fn quantiles_of_what_is_asked() {
        assert_eq!(latency_quantiles(&Latency::Fixed(500)), Some((500.0, 500.0)));
        assert_eq!(latency_quantiles(&Latency::Empirical(vec![9, 1, 2])), Some((2.0, 9.0)));
        let (p50, p99) = latency_quantiles(&Latency::Exponential(1_000)).expect("quantiles");
        assert_eq!(latency_quantiles(&Latency::NotMade), None);
        assert!((p50 - 693.1).abs() < 0.1 && (p99 - 4605.2).abs() < 0.1);
    }
}
