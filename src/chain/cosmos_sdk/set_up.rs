//! The chain's own command line, run once: `init`, and for each validator a key, an account in the genesis and a signed
//! transaction that bonds its stake.

use bip32::{Language, Mnemonic};
use sha2::{Digest, Sha256};

use super::options;
use crate::chain::cometbft::keys::{Key, Purpose};
use crate::chain::{ChainError, SetUp, Step};
use crate::engine::Build;
use crate::plan::{NodePlan, Plan};
use crate::timeline::Role;

/// Changes whenever the steps do.
const FORMAT: &str = "cosmos-sdk 1";
/// What a validator's account holds beside its stake, in base units.
const SPARE: u128 = 1_000_000_000_000;
/// Where the keys of the validators' accounts are kept during the set-up. It asks for no password.
const KEYRING: [&str; 2] = ["--keyring-backend", "test"];
/// Every step works in the folder that all share.
const HOME: [&str; 2] = ["--home", "."];

/// What the steps make for the nodes.
pub(super) const GENESIS: &str = "config/genesis.json";
/// CometBFT's settings.
pub(super) const CONFIG: &str = "config/config.toml";
/// The application's settings.
pub(super) const APP: &str = "config/app.toml";
/// The command line's own settings.
pub(super) const CLIENT: &str = "config/client.toml";

/// The set-up of a plan. What it makes depends on chain id, denomination, and the validators' names, keys and powers.
pub(super) fn set_up(plan: &Plan, build: Build) -> Result<SetUp, ChainError> {
    let mut steps = vec![step(["init", "midflush", "--chain-id", &plan.chain_id, HOME[0], HOME[1]])];
    for node in plan.nodes.iter().filter(|node| node.role == Role::Validator) {
        steps.extend(validator(plan, node)?);
    }
    steps.push(either(&["collect-gentxs", HOME[0], HOME[1]]));
    let mut digest = Sha256::new().chain_update(FORMAT);
    for step in &steps {
        digest.update(format!("{step:?}\n"));
    }
    Ok(SetUp {
        key: format!("cosmos-sdk-{}", hex::encode(&digest.finalize()[..16])),
        build,
        files: Default::default(),
        steps,
        keep: [GENESIS, CONFIG, APP, CLIENT].map(str::to_owned).to_vec(),
    })
}

/// Key, account and stake of one validator.
fn validator(plan: &Plan, node: &NodePlan) -> Result<[Step; 3], ChainError> {
    let options = options(plan)?;
    let name = node.name.as_str();
    let stake = u128::from(node.power) * u128::from(options.stake_per_power);
    let coins = |amount: u128| format!("{amount}{}", options.denom);
    let mut key = step(["keys", "add", name, "--recover", KEYRING[0], KEYRING[1], HOME[0], HOME[1]]);
    key.input = format!("{}\n", mnemonic(&node.key_seed)?);
    let account =
        either(&["add-genesis-account", name, &coins(stake + SPARE), KEYRING[0], KEYRING[1], HOME[0], HOME[1]]);
    let consensus = Key::derive(&node.key_seed, Purpose::Validator)?.public_base64();
    let public = format!("{{\"@type\":\"/cosmos.crypto.ed25519.PubKey\",\"key\":\"{consensus}\"}}");
    let id = Key::derive(&node.key_seed, Purpose::Node)?.node_id();
    let stake = either(&[
        "gentx",
        name,
        &coins(stake),
        "--chain-id",
        &plan.chain_id,
        "--moniker",
        name,
        "--pubkey",
        &public,
        "--node-id",
        &id,
        // Where peers are is in every node's own configuration; this address is only noted in the genesis.
        "--ip",
        "127.0.0.1",
        KEYRING[0],
        KEYRING[1],
        HOME[0],
        HOME[1],
    ]);
    Ok([key, account, stake])
}

/// The words that a validator's account key is made from.
fn mnemonic(key_seed: &str) -> Result<String, ChainError> {
    let seed = hex::decode(key_seed).map_err(|_| ChainError::new("derive keys: the seed is not hex"))?;
    let entropy: [u8; 32] = Sha256::new().chain_update("midflush cosmos account").chain_update(seed).finalize().into();
    Ok(Mnemonic::from_entropy(entropy, Language::English).phrase().to_owned())
}

fn step<const N: usize>(arguments: [&str; N]) -> Step {
    Step { arguments: arguments.map(str::to_owned).to_vec(), ..Step::default() }
}

/// A command that moved below `genesis` with SDK 0.47.
fn either(arguments: &[&str]) -> Step {
    let before: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let arguments = [vec!["genesis".to_owned()], before.clone()].concat();
    Step { arguments, or: Some(before), input: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::cosmos_sdk::tests::sample_plan;

    #[test]
    fn each_validator_gets_a_key_an_account_and_a_stake() {
        let plan = sample_plan();
        let made = set_up(&plan, Build::Own).expect("a set-up");
        let words: Vec<String> = made.steps.iter().map(|s| s.or.as_ref().unwrap_or(&s.arguments).join(" ")).collect();
        insta::assert_snapshot!("steps", words.join("\n"));
        assert_eq!(made.steps[2].arguments[..2], ["genesis", "add-genesis-account"]);
        assert_eq!(made.steps[1].input.split_whitespace().count(), 24);
        assert_ne!(made.steps[1].input, made.steps[4].input);
    }

    #[test]
    fn the_key_follows_all_that_the_outcome_depends_on_and_nothing_else() {
        let key = |plan: &Plan| set_up(plan, Build::Own).expect("a set-up").key;
        let plan = sample_plan();
        let with = |change: fn(&mut Plan)| {
            let mut other = plan.clone();
            change(&mut other);
            key(&other)
        };
        assert_ne!(with(|plan| plan.chain_id.push('x')), key(&plan));
        assert_ne!(with(|plan| plan.nodes[0].power += 1), key(&plan));
        assert_ne!(with(|plan| plan.nodes[1].key_seed = "aa".repeat(32)), key(&plan));
        assert_eq!(with(|plan| drop(plan.nodes.pop())), key(&plan), "the last node is no validator");
    }
}
