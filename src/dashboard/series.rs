//! Heights over time, as the chart draws them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::timeline::{Event, NodeEvent, Record};

/// One point of one node: milliseconds since the run began, and its height; no height where the line breaks since
/// the node has no process.
pub(super) type Point = (u64, Option<u64>);

/// Most points kept for one node; then every second one goes.
const POINTS_MAX: usize = 4000;
/// A height that does not change is drawn this often, in milliseconds.
const SAME_EVERY_MS: u64 = 2000;

/// Heights by node, from the first record on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Series {
    nodes: BTreeMap<String, Vec<Point>>,
}

/// A point that a record added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NewPoint(String, u64, Option<u64>);

impl Series {
    /// Takes one record in and tells the point that it added.
    pub(super) fn apply(&mut self, record: &Record) -> Option<NewPoint> {
        let node = record.node.as_deref()?;
        let height = match &record.event {
            Event::Status(status) => Some(status.height),
            Event::Node(NodeEvent::Exited { .. }) => None,
            _ => return None,
        };
        let at_ms = record.at_us / 1000;
        let points = self.nodes.entry(node.to_owned()).or_default();
        if let Some((last_ms, last)) = points.last()
            && *last == height
            && at_ms < last_ms + SAME_EVERY_MS
        {
            return None;
        }
        points.push((at_ms, height));
        if points.len() > POINTS_MAX {
            thin(points);
        }
        Some(NewPoint(node.to_owned(), at_ms, height))
    }
}

/// Drops every second point, but none where the line breaks.
fn thin(points: &mut Vec<Point>) {
    let mut keep = false;
    points.retain(|(_, height)| {
        keep = !keep;
        keep || height.is_none()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Status;

    fn seen(at_ms: u64, height: u64) -> Record {
        let status = Status { height, catching_up: false, peers: None, app_hash: String::new() };
        Record { seq: at_ms, at_us: at_ms * 1000, node: Some("val-1".to_owned()), event: Event::Status(status) }
    }

    #[test]
    fn a_frozen_height_takes_few_points_and_a_moving_one_all() {
        let mut series = Series::default();
        for ms in 0..100 {
            series.apply(&seen(ms * 100, 5));
        }
        assert_eq!(series.nodes["val-1"].len(), 5);
        assert_eq!(series.apply(&seen(10_000, 6)), Some(NewPoint("val-1".to_owned(), 10_000, Some(6))));
    }

    #[test]
    fn a_long_run_is_thinned() {
        let mut series = Series::default();
        for ms in 0..20_000 {
            series.apply(&seen(ms, ms));
        }
        let points = &series.nodes["val-1"];
        assert!(points.len() <= POINTS_MAX && points.len() > POINTS_MAX / 4, "{}", points.len());
        assert!(points.is_sorted() && points.last() == Some(&(19_999, Some(19_999))));
    }
}
