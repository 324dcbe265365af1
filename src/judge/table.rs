//! Hashes by height from many nodes, held so that agreement costs one comparison a value and no memory a node:
//! the first value of a height is kept, and only values that differ from it are kept beside it.

use std::collections::BTreeMap;

/// A set of heights as disjoint ranges, `from` → `to`, both within.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds the heights from `from` to `to`, both within.
    pub(crate) fn insert(&mut self, mut from: u64, mut to: u64) {
        if let Some((start, end)) = self.0.range(..=from).next_back().map(|(a, b)| (*a, *b))
            && end.saturating_add(1) >= from
        {
            from = start;
            to = to.max(end);
        }
        while let Some((start, end)) = self.0.range(from..=to.saturating_add(1)).next_back().map(|(a, b)| (*a, *b)) {
            to = to.max(end);
            self.0.remove(&start);
        }
        self.0.insert(from, to);
    }

    /// Whether a height is in it.
    pub(crate) fn contains(&self, height: u64) -> bool {
        self.0.range(..=height).next_back().is_some_and(|(_, to)| *to >= height)
    }

    /// The lowest and the highest height.
    pub(crate) fn bounds(&self) -> Option<(u64, u64)> {
        Some((*self.0.first_key_value()?.0, *self.0.last_key_value()?.1))
    }
}

/// A value that differs from the first one of its height.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dissent {
    /// Who has it.
    pub(crate) node: usize,
    /// The value.
    pub(crate) hash: String,
    /// The record that it came from.
    pub(crate) seq: u64,
}

#[derive(Clone, Debug)]
struct Cell {
    hash: Box<str>,
    node: u32,
    shared: bool,
    seq: u64,
}

/// One group of nodes with the same value at a height.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The value.
    pub(crate) hash: String,
    /// Node indexes, ascending.
    pub(crate) nodes: Vec<usize>,
    /// Records that show it.
    pub(crate) seqs: Vec<u64>,
}

/// One kind of hash (block ids, or app hashes) of one chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    cells: BTreeMap<u64, Vec<Option<Cell>>>,
    dissent: BTreeMap<u64, Vec<Dissent>>,
    seen: Vec<Ranges>,
}

/// Heights in one block of cells.
const BLOCK: u64 = 1024;

fn fill(slot: &mut Option<Cell>, node: usize, hash: &str, seq: u64) -> Option<Dissent> {
    let Some(cell) = slot else {
        *slot = Some(Cell { hash: hash.into(), node: node as u32, shared: false, seq });
        return None;
    };
    cell.shared |= cell.node != node as u32;
    (&*cell.hash != hash).then(|| Dissent { node, hash: hash.to_owned(), seq })
}

impl Table {
    /// Notes what a node has at one height. The same again changes nothing.
    pub(crate) fn insert(&mut self, node: usize, height: u64, hash: &str, seq: u64) {
        self.insert_run(node, height, [hash].into_iter(), seq);
    }

