//! Answers of the three families, field by field, as neutral facts.

use serde_json::Value;

use super::build::header_encoding;
use super::file::Family;
use crate::timeline::wire::{Encoding, Object, WireError, either, hash, integer, number, object};
use crate::timeline::{CommitVotes, DoubleVote, votes};

/// What one answer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Height and the node's word for catching up.
    pub(super) status: Option<(u64, Option<bool>)>,
    /// App hash by the height after which the application had it.
    pub(super) states: Vec<(u64, String)>,
    /// Block id by height.
    pub(super) blocks: Vec<(u64, String)>,
    /// The latest app hash in it.
    pub(super) app_hash: Option<String>,
    pub(super) chain_id: Option<String>,
    pub(super) app_version: Option<String>,
    /// The application's own height.
    pub(super) app_height: Option<u64>,
    /// The address under which it signs.
    pub(super) signs_as: Option<String>,
    /// Who signed the commit in it.
    pub(super) votes: Option<CommitVotes>,
    /// Evidence in the block in it.
    pub(super) evidence: Vec<DoubleVote>,
    /// In words, for a note.
    pub(super) words: Vec<String>,
}

/// The family that an answer's field names belong to, never its values.
pub(super) fn family_by_shape(body: &Value) -> Option<Family> {
    let inner = body.get("result").unwrap_or(body);
    let has = |path: &str| inner.pointer(path).is_some();
    if has("/application_info")
        || has("/validator_info/pro_tx_hash")
        || has("/sync_info/max_peer_block_height")
        || has("/signed_header/commit/quorum_hash")
        || has("/block/header/core_chain_locked_height")
    {
        return Some(Family::Tenderdash);
    }
    let tm2 = has("/build_version")
        || has("/validator_info/pub_key/@type")
        || has("/node_info/net_address")
        || has("/block_meta")
        || has("/response/LastBlockHeight")
        || has("/response/ResponseBase")
        || has("/signed_header/commit/precommits");
    if tm2 {
        return Some(Family::Tm2);
    }
    let comet = has("/sync_info") || has("/SyncInfo") || has("/block_id") || has("/signed_header") || has("/response");
    comet.then_some(Family::Cometbft)
}

/// Reads one answer, out of its envelope already.
pub(super) fn read(endpoint: &str, family: Family, body: &Object, asked: Option<u64>) -> Result<Facts, WireError> {
    match endpoint {
        "status" => status(family, body),
        "block" => block(family, body),
        "header" => {
            let header = body.get("header").map_or(Ok(body), |h| object(h, "header"))?;
            let mut facts = Facts::default();
            add_header(family, header, &mut facts)?;
            Ok(facts)
        }
        "commit" => commit(family, body),
        "blockchain" => blockchain(family, body),
        "block_results" => block_results(body, asked),
        "abci_info" => abci_info(family, body),
        "net_info" => {
            let peers = number(body, "n_peers")?;
            let live = if family == Family::Tenderdash { ", dead ones among them" } else { "" };
            Ok(Facts { words: vec![format!("{peers} peers{live}")], ..Facts::default() })
        }
        other => Err(WireError::new(format!(
            "`{other}` is no known endpoint: use status, block, header, commit, blockchain, block_results, abci_info or net_info"
        ))),
    }
}

fn offset(family: Family) -> u64 {
    u64::from(family != Family::Tenderdash)
}

