//! Who dials whom: a full mesh, named peers, or random graphs that are connected.

use std::collections::BTreeSet;

use rand::{Rng, RngExt};

use super::draw::some;
use crate::topology::{Group, Path, Peers, Problem, Start, Topology};

/// How often a random graph is drawn before it is given up. Connected graphs of degree 3 and more come within a few.
const TRIES: usize = 1_000;

/// For each node, in plan order, the positions of the nodes that it dials, in plan order.
///
/// * No number anywhere: everyone dials everyone.
/// * A number on every node: a random graph in which each node has exactly its number of links; both ends dial.
/// * Numbers on some: the others dial each other, and a node with a number dials that many, drawn from those that start with the run.
pub(super) fn peers(topology: &Topology, rng: &mut impl Rng) -> Result<Vec<Vec<usize>>, Problem> {
    let nodes: Vec<(String, &str, &Group)> = topology.nodes().collect();
    let degrees: Option<Vec<usize>> = nodes
        .iter()
        .map(|(_, _, group)| if let Peers::Count(peers) = group.peers { Some(peers) } else { None })
        .collect();
    if let Some(degrees) = degrees {
        let graph = connected(|| random(&degrees, rng)).ok_or_else(|| impossible(topology))?;
        return Ok(graph.into_iter().map(|links| links.into_iter().collect()).collect());
    }
    let draw = || Some(mixed(&nodes, rng));
    let graph = connected(draw).ok_or_else(|| impossible(topology))?;
    Ok(graph.into_iter().map(|links| links.into_iter().collect()).collect())
}

fn impossible(topology: &Topology) -> Problem {
    let numbered = |group: &Group| !matches!(group.peers, Peers::All);
    let group = topology.nodes.iter().find(|(_, group)| numbered(group)).map_or("", |(name, _)| name.as_str());
    let path = Path::root().key("nodes").key(group).key("peers");
    Problem::new("impossible-graph", &path, "no connected graph with these peers was found")
        .label("leaves nodes apart")
        .help("raise the number of peers, or leave `peers` out in one group")
}

type Graph = Vec<BTreeSet<usize>>;

/// The first connected graph of those drawn.
fn connected(mut draw: impl FnMut() -> Option<Graph>) -> Option<Graph> {
    (0..TRIES).find_map(|_| draw().filter(is_connected))
}

/// Whether every node is reached from the first, links taken both ways.
fn is_connected(graph: &Graph) -> bool {
    let mut both: Graph = graph.clone();
    for (from, links) in graph.iter().enumerate() {
        for to in links {
            both[*to].insert(from);
        }
    }
    let mut reached = BTreeSet::from([0]);
    let mut next = vec![0];
    while let Some(node) = next.pop() {
        next.extend(both[node].iter().copied().filter(|other| reached.insert(*other)));
    }
    reached.len() == graph.len()
}

fn mixed(nodes: &[(String, &str, &Group)], rng: &mut impl Rng) -> Graph {
    let mesh: Vec<usize> =
        nodes.iter().enumerate().filter(|(_, (_, _, group))| group.peers == Peers::All).map(|(at, _)| at).collect();
    let mut graph = Graph::with_capacity(nodes.len());
    for (me, (_, _, group)) in nodes.iter().enumerate() {
        let others = |from: &mut dyn Iterator<Item = usize>| from.filter(|at| *at != me).collect::<Vec<usize>>();
        graph.push(match &group.peers {
            // A mesh of one is alone: it dials everyone.
            Peers::All if mesh.len() == 1 => others(&mut (0..nodes.len())).into_iter().collect(),
            Peers::All => others(&mut mesh.iter().copied()).into_iter().collect(),
            Peers::Named(names) => {
                let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
                let named = |at: &usize| names.contains(nodes[*at].0.as_str()) || names.contains(nodes[*at].1);
                others(&mut (0..nodes.len()).filter(named)).into_iter().collect()
            }
            Peers::Count(count) => {
                let early = |at: &usize| nodes[*at].2.start == Start::Run;
                let mut pool = others(&mut (0..nodes.len()).filter(early));
                if pool.len() < *count {
                    pool = others(&mut (0..nodes.len()));
                }
                some(rng, &pool, *count).into_iter().collect()
            }
        });
    }
    graph
}

/// A random simple graph with these degrees, or `None` when the drawing came to a dead end (Steger and Wormald's way).
fn random(degrees: &[usize], rng: &mut impl Rng) -> Option<Graph> {
    let count = degrees.len();
    let first = degrees.first().copied().unwrap_or_default();
    if degrees.iter().all(|degree| *degree == first) && first * 2 > count {
        // Dense regular graphs are drawn as the complement of sparse ones.
        let sparse = random(&vec![count.checked_sub(1 + first)?; count], rng)?;
        let all: BTreeSet<usize> = (0..count).collect();
        let rest = |(me, links): (usize, BTreeSet<usize>)| {
            all.iter().copied().filter(|at| *at != me && !links.contains(at)).collect()
        };
        return Some(sparse.into_iter().enumerate().map(rest).collect());
    }
    let mut graph: Graph = vec![BTreeSet::new(); count];
    // Each node once for each link that it still lacks.
    let mut ends: Vec<usize> = degrees.iter().enumerate().flat_map(|(at, degree)| vec![at; *degree]).collect();
    while ends.len() > 1 {
        let (i, j) = suitable(&ends, &graph, rng)?;
        let (a, b) = (ends[i], ends[j]);
        graph[a].insert(b);
        graph[b].insert(a);
        ends.swap_remove(i.max(j));
        ends.swap_remove(i.min(j));
    }
    ends.is_empty().then_some(graph)
}

/// Two ends that may be joined.
fn suitable(ends: &[usize], graph: &Graph, rng: &mut impl Rng) -> Option<(usize, usize)> {
    let fits = |i: usize, j: usize| ends[i] != ends[j] && !graph[ends[i]].contains(&ends[j]);
    for _ in 0..100 {
        let (i, j) = (rng.random_range(0..ends.len()), rng.random_range(0..ends.len()));
        if fits(i, j) {
            return Some((i, j));
        }
    }
    // Few are left: look at all.
    let pairs: Vec<(usize, usize)> =
        (0..ends.len()).flat_map(|i| (0..i).map(move |j| (i, j))).filter(|(i, j)| fits(*i, *j)).take(10_000).collect();
    (!pairs.is_empty()).then(|| pairs[rng.random_range(0..pairs.len())])
}
