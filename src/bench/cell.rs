//! One cell in one round: a node syncs from its peers and is looked at until the window is over.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::BenchError;
use super::design::Cell;
use super::fixture;
use super::machine::Pressure;
use super::samples::{Look, Measure, Rate};
use super::session::{Running, Session};
use crate::agent_client::protocol::Usage;
use crate::chain::Stages;
use crate::topology::bench::Window;

/// Time between two looks: 20 a second.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a node may stay at one height.
const STALL_MAX: Duration = Duration::from_secs(60);

/// What one cell gave in one round.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) rate: Rate,
    pub(super) before: Pressure,
    pub(super) after: Pressure,
    /// Between the two ends of the window.
    pub(super) used: Used,
    pub(super) looks: Vec<Look>,
}

/// What was used over the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Used {
    /// Blocks that time and syncs belong to.
    pub(super) blocks: u64,
    /// Blocks that the stages belong to.
    pub(super) stage_blocks: u64,
    /// Time on processors, in microseconds.
    pub(super) cpu_us: u64,
    /// store → its syncs.
    pub(super) counts: BTreeMap<String, u64>,
    /// store → microseconds and count, of those that were timed.
    pub(super) syncs: BTreeMap<String, BTreeMap<u64, u64>>,
    /// The node's own stages, in seconds.
    pub(super) stages: BTreeMap<String, f64>,
    /// Blocks a second by the node's own count.
    pub(super) own_blocks_per_s: Option<f64>,
}

/// One look at what the node has used.
struct Snapshot {
    usage: Usage,
    stages: Stages,
    at: Instant,
}

/// Measures, checks every height, and leaves the node dead.
pub(super) async fn measure(
    session: &Session,
    cell: &Cell,
    limit: Duration,
    cancel: &CancellationToken,
) -> Result<Measured, BenchError> {
    let before = Pressure::now();
    let running = session.begin(cell).await?;
    let watched = tokio::select! {
        watched = watch(session, cell, &running, limit) => watched,
        () = cancel.cancelled() => Err(BenchError::Interrupted),
    };
    let after = Pressure::now();
    let checked = match watched {
        Ok((rate, used, looks)) => check(session, cell, &running, rate.to).await.map(|()| (rate, used, looks)),
        Err(error) => Err(error),
    };
    running.end().await?;
    let (rate, used, looks) = checked?;
    Ok(Measured { rate, before, after, used, looks })
}

async fn watch(
    session: &Session,
    cell: &Cell,
    running: &Running,
    limit: Duration,
) -> Result<(Rate, Used, Vec<Look>), BenchError> {
    let begun = Instant::now();
    let rpc = session.chain.rpc();
    let mut measure = Measure::new(cell.window);
    let mut first = None;
    let (mut height, mut moved) = (0, begun);
    let mut tick = interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let asked = begun.elapsed();
        let answer = running.client.rpc(&rpc.status_request()).await;
        let middle = (asked + begun.elapsed()) / 2;
        let status = answer.ok().and_then(|answer| rpc.status(&answer.body).ok());
        let Some(status) = status else {
            if !running.runs().await {
                let tail = session.tail(&running.client, running.start).await;
                return Err(BenchError::Node(format!("the node of `{}` ended while it synced:\n{tail}", cell.arm)));
            }
            past(cell, begun, limit, height)?;
            continue;
        };
        if status.height != height {
            (height, moved) = (status.height, Instant::now());
        }
        let look = Look { at_us: u64::try_from(middle.as_micros()).unwrap_or(u64::MAX), height };
        if let Some(rate) = measure.take(look) {
            let last = snapshot(session, running).await?;
            let first = first.ok_or_else(|| BenchError::Node("a window ended before it began".to_owned()))?;
            return Ok((rate, used(&first, &last, rate.blocks()), measure.looks));
        }
        if measure.begun() && first.is_none() {
            first = Some(snapshot(session, running).await?);
        }
        at_the_top(session, cell, height, moved)?;
        past(cell, begun, limit, height)?;
        if moved.elapsed() > STALL_MAX {
            let tail = session.tail(&running.client, running.start).await;
            let seconds = STALL_MAX.as_secs();
            return Err(BenchError::Node(format!(
                "the node of `{}` does not sync: at height {height} for {seconds} s; its last lines:\n{tail}",
                cell.arm
            )));
        }
    }
}

fn past(cell: &Cell, begun: Instant, limit: Duration, height: u64) -> Result<(), BenchError> {
    if begun.elapsed() <= limit {
        return Ok(());
    }
    let (arm, seconds) = (&cell.arm, limit.as_secs());
    Err(BenchError::Node(format!("the node of `{arm}` is at height {height} after {seconds} s (`cell_limit`)")))
}