    /// Notes what a node has at consecutive heights.
    pub(crate) fn insert_run<'a>(
        &mut self,
        node: usize,
        first: u64,
        hashes: impl ExactSizeIterator<Item = &'a str>,
        seq: u64,
    ) {
        if hashes.len() == 0 {
            return;
        }
        if self.seen.len() <= node {
            self.seen.resize_with(node + 1, Ranges::default);
        }
        self.seen[node].insert(first, first + (hashes.len() as u64 - 1));
        let mut hashes = (first..).zip(hashes).peekable();
        while let Some((height, _)) = hashes.peek() {
            let number = height / BLOCK;
            let block = self.cells.entry(number).or_insert_with(|| vec![None; BLOCK as usize]);
            while let Some((height, hash)) = hashes.next_if(|(height, _)| height / BLOCK == number) {
                let slot = &mut block[(height % BLOCK) as usize];
                if let Some(dissent) = fill(slot, node, hash, seq) {
                    let others = self.dissent.entry(height).or_default();
                    if !others.iter().any(|d| d.node == node && d.hash == hash) {
                        others.push(dissent);
                    }
                }
            }
        }
    }

    /// Heights at which at least two nodes have a value.
    pub(crate) fn compared(&self) -> u64 {
        self.shared_cells().count() as u64
    }

    /// Different values at these heights.
    pub(crate) fn distinct(&self) -> u64 {
        let mut all: Vec<&str> = self.shared_cells().map(|(_, cell)| &*cell.hash).collect();
        let dissent = self.dissent.values().flatten();
        all.extend(dissent.map(|d| d.hash.as_str()));
        all.sort_unstable();
        all.dedup();
        all.len() as u64
    }

    /// Different values at heights from `from` on, whether compared or not, up to `enough`.
    pub(crate) fn distinct_from(&self, from: u64, enough: usize) -> usize {
        let mut found: Vec<&str> = Vec::new();
        for (_, cell) in self.filled(from) {
            if !found.contains(&&*cell.hash) {
                found.push(&cell.hash);
                if found.len() >= enough {
                    break;
                }
            }
        }
        found.len()
    }

    /// Heights from `from` on that have a value, up to `enough`.
    pub(crate) fn heights_from(&self, from: u64, enough: usize) -> usize {
        self.filled(from).take(enough).count()
    }

    /// The heights at which values differ, ascending.
    pub(crate) fn disputed(&self) -> impl Iterator<Item = u64> {
        self.dissent.keys().copied()
    }

    /// What every node has at a height, largest group first, then by first node.
    pub(crate) fn groups(&self, height: u64) -> Vec<Group> {
        let Some(cell) = self.cell(height) else { return Vec::new() };
        let others = self.dissent.get(&height).map_or(&[][..], Vec::as_slice);
        let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
        let agreeing = (0..self.seen.len())
            .filter(|node| self.seen[*node].contains(height))
            .filter(|node| *node == cell.node as usize || !others.iter().any(|d| d.node == *node));
        let empty = |hash: &str| Group { hash: hash.to_owned(), nodes: Vec::new(), seqs: Vec::new() };
        let first = groups.entry(&cell.hash).or_insert_with(|| empty(&cell.hash));
        first.nodes.extend(agreeing);
        first.seqs.push(cell.seq);
        for d in others {
            let group = groups.entry(&d.hash).or_insert_with(|| empty(&d.hash));
            group.nodes.push(d.node);
            group.seqs.push(d.seq);
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        for group in &mut groups {
            group.nodes.sort_unstable();
        }
        groups.sort_by_key(|g| (std::cmp::Reverse(g.nodes.len()), g.nodes.first().copied()));
        groups
    }

    /// The lowest and highest height of a node.
    pub(crate) fn range_of(&self, node: usize) -> Option<(u64, u64)> {
        self.seen.get(node)?.bounds()
    }

    /// Whether a node shares at least one height with another.
    pub(crate) fn overlaps(&self, node: usize) -> bool {
        let Some(mine) = self.seen.get(node) else { return false };
        let mut others = self.seen.iter().enumerate().filter(|(other, _)| *other != node);
        others.any(|(_, ranges)| {
            ranges.0.iter().any(|(from, to)| {
                mine.contains(*from) || mine.contains(*to) || mine.0.range(*from..=*to).next().is_some()
            })
        })
    }

    /// Heights at which any node has a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    fn cell(&self, height: u64) -> Option<&Cell> {
        self.cells.get(&(height / BLOCK))?[(height % BLOCK) as usize].as_ref()
    }

    fn filled(&self, from: u64) -> impl Iterator<Item = (u64, &Cell)> {
        self.cells
            .range(from / BLOCK..)
            .flat_map(|(block, cells)| {
                cells.iter().enumerate().map(move |(i, cell)| (block * BLOCK + i as u64, cell.as_ref()))
            })
            .filter_map(|(height, cell)| Some((height, cell?)))
            .filter(move |(height, _)| *height >= from)
    }

    fn shared_cells(&self) -> impl Iterator<Item = (u64, &Cell)> {
        self.filled(0).filter(|(_, cell)| cell.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_in_any_order() {
        let mut ranges = Ranges::default();
        for height in [5, 3, 4, 9, 1, 4] {
            ranges.insert(height, height);
        }
        assert_eq!(ranges.0, BTreeMap::from([(1, 1), (3, 5), (9, 9)]));
        assert!(ranges.contains(4) && !ranges.contains(6) && !ranges.contains(0));
        assert_eq!(ranges.bounds(), Some((1, 9)));
        ranges.insert(2, 20);
        assert_eq!(ranges.0, BTreeMap::from([(1, 20)]));
    }

    #[test]
    fn groups_name_who_has_what() {
        let mut table = Table::default();
        for (node, hash) in [(2, "bb"), (0, "aa"), (1, "aa"), (3, "aa"), (0, "aa")] {
            table.insert(node, 7, hash, 10 + node as u64);
        }
        let groups = table.groups(7);
        assert_eq!(groups.len(), 2);
        assert_eq!((groups[0].hash.as_str(), groups[0].nodes.as_slice()), ("aa", &[0, 1, 3][..]));
        assert_eq!((groups[1].hash.as_str(), groups[1].nodes.as_slice()), ("bb", &[2][..]));
        assert_eq!((table.compared(), table.distinct()), (1, 2));
    }

    #[test]
    fn a_node_may_contradict_itself() {
        let mut table = Table::default();
        table.insert(0, 7, "aa", 1);
        table.insert(0, 7, "bb", 2);
        let groups = table.groups(7);
        assert_eq!(groups.iter().map(|g| g.nodes.clone()).collect::<Vec<_>>(), [vec![0], vec![0]]);
        assert_eq!(table.compared(), 0);
    }

    #[test]
    fn overlap_needs_one_common_height() {
        let mut table = Table::default();
        for height in 60..=80 {
            table.insert(0, height, "x", 0);
            table.insert(1, height - 50, "x", 0);
        }
        table.insert(2, 81, "x", 0);
        assert!(!table.overlaps(2) && !table.overlaps(0));
        table.insert(1, 70, "x", 0);
        assert!(table.overlaps(0) && table.overlaps(1) && !table.overlaps(2));
    }
}
