//! The node families by name: the one list of them.

use super::CliError;
use crate::chain::Chain;
use crate::chain::cometbft::Cometbft;
use crate::chain::reference::Reference;
use crate::plan::{ChainPlan, Plan};

/// The family of a plan.
pub(crate) fn of(plan: &Plan) -> Result<Box<dyn Chain>, CliError> {
    Ok(match &plan.chain {
        ChainPlan::Reference(_) => {
            let program = std::env::current_exe().map_err(|e| CliError::tool(format!("find its own program: {e}")))?;
            Box::new(Reference::new(program))
        }
        ChainPlan::Cometbft(_) => Box::new(Cometbft),
    })
}
