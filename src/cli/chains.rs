//! The node families by name: the one list of them.

use super::CliError;
use crate::chain::cometbft::Cometbft;
use crate::chain::cosmos_sdk::CosmosSdk;
use crate::chain::custom::Custom;
use crate::chain::gnoland::Gnoland;
use crate::chain::reference::Reference;
use crate::chain::tenderdash::Tenderdash;
use crate::chain::{Chain, ChainError};
use crate::plan::{ChainPlan, Plan};
use crate::timeline::Layout;

/// The family of a plan.
pub(crate) fn of(plan: &Plan) -> Result<Box<dyn Chain>, CliError> {
    Ok(match &plan.chain {
        ChainPlan::Reference(_) => {
            let program = std::env::current_exe().map_err(|e| CliError::tool(format!("find its own program: {e}")))?;
            Box::new(Reference::new(program))
        }
        ChainPlan::Cometbft(_) => Box::new(Cometbft::new()),
        ChainPlan::Gnoland(_) => Box::new(Gnoland::default()),
        ChainPlan::Tenderdash(_) => Box::new(Tenderdash),
        ChainPlan::CosmosSdk(_) => Box::new(CosmosSdk),
        ChainPlan::Custom(_) => Box::new(Custom),
    })
}

/// The same with what has to be found on this machine: the program is in the plan by its path.
pub(crate) fn found(plan: &Plan) -> Result<Box<dyn Chain>, CliError> {
    let refused = |error: ChainError| CliError::input(format!("failed to {error}"));
    Ok(match &plan.chain {
        ChainPlan::Reference(_) | ChainPlan::Tenderdash(_) | ChainPlan::CosmosSdk(_) | ChainPlan::Custom(_) => {
            return of(plan);
        }
        ChainPlan::Cometbft(_) => Box::new(Cometbft::for_plan(plan).map_err(refused)?),
        ChainPlan::Gnoland(_) => Box::new(Gnoland::for_plan(plan).map_err(refused)?),
    })
}

/// The layouts that a node can be looked at with, by family, and by storage discipline where a family has several; the
/// first ones first where more than one fits.
pub(crate) fn layouts() -> Vec<(String, Layout)> {
    let [kvstore, e2e] = Cometbft::known_layouts();
    let mut all = vec![
        ("cometbft".to_owned(), kvstore),
        ("cometbft:e2e".to_owned(), e2e),
        ("gnoland".to_owned(), Gnoland::known_layout()),
        ("tenderdash".to_owned(), Tenderdash::known_layout()),
        ("cosmos-sdk".to_owned(), CosmosSdk::known_layout()),
    ];
    for storage in [None, Some("per-block"), Some("single-flush"), Some("deferred"), Some("no-sync")] {
        let name = storage.map_or_else(|| "reference".to_owned(), |storage| format!("reference:{storage}"));
        all.extend(Reference::known_layout(storage).ok().map(|layout| (name, layout)));
    }
    all
}