fn status(family: Family, body: &Object) -> Result<Facts, WireError> {
    let sync = object(either(body, "sync_info", "SyncInfo")?, "sync_info")?;
    let height = number(sync, "latest_block_height")?;
    let catching_up = sync.get("catching_up").and_then(Value::as_bool);
    let encoding = header_encoding(family);
    let app_hash = hash(sync, "latest_app_hash", encoding)?;
    let block = hash(sync, "latest_block_hash", encoding)?;
    let mut facts = Facts { status: Some((height, catching_up)), ..Facts::default() };
    facts.words.push(format!("height {height}"));
    if height == 0 {
        facts.words.push("starting: no block yet, whatever it says about catching up".to_owned());
    }
    if !app_hash.is_empty() {
        let after = height.saturating_sub(offset(family));
        facts.words.push(format!("app hash {app_hash} (state after {after})"));
        if height > 0 {
            facts.states.push((after, app_hash.clone()));
        }
        facts.app_hash = Some(app_hash);
    }
    if !block.is_empty() && height > 0 {
        facts.blocks.push((height, block));
    }
    facts.words.push(match sync.get("earliest_block_height").and_then(integer) {
        Some(earliest) => format!("earliest {earliest}"),
        None => "earliest unknown".to_owned(),
    });
    facts.words.push(time_words(sync.get("latest_block_time")));
    if let Some(best) = sync.get("max_peer_block_height").and_then(integer) {
        facts.words.push(format!("{} behind its best peer at {best}", best.saturating_sub(height)));
    }
    if let Some(flag) = catching_up {
        facts.words.push(format!("catching_up {flag}"));
    }
    let info = |name: &str, other: &str, key: &str| {
        let value = body.get(name).or_else(|| body.get(other))?.get(key)?;
        value.as_str().map(str::to_owned)
    };
    facts.chain_id = info("node_info", "NodeInfo", "network");
    facts.signs_as = votes::signs_as(body);
    facts.app_version = info("application_info", "ApplicationInfo", "version");
    let validator = body.get("validator_info").or_else(|| body.get("ValidatorInfo"));
    if let Some(power) =
        validator.and_then(|v| v.get("voting_power").or_else(|| v.get("VotingPower"))).and_then(integer)
    {
        facts.words.push(format!("voting power {power}"));
    }
    Ok(facts)
}

/// A time in UTC; the epoch and the year 1 are how nodes write that there is none.
fn time_words(time: Option<&Value>) -> String {
    match time.and_then(Value::as_str).map(str::parse::<jiff::Timestamp>) {
        Some(Ok(time)) if time.as_second() > 0 => format!("time {time}"),
        Some(Err(_)) => format!("time unreadable: {}", crate::timeline::wire::brief(time)),
        _ => "no time".to_owned(),
    }
}

/// Height, app hash and chain of a header.
fn add_header(family: Family, header: &Object, facts: &mut Facts) -> Result<u64, WireError> {
    let height = number(header, "height")?;
    let app_hash = hash(header, "app_hash", header_encoding(family))?;
    let after = height.saturating_sub(offset(family));
    let shown = if app_hash.is_empty() { "empty".to_owned() } else { app_hash.clone() };
    facts.words.push(format!("header {height}: app hash {shown} (state after {after})"));
    if height > 0 {
        facts.states.push((after, app_hash.clone()));
    }
    facts.app_hash = Some(app_hash).filter(|h| !h.is_empty());
    facts.chain_id = header.get("chain_id").and_then(Value::as_str).map(str::to_owned);
    Ok(height)
}

fn absent(what: &str) -> WireError {
    WireError { message: format!("the node has no {what}"), absent: true }
}

fn block(family: Family, body: &Object) -> Result<Facts, WireError> {
    let mut facts = Facts::default();
    // tm2 keeps id and header in the block's meta.
    let holder = match body.get("block_meta") {
        Some(Value::Null) => return Err(absent("block of that height")),
        Some(meta) => object(meta, "block_meta")?,
        None => body,
    };
    let header = match holder.get("header") {
        Some(header) => header,
        None => match body.get("block") {
            None | Some(Value::Null) => return Err(absent("block of that height")),
            Some(block) => block.get("header").ok_or_else(|| WireError::new("`block.header` is missing"))?,
        },
    };
    let height = add_header(family, object(header, "header")?, &mut facts)?;
    add_id(family, holder.get("block_id"), height, &mut facts)?;
    // A header alone, or a shortened answer, holds no evidence.
    facts.evidence = votes::evidence(body, header_encoding(family)).unwrap_or_default();
    for double in &facts.evidence {
        facts.words.push(format!("evidence against validator {}", double.validator));
    }
    Ok(facts)
}

fn add_id(family: Family, id: Option<&Value>, height: u64, facts: &mut Facts) -> Result<(), WireError> {
    let Some(id) = id.and_then(Value::as_object) else { return Ok(()) };
    let id = hash(id, "hash", header_encoding(family))?;
    if !id.is_empty() {
        facts.words.push(format!("block id {id}"));
        facts.blocks.push((height, id));
    }
    Ok(())
}

