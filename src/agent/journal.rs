//! The agent's event stream: numbered, kept in memory, followed by any number of readers.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::agent_client::protocol::AgentRecord;
use crate::timeline::NodeEvent;

/// Events kept. A node that runs quietly makes one a second; at a few hundred bytes each this is some 30 MiB and
/// more than a day. The oldest go first, and a reader who asks for them is told.
const KEPT_MAX: usize = 100_000;

/// Microseconds on the machine's monotonic clock.
pub(crate) fn clock_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}

/// All that happened so far.
pub(crate) struct Journal {
    kept: Mutex<Kept>,
    length: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    dropped: u64,
    records: VecDeque<AgentRecord>,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self { kept: Mutex::default(), length: watch::Sender::new(0) }
    }

    /// Adds an event with the present time.
    pub(crate) fn append(&self, event: NodeEvent) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let seq = kept.dropped + kept.records.len() as u64 + 1;
        kept.records.push_back(AgentRecord { seq, clock_us: clock_us(), event });
        if kept.records.len() > KEPT_MAX {
            kept.records.pop_front();
            kept.dropped += 1;
        }
        self.length.send_replace(seq);
    }

    /// At most `most` events after position `after`.
    pub(crate) fn read(&self, after: u64, most: usize) -> Vec<AgentRecord> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        if after < kept.dropped {
            found.push(AgentRecord {
                seq: kept.dropped,
                clock_us: clock_us(),
                event: NodeEvent::CoverageHole {
                    hole: "events_dropped".to_owned(),
                    detail: format!("events {} to {} are not kept any more", after + 1, kept.dropped),
                },
            });
        }
        let skip = usize::try_from(after.saturating_sub(kept.dropped)).unwrap_or(usize::MAX);
        found.extend(kept.records.iter().skip(skip).take(most).cloned());
        found
    }

    /// Changes with every event.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.length.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(start: u32) -> NodeEvent {
        NodeEvent::Signalled { start, signal: 15 }
    }

    #[test]
    fn positions_count_from_one_and_any_part_can_be_read_again() {
        let journal = Journal::new();
        (1..=5).for_each(|n| journal.append(event(n)));
        assert_eq!(journal.read(0, 9).iter().map(|r| r.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(journal.read(3, 1).iter().map(|r| r.event.clone()).collect::<Vec<_>>(), [event(4)]);
        assert!(journal.read(5, 9).is_empty() && journal.read(99, 9).is_empty());
    }

    #[test]
    fn what_is_not_kept_is_said() {
        let journal = Journal::new();
        (0..KEPT_MAX as u32 + 2).for_each(|n| journal.append(event(n)));
        let read = journal.read(0, 1);
        assert!(matches!(&read[0].event, NodeEvent::CoverageHole { hole, .. } if hole == "events_dropped"));
        assert_eq!((read[0].seq, read[1].seq), (2, 3));
        assert_eq!(journal.read(2, 1)[0].seq, 3);
    }

    #[tokio::test]
    async fn a_follower_wakes() {
        let journal = Journal::new();
        let mut follow = journal.follow();
        journal.append(event(1));
        follow.changed().await.unwrap();
        assert_eq!(*follow.borrow_and_update(), 1);
    }
}
