//! What a run waits for when nothing answers: said after some seconds, then less and less often.

use std::collections::BTreeMap;

use super::Progress;

/// How long a started node may say nothing before this is told, in microseconds; then after twice as long, and so on.
const TOLD_AFTER_US: u64 = 10_000_000;

/// Nodes that were told about, by how often.
#[derive(Debug, Default)]
pub(super) struct Slow {
    told: BTreeMap<(String, u32), u32>,
}

impl Slow {
    /// What is to be told now: a node and a sentence about it.
    pub(super) fn due(&mut self, progress: &Progress, now_us: u64) -> Vec<(String, String)> {
        let mut due = Vec::new();
        for (name, node) in &progress.nodes {
            if !node.running || node.answered {
                continue;
            }
            let waited_us = now_us.saturating_sub(node.last_started_us);
            let times = self.told.entry((name.clone(), node.starts)).or_default();
            if waited_us < TOLD_AFTER_US << (*times).min(16) {
                continue;
            }
            *times += 1;
            let why = node.silent.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            let seconds = waited_us / 1_000_000;
            due.push((
                name.clone(),
                format!("waiting for its RPC, which has not answered in {seconds} s since its start{why}"),
            ));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::NodeProgress;

    const S: u64 = 1_000_000;

    #[test]
    fn a_node_that_does_not_come_up_is_told_about_after_ten_seconds_and_then_less_often() {
        let node = NodeProgress { running: true, starts: 1, last_started_us: 5 * S, ..Default::default() };
        let mut progress = Progress { nodes: [("late".to_owned(), node)].into() };
        let mut slow = Slow::default();
        let told = (0..=100).filter(|second| !slow.due(&progress, second * S).is_empty());
        assert_eq!(told.collect::<Vec<u64>>(), [15, 25, 45, 85]);
        let late = progress.nodes.get_mut("late").expect("the node");
        late.starts = 2;
        late.last_started_us = 100 * S;
        late.silent = Some("connection refused".to_owned());
        assert_eq!(slow.due(&progress, 109 * S), [], "each start counts anew");
        let told = slow.due(&progress, 110 * S);
        assert_eq!(
            told[0].1,
            "waiting for its RPC, which has not answered in 10 s since its start: connection refused"
        );
        progress.nodes.get_mut("late").expect("the node").answered = true;
        assert_eq!(slow.due(&progress, 300 * S), []);
    }
}
