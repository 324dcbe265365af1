//! Transactions at a steady rate, offered to the validators in turn.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand_chacha::ChaCha20Rng;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dispatcher::Witness;
use crate::agent_client::Client;
use crate::chain::{Chain, Made, Rpc};
use crate::plan::{LoadPlan, Plan};
use crate::timeline::Event;

/// How often the totals go into the timeline.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// One batch is sent per interval of this length at most, so that low rates stay smooth.
const PACE_MIN: Duration = Duration::from_millis(20);

/// How long the chain's first block is waited for.
const FIRST_BLOCK_WAIT: Duration = Duration::from_secs(60);

/// Pause between two looks for it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Sends until cancelled, from the first block on. `targets` are validators, in turn; what one does not take the next is
/// offered, so that a validator costs no transaction while it is down, or until it has made a block after its start: the Cosmos
/// SDK knows no chain id before. What nobody answers is offered again later. A signer whose transactions must come in order
/// would lose an account with each that is left out.
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
    let mut kind = kinds[weights.sample(&mut random)];
    tokio::select! {
        () = cancel.cancelled() => {}
        () = first_block(chain.rpc(), &targets) => {}
    }
    let mut tick = tokio::time::interval(pace);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut report = tokio::time::interval(REPORT_EVERY);
    loop {
        tokio::select! {
            () = cancel.cancelled() => break,
            _ = report.tick() => witness.tell_run(totals.event()).await,
            _ = tick.tick() => for _ in 0..batch {
                let n = totals.submitted;
                let answer = match chain.transaction(&plan, &made, kind, n, load.size) {
                    Ok(transaction) => tokio::select! {
                        () = cancel.cancelled() => break,
                        answer = offer(chain.rpc(), &targets, n, &transaction) => answer,
                    },
                    Err(_) => Some(false),
                };
                let Some(accepted) = answer else { break };
                totals.count(accepted);
                kind = kinds[weights.sample(&mut random)];
            },
        }
    }
    witness.tell_run(totals.event()).await;
}

/// Waits until a target tells of a block. Not for ever: a chain may make its first one only for a transaction.
async fn first_block(rpc: &dyn Rpc, targets: &[Arc<Client>]) {
    let end = Instant::now() + FIRST_BLOCK_WAIT;
    let request = rpc.status_request();
    while Instant::now() < end {
        for target in targets {
            let Ok(answer) = target.rpc(&request).await else { continue };
            if rpc.status(&answer.body).is_ok_and(|status| status.height > 0) {
                return;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Offers a transaction to one target after the other, another first each time, until one takes it: whether one did, and
/// `None` where none answered.
async fn offer(rpc: &dyn Rpc, targets: &[Arc<Client>], n: u64, transaction: &[u8]) -> Option<bool> {
    let request = rpc.submit_request(transaction);
    let first = (n % targets.len().max(1) as u64) as usize;
    let mut answered = None;
    for target in targets[first..].iter().chain(&targets[..first]) {
        let Ok(answer) = target.rpc(&request).await else { continue };
        if rpc.submitted(&answer.body) {
            return Some(true);
        }
        tracing::debug!(n, answer = %String::from_utf8_lossy(&answer.body), "a transaction was refused");
        answered = Some(false);
    }
    answered
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
