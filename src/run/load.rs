//! Transactions at a steady rate, offered to the validators in turn.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand_chacha::ChaCha20Rng;
use tokio_util::sync::CancellationToken;

use super::dispatcher::Witness;
use crate::agent_client::Client;
use crate::chain::{Chain, Made};
use crate::plan::{LoadPlan, Plan};
use crate::timeline::Event;

/// How often the totals go into the timeline.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// One batch is sent per interval of this length at most, so that low rates stay smooth.
const PACE_MIN: Duration = Duration::from_millis(20);

/// Sends until cancelled. `targets` are validators; one that does not answer costs one failed transaction a try.
pub(super) async fn load(
    plan: Arc<Plan>,
    load: LoadPlan,
    chain: Arc<dyn Chain>,
    made: Arc<Made>,
    targets: Vec<Arc<Client>>,
    witness: Witness,
    cancel: CancellationToken,
) {
    let mut random = ChaCha20Rng::seed_from_u64(load.seed);
    let kinds: Vec<&String> = load.kinds.keys().collect();
    let Ok(weights) = WeightedIndex::new(load.kinds.values()) else { return };
    let pace = Duration::from_secs_f64((1.0 / load.rate).max(PACE_MIN.as_secs_f64()));
    let batch = (load.rate * pace.as_secs_f64()).round().max(1.0) as u64;
    let mut totals = Totals::default();
    let mut tick = tokio::time::interval(pace);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut report = tokio::time::interval(REPORT_EVERY);
    loop {
        tokio::select! {
            () = cancel.cancelled() => break,
            _ = report.tick() => witness.tell_run(totals.event()).await,
            _ = tick.tick() => for _ in 0..batch {
                let kind = kinds[weights.sample(&mut random)];
                let target = &targets[(totals.submitted % targets.len() as u64) as usize];
                let sent = tokio::select! {
                    () = cancel.cancelled() => break,
                    sent = offer(&plan, chain.as_ref(), &made, target, kind, totals.submitted, load.size) => sent,
                };
                totals.count(sent);
            },
        }
    }
    witness.tell_run(totals.event()).await;
}

async fn offer(plan: &Plan, chain: &dyn Chain, made: &Made, target: &Client, kind: &str, n: u64, size: usize) -> bool {
    let Ok(transaction) = chain.transaction(plan, made, kind, n, size) else { return false };
    match target.rpc(&chain.rpc().submit_request(&transaction)).await {
        Ok(answer) => chain.rpc().submitted(&answer.body),
        Err(_) => false,
    }
}

#[derive(Clone, Copy, Default)]
struct Totals {
    submitted: u64,
    accepted: u64,
}

impl Totals {
    fn count(&mut self, accepted: bool) {
        self.submitted += 1;
        self.accepted += u64::from(accepted);
    }

    fn event(self) -> Event {
        Event::Load { submitted: self.submitted, accepted: self.accepted, failed: self.submitted - self.accepted }
    }
}
