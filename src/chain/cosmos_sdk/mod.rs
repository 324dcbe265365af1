//! Any chain made with the Cosmos SDK, unmodified. The chain's own command line makes genesis and configuration once
//! (`set_up`); the plan makes the nodes' keys and changes what a network on one machine needs (`files`). The load sends coins
//! between accounts of the genesis (`accounts`). Stores are those of CometBFT and the SDK's own (`stores`).

mod accounts;
mod files;
mod set_up;
mod stores;

use super::cometbft::SIGN_STATE;
use super::{Chain, ChainError, CometShapes, Made, NodeFiles, Rpc, SetUp, Stages, bound, metrics, program};
use crate::engine::{Binding, Build};
use crate::plan::{ChainPlan, CosmosSdkPlan, NodePlan, Plan};
use crate::timeline::Layout;

/// The family.
#[derive(Clone, Copy, Debug, Default)]
pub struct CosmosSdk;

impl CosmosSdk {
    /// What is known about the stores of every node of this family.
    pub fn known_layout() -> Layout {
        stores::layout()
    }
}

impl Chain for CosmosSdk {
    fn build(&self, plan: &Plan, node: &NodePlan) -> Build {
        // A plan of another family: its own node. `render` refuses it with the reason.
        options(plan).map_or(Build::Own, |options| program::build(node.made_from(&options.build)))
    }

    fn layout(&self, _plan: &Plan, _node: &NodePlan) -> Layout {
        stores::layout()
    }

    fn set_up(&self, plan: &Plan) -> Result<Option<SetUp>, ChainError> {
        set_up::set_up(plan, program::first(plan, &options(plan)?.build)).map(Some)
    }

    fn render(&self, plan: &Plan, binding: &Binding, made: &Made, node: &NodePlan) -> Result<NodeFiles, ChainError> {
        let options = options(plan)?;
        let place = bound(binding, &node.name)?;
        let home = place.home.to_string_lossy().into_owned();
        let mut command = place.program.clone();
        command.extend(["start", "--home", &home].map(str::to_owned));
        command.extend(options.arguments.iter().cloned());
        let mut env = place.env.clone();
        env.insert("HOME".to_owned(), home);
        Ok(NodeFiles { files: files::files(plan, binding, made, node)?, command, env })
    }

    fn stages(&self, text: &str) -> Stages {
        metrics::comet_stages(text)
    }

    fn rpc(&self) -> &dyn Rpc {
        &CometShapes
    }

    fn signed_path(&self) -> &'static str {
        SIGN_STATE
    }

    fn transaction(&self, plan: &Plan, made: &Made, kind: &str, n: u64, size: usize) -> Result<Vec<u8>, ChainError> {
        match kind {
            "send" => accounts::send(plan, &files::made_genesis(made)?, n, size),
            other => Err(ChainError::new(format!("make a transaction `{other}`: the bank module has `send`"))),
        }
    }
}

fn options(plan: &Plan) -> Result<&CosmosSdkPlan, ChainError> {
    match &plan.chain {
        ChainPlan::CosmosSdk(options) => Ok(options),
        _ => Err(ChainError::new("render a node of the Cosmos SDK: the plan is of another family")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use indexmap::IndexMap;
    use serde_json::json;

    use super::*;
    use crate::chain::sample;
    use crate::plan::{BuildPlan, LoadPlan};

    pub(super) fn sample_plan() -> Plan {
        let options = CosmosSdkPlan {
            build: BuildPlan::Binary("/opt/simd".to_owned()),
            denom: "stake".to_owned(),
            block_time_ms: 500,
            stake_per_power: 1_000_000,
            genesis: BTreeMap::from([("app_state.gov.voting_period".to_owned(), json!("30s"))]),
            config: BTreeMap::from([(
                "app.toml".to_owned(),
                BTreeMap::from([("pruning".to_owned(), json!("nothing"))]),
            )]),
            arguments: vec!["--x".to_owned()],
        };
        let mut plan = sample::plan(ChainPlan::CosmosSdk(options), 4);
        plan.load = Some(LoadPlan { rate: 10.0, size: 0, kinds: IndexMap::from([("send".to_owned(), 1)]), seed: 1 });
        plan
    }

    fn made() -> Made {
        let genesis = json!({
            "genesis_time": "x", "initial_height": "1",
            "app_state": {
                "auth": { "accounts": [{ "address": "cosmos1q", "account_number": "0" }] },
                "bank": { "balances": [], "supply": [] },
                "gov": { "voting_period": "172800s", "deposit": { "denom": "stake" } },
                "mint": { "mint_denom": "stake", "note": "stake" },
            },
        });
        let config =
            "moniker = \"midflush\" # name\nfast_sync = true\n[p2p]\nladdr = \"tcp://0.0.0.0:26656\"\nupnp = false\n";
        let app =
            "minimum-gas-prices = \"\"\npruning = \"default\"\n[grpc]\nenable = true\naddress = \"0.0.0.0:9090\"\n";
        [(set_up::GENESIS, genesis.to_string()), (set_up::CONFIG, config.to_owned()), (set_up::APP, app.to_owned())]
            .map(|(path, text)| (path.to_owned(), text.into_bytes()))
            .into()
    }

    #[test]
    fn what_the_command_line_made_is_changed_where_the_network_needs_it() {
        let mut plan = sample_plan();
        let binding = sample::binding(&plan, "/opt/simd");
        let render = |plan: &Plan| CosmosSdk.render(plan, &binding, &made(), &plan.nodes[4]).expect("files");
        let files = render(&plan);
        assert_eq!(files, render(&plan));
        assert_eq!(files.command, ["/opt/simd", "start", "--home", "/run/sample/late", "--x"]);
        let text = |files: &NodeFiles, path: &str| String::from_utf8(files.files[path].bytes.clone()).expect("text");
        insta::assert_snapshot!("config.toml", text(&files, "config/config.toml"));
        insta::assert_snapshot!("app.toml", text(&files, "config/app.toml"));
        let ChainPlan::CosmosSdk(options) = &mut plan.chain else { unreachable!("made above") };
        options.denom = "uatom".to_owned();
        let genesis: serde_json::Value =
            serde_json::from_str(&text(&render(&plan), "config/genesis.json")).expect("JSON");
        assert_eq!(genesis["app_state"]["gov"], json!({ "voting_period": "30s", "deposit": { "denom": "uatom" } }));
        assert_eq!(genesis["app_state"]["mint"], json!({ "mint_denom": "uatom", "note": "stake" }));
        assert_eq!(genesis["genesis_time"], json!(plan.genesis_time));
        assert_eq!(genesis["app_state"]["auth"]["accounts"].as_array().map(Vec::len), Some(601));
    }

    #[test]
    fn a_path_that_the_genesis_does_not_have_is_refused_by_name() {
        let mut plan = sample_plan();
        let binding = sample::binding(&plan, "/opt/simd");
        let ChainPlan::CosmosSdk(options) = &mut plan.chain else { unreachable!("made above") };
        options.genesis = BTreeMap::from([("app_state.gob.voting_period".to_owned(), json!("30s"))]);
        let error = CosmosSdk.render(&plan, &binding, &made(), &plan.nodes[0]).expect_err("an error");
        assert!(error.0.contains("`app_state.gob.voting_period`: there is no `gob`"), "{error}");
        let error = CosmosSdk.render(&plan, &binding, &Made::new(), &plan.nodes[0]).expect_err("an error");
        assert!(error.0.contains("made no config/genesis.json"), "{error}");
    }
}
