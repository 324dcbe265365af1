//! Events against what a crash left: a block's events may be published once, in block order, and not before the block is
//! durable, so that whoever acts on one can rely on it.

use std::collections::BTreeMap;

use super::model::{Life, Model, Node, Published};
use super::{Finding, Verdict};
use crate::timeline::Heights;

/// At most one finding a node and kind.
pub(crate) fn check(model: &Model) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in &model.nodes {
        findings.extend(early(node));
        findings.extend(again(node));
        findings.extend(left_out(node));
    }
    findings
}

/// The lowest of the three heights after a start's end; where only the next handshake tells them, the block store's, since
/// a node may have replayed by then.
pub(crate) fn kept(life: &Life, next: Option<&Life>) -> Option<(u64, Heights, u64)> {
    if let Some((heights, seq)) = life.stored.filter(|(heights, _)| *heights != Heights::default()) {
        let lowest = [heights.app, heights.state, heights.store].into_iter().flatten().min()?;
        return Some((lowest, heights, seq));
    }
    let handshake = next?.handshake.as_ref()?;
    Some((handshake.heights.store?, handshake.heights, handshake.seq))
}

/// Published, and gone after the end of the process. A node that skips its syncs promises nothing.
fn early(node: &Node) -> Option<Finding> {
    if node.storage.as_deref() == Some("no-sync") {
        return None;
    }
    node.lives.iter().find_map(|(start, life)| {
        let top = life.published.iter().max_by_key(|row| row.last)?;
        let (kept, heights, seq) = kept(life, node.lives.get(&(start + 1)))?;
        let detail = format!(
            "events up to block {} were published in start {start}, and its end left app/state/store {heights}: {} blocks \
             that somebody was told of are not there",
            top.last,
            top.last.saturating_sub(kept)
        );
        (top.last > kept).then(|| finding(node, kept + 1, detail, "published-early").evidence([top.seq, seq]))
    })
}

/// Published twice, over all starts.
fn again(node: &Node) -> Option<Finding> {
    // First height → last height and record of what came so far; neighbours are not joined, since records are told apart.
    let mut before: BTreeMap<u64, Published> = BTreeMap::new();
    for (start, life) in &node.lives {
        if life.fresh {
            before.clear();
        }
        for row in &life.published {
            let overlaps =
                before.range(..=row.last).rev().map(|(_, known)| known).find(|known| known.last >= row.first);
            if let Some(known) = overlaps {
                let (from, to) = (known.first.max(row.first), known.last.min(row.last));
                let detail = format!("events of blocks {from} to {to} were published again in start {start}");
                return Some(finding(node, from, detail, "published-twice").evidence([known.seq, row.seq]));
            }
            before.insert(row.first, *row);
        }
    }
    None
}

/// A hole between two rows of one connection, which misses nothing by itself.
fn left_out(node: &Node) -> Option<Finding> {
    node.lives.values().find_map(|life| {
        life.published.windows(2).find_map(|pair| {
            let (a, b) = (pair[0], pair[1]);
            let hole = a.stream == b.stream && b.first > a.last + 1;
            let detail = format!("events of blocks {} to {} were left out", a.last + 1, b.first - 1);
            hole.then(|| finding(node, a.last + 1, detail, "left-out").evidence([a.seq, b.seq]))
        })
    })
}

fn finding(node: &Node, height: u64, detail: String, class: &str) -> Finding {
    Finding::new(Verdict::EventBeforeDurable, detail)
        .node(&node.name)
        .height(height)
        .class(class)
        .why("whoever acts on events must be able to rely on their blocks after a crash, and to see each block once")
        .next("look at where events fire: in block order, after the last durable write of their block, never again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(stream: u32, first: u64, last: u64) -> Published {
        Published { stream, first, last, at_us: 0, seq: first }
    }

    fn node(lives: Vec<(Vec<Published>, Option<Heights>)>) -> Node {
        let life = |(published, stored): (Vec<Published>, Option<Heights>)| Life {
            published,
            stored: stored.map(|heights| (heights, 99)),
            ..Life::default()
        };
        Node { name: "late".to_owned(), lives: (1..).zip(lives.into_iter().map(life)).collect(), ..Node::default() }
    }

    fn classes(node: Node) -> Vec<(String, Option<u64>)> {
        let model = Model { nodes: vec![node], ..Model::default() };
        check(&model).into_iter().map(|f| (f.class.unwrap_or_default(), f.height)).collect()
    }

    #[test]
    fn every_block_once_after_it_is_durable() {
        let whole = vec![row(1, 5, 30), row(1, 31, 40)];
        let lives = vec![(whole, Some(Heights::new(40, 40, 40))), (vec![row(1, 41, 60)], None)];
        assert_eq!(classes(node(lives)), []);
    }

    #[test]
    fn a_connection_may_begin_anywhere_and_another_one_later() {
        assert_eq!(classes(node(vec![(vec![row(1, 5, 9), row(2, 14, 20)], None)])), []);
    }

    #[test]
    fn a_block_that_was_told_of_and_is_gone() {
        let lives = |heights| vec![(vec![row(1, 5, 40)], Some(heights)), (vec![row(1, 41, 50)], None)];
        let early = [("published-early".to_owned(), Some(31))];
        assert_eq!(classes(node(lives(Heights::new(30, 30, 30)))), early);
        assert_eq!(classes(node(lives(Heights::new(40, 30, 40)))), early);
        let mut unsafe_on_purpose = node(lives(Heights::new(30, 30, 30)));
        unsafe_on_purpose.storage = Some("no-sync".to_owned());
        assert_eq!(classes(unsafe_on_purpose), []);
    }

    #[test]
    fn twice_over_a_restart_or_in_one_start() {
        let again = [("published-twice".to_owned(), Some(39))];
        assert_eq!(classes(node(vec![(vec![row(1, 5, 40)], None), (vec![row(1, 39, 60)], None)])), again);
        assert_eq!(classes(node(vec![(vec![row(1, 5, 40), row(1, 39, 41)], None)])), again);
        let inside = node(vec![(vec![row(1, 5, 400), row(1, 401, 402)], None), (vec![row(1, 39, 39)], None)]);
        assert_eq!(classes(inside), again);
    }

    #[test]
    fn a_hole() {
        let hole = [("left-out".to_owned(), Some(10))];
        assert_eq!(classes(node(vec![(vec![row(1, 5, 9), row(1, 12, 20)], None)])), hole);
    }
}