fn commit(family: Family, body: &Object) -> Result<Facts, WireError> {
    let signed = match body.get("signed_header") {
        None | Some(Value::Null) => return Err(absent("commit of that height")),
        Some(signed) => object(signed, "signed_header")?,
    };
    let mut facts = Facts::default();
    let header = signed.get("header").filter(|h| !h.is_null()).ok_or_else(|| absent("header of that height"))?;
    let height = add_header(family, object(header, "header")?, &mut facts)?;
    let commit = signed.get("commit").filter(|c| !c.is_null()).ok_or_else(|| absent("commit of that height"))?;
    let commit = object(commit, "commit")?;
    // tm2 gives no height here, Tenderdash a number beside the header's text.
    if let Some(other) = commit.get("height").and_then(integer).filter(|other| *other != height) {
        return Err(WireError::new(format!("commit of height {other} beside header {height}")));
    }
    add_id(family, commit.get("block_id"), height, &mut facts)?;
    // A shortened commit tells less, and is one all the same.
    facts.votes = votes::commit_votes(body, header_encoding(family)).unwrap_or_default();
    let votes = commit.get("signatures").or_else(|| commit.get("precommits")).and_then(Value::as_array);
    if let Some(votes) = votes {
        let there =
            votes.iter().filter(|v| !v.is_null() && v.get("block_id_flag").and_then(integer) != Some(1)).count();
        facts.words.push(format!("{there} of {} votes", votes.len()));
    } else if commit.contains_key("threshold_block_signature") {
        facts.words.push("one threshold signature".to_owned());
    }
    Ok(facts)
}

fn blockchain(family: Family, body: &Object) -> Result<Facts, WireError> {
    let mut facts = Facts::default();
    let Some(Value::Array(metas)) = body.get("block_metas") else { return Err(absent("such blocks")) };
    for meta in metas {
        let meta = object(meta, "block_metas[]")?;
        let header = meta.get("header").ok_or_else(|| WireError::new("`header` is missing"))?;
        let height = add_header(family, object(header, "header")?, &mut facts)?;
        add_id(family, meta.get("block_id"), height, &mut facts)?;
    }
    facts.words = vec![format!("{} headers", metas.len())];
    Ok(facts)
}

/// Its `app_hash` is the state after that very height, base64 whatever the family spells elsewhere.
fn block_results(body: &Object, asked: Option<u64>) -> Result<Facts, WireError> {
    let height = match (number(body, "height"), asked) {
        (Ok(height), _) | (Err(_), Some(height)) => height,
        (Err(error), None) => return Err(error),
    };
    let app_hash = hash(body, "app_hash", Encoding::Base64)?;
    let mut facts = Facts::default();
    if app_hash.is_empty() {
        facts.words.push(format!("results of {height}, without an app hash"));
    } else {
        facts.words.push(format!("results of {height}: app hash {app_hash} (state after {height})"));
        facts.states.push((height, app_hash.clone()));
        facts.app_hash = Some(app_hash);
    }
    Ok(facts)
}

fn abci_info(family: Family, body: &Object) -> Result<Facts, WireError> {
    let info = body.get("response").map_or(Ok(body), |r| object(r, "response"))?;
    if let Some(error) = info.get("ResponseBase").and_then(|b| b.get("Error")).filter(|e| !e.is_null()) {
        return Err(WireError { message: format!("the application answers: {error}"), absent: true });
    }
    let (height_key, hash_key) = if family == Family::Tm2 {
        ("LastBlockHeight", "LastBlockAppHash")
    } else {
        ("last_block_height", "last_block_app_hash")
    };
    // Both are left out where they are 0 or empty.
    let height = if info.contains_key(height_key) { number(info, height_key)? } else { 0 };
    let app_hash = hash(info, hash_key, Encoding::Base64)?;
    let mut facts = Facts { words: vec![format!("application at {height}")], ..Facts::default() };
    if !app_hash.is_empty() {
        facts.words.push(format!(
            "app hash {app_hash} (state after {height}, which header {} shows)",
            height + offset(family)
        ));
        facts.states.push((height, app_hash.clone()));
        facts.app_hash = Some(app_hash);
    }
    facts.app_height = Some(height);
    Ok(facts)
}