/// A node that has the whole chain before its window is over was given too short a one.
fn at_the_top(session: &Session, cell: &Cell, height: u64, moved: Instant) -> Result<(), BenchError> {
    let known = &session.known[cell.fixture];
    let top = known.first + known.blocks.len() as u64 - 1;
    let rests = height + 1 >= top && moved.elapsed() > Duration::from_secs(2);
    if let (Window::Time { .. }, true) = (cell.window, rests) {
        return Err(BenchError::Input(format!(
            "too few blocks for the window: `{}` had all {top} before its time was over; raise `fixture.heights`",
            cell.arm
        )));
    }
    Ok(())
}

async fn snapshot(session: &Session, running: &Running) -> Result<Snapshot, BenchError> {
    let failed =
        |source| BenchError::Agent { node: super::design::SYNC.to_owned(), doing: "read what was used", source };
    let usage = running.client.usage().await.map_err(failed)?;
    // A family may serve no metrics; then nothing is told about stages.
    let stages = match running.client.scrape(&running.metrics).await {
        Ok(text) => session.chain.stages(&String::from_utf8_lossy(&text)),
        Err(_) => Stages::default(),
    };
    Ok(Snapshot { usage, stages, at: Instant::now() })
}

/// The difference of two looks. Each is taken a little after the end of the window that it is for, so that each figure has the
/// number of blocks between the two looks, where that is known, and not that of the window.
fn used(first: &Snapshot, last: &Snapshot, window: u64) -> Used {
    let mut syncs: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    for (store, counts) in &last.usage.syncs {
        let before: BTreeMap<u64, u64> = first.usage.syncs.get(store).into_iter().flatten().copied().collect();
        let more = counts.iter().map(|(us, count)| (*us, count - before.get(us).copied().unwrap_or(0).min(*count)));
        syncs.insert(store.clone(), more.filter(|(_, count)| *count > 0).collect());
    }
    let counts = last.usage.counts.iter().map(|(store, count)| {
        (store.clone(), count.saturating_sub(first.usage.counts.get(store).copied().unwrap_or(0)))
    });
    let stages = last.stages.seconds.iter().map(|(stage, seconds)| {
        let before = first.stages.seconds.get(stage).copied().unwrap_or(0.0);
        (stage.clone(), (seconds - before).max(0.0))
    });
    let seconds = (last.at - first.at).as_secs_f64();
    let blocks = last.stages.blocks.zip(first.stages.blocks).map(|(last, first)| last.saturating_sub(first));
    let seen = last.usage.height.saturating_sub(first.usage.height);
    Used {
        blocks: if seen > 0 { seen } else { blocks.unwrap_or(window) },
        stage_blocks: blocks.unwrap_or(window),
        cpu_us: last.usage.cpu_us.saturating_sub(first.usage.cpu_us),
        counts: counts.collect(),
        syncs,
        stages: stages.collect(),
        own_blocks_per_s: blocks.filter(|_| seconds > 0.0).map(|blocks| blocks as f64 / seconds),
    }
}

/// Every hash up to the window's end is the fixture's: a fast sync that is wrong is no result.
async fn check(session: &Session, cell: &Cell, running: &Running, to: u64) -> Result<(), BenchError> {
    let known = &session.known[cell.fixture];
    let wrong = |why: String| BenchError::Node(format!("the node of `{}` did not sync the fixture: {why}", cell.arm));
    let served = fixture::read(&running.client, session.chain.as_ref(), known.first, to).await.map_err(wrong)?;
    match known.differs(&served) {
        None => Ok(()),
        Some(difference) => Err(wrong(difference)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(cpu_us: u64, syncs: &[(u64, u64)], save: f64, blocks: u64, at: Instant) -> Snapshot {
        let syncs = BTreeMap::from([("state.db".to_owned(), syncs.to_vec())]);
        Snapshot {
            usage: Usage { start: 1, clock_us: 0, height: blocks + 1, cpu_us, counts: BTreeMap::new(), syncs },
            stages: Stages { blocks: Some(blocks), seconds: BTreeMap::from([("save".to_owned(), save)]) },
            at,
        }
    }

    #[test]
    fn what_was_used_is_the_difference_of_two_looks() {
        let now = Instant::now();
        let first = snapshot(1_000, &[(500, 2)], 1.0, 100, now);
        let last = snapshot(5_000, &[(500, 2), (510, 7)], 1.5, 300, now + Duration::from_secs(2));
        let used = used(&first, &last, 190);
        assert_eq!((used.blocks, used.stage_blocks), (200, 200));
        assert_eq!(used.cpu_us, 4_000);
        assert_eq!(used.syncs["state.db"], BTreeMap::from([(510, 7)]));
        assert!((used.stages["save"] - 0.5).abs() < 1e-12);
        assert_eq!(used.own_blocks_per_s, Some(100.0));
    }
}
