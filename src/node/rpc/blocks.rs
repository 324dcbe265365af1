//! The methods that answer from the block store and the state store, always from the versions on disk.

use serde_json::{Value, json};

use super::Context;
use super::answer::RpcError;
use super::request::Params;
use super::shapes;
use crate::node::types::Height;

/// Most headers of one answer.
const HEADERS_MAX: u64 = 20;

/// The height asked for, or the latest one, checked against what is stored.
fn height(context: &Context, params: &Params) -> Result<Height, RpcError> {
    let (base, latest) = stored(context)?;
    match params.number("height")? {
        None => Ok(latest),
        Some(0) => Err(RpcError::internal("height must be greater than 0, but got 0")),
        Some(asked) if asked > latest => Err(RpcError::internal(format!(
            "height {asked} must be less than or equal to the current blockchain height {latest}"
        ))),
        Some(asked) if asked < base => {
            Err(RpcError::internal(format!("height {asked} is not available, lowest height is {base}")))
        }
        Some(asked) => Ok(asked),
    }
}

/// Lowest and latest height in the block store; both 0 before the first block.
pub(super) fn stored(context: &Context) -> Result<(Height, Height), RpcError> {
    let base = context.view.base().map_err(RpcError::internal)?;
    Ok((base, context.view.heights().map_err(RpcError::internal)?.store))
}

/// `/block`: the block, or an empty id and `null` on a chain without blocks.
pub(super) fn block(context: &Context, params: &Params) -> Result<Value, RpcError> {
    let height = height(context, params)?;
    let view = &context.view;
    let found = view.meta(height).map_err(RpcError::internal)?.zip(view.block(height).map_err(RpcError::internal)?);
    let Some((meta, block)) = found else {
        return Ok(json!({ "block_id": shapes::block_id(&Default::default()), "block": Value::Null }));
    };
    let signers = view.validators(block.last_commit.height).map_err(RpcError::internal)?;
    Ok(json!({ "block_id": shapes::block_id(&meta.block_id), "block": shapes::block(&block, signers.as_ref()) }))
}

/// `/header`.
pub(super) fn header(context: &Context, params: &Params) -> Result<Value, RpcError> {
    let meta = context.view.meta(height(context, params)?).map_err(RpcError::internal)?;
    Ok(json!({ "header": meta.map(|meta| shapes::header(&meta.header)) }))
}

/// `/commit`: the one in the next block, which all nodes share, or at the tip the one that this node holds. `null` where
/// there is none.
pub(super) fn commit(context: &Context, params: &Params) -> Result<Value, RpcError> {
    let height = height(context, params)?;
    let view = &context.view;
    let Some(meta) = view.meta(height).map_err(RpcError::internal)? else { return Ok(Value::Null) };
    let next = view.block(height + 1).map_err(RpcError::internal)?;
    let canonical = next.is_some();
    let commit = match next {
        Some(next) => Some(next.last_commit),
        None => view.commit(height).map_err(RpcError::internal)?,
    };
    let Some(commit) = commit else { return Ok(Value::Null) };
    let validators = view.validators(height).map_err(RpcError::internal)?;
    Ok(json!({
        "signed_header": {
            "header": shapes::header(&meta.header),
            "commit": shapes::commit(&commit, validators.as_ref()),
        },
        "canonical": canonical,
    }))
}

/// `/blockchain`: metas from the highest asked for downwards.
pub(super) fn blockchain(context: &Context, params: &Params) -> Result<Value, RpcError> {
    let view = &context.view;
    let (base, latest) = stored(context)?;
    let asked = (params.number("minHeight")?.unwrap_or(0), params.number("maxHeight")?.unwrap_or(0));
    let (first, last) = range(base, latest, asked.0, asked.1).map_err(RpcError::internal)?;
    let mut metas = Vec::new();
    for height in (first..=last).rev() {
        if let Some(meta) = view.meta(height).map_err(RpcError::internal)? {
            metas.push(shapes::meta(&meta));
        }
    }
    Ok(json!({ "last_height": latest.to_string(), "block_metas": metas }))
}

/// The heights that an answer covers. 0 stands for "from the lowest" and "to the latest".
fn range(base: Height, latest: Height, first: Height, last: Height) -> Result<(Height, Height), String> {
    let last = if last == 0 { latest } else { last.min(latest) };
    let first = first.max(base).max(1);
    if first > last {
        return Err(format!("min height {first} can't be greater than max height {last}"));
    }
    Ok((first.max((last + 1).saturating_sub(HEADERS_MAX)), last))
}

/// `/block_results`.
pub(super) fn block_results(context: &Context, params: &Params) -> Result<Value, RpcError> {
    let height = height(context, params)?;
    match context.view.results(height).map_err(RpcError::internal)? {
        Some(results) => Ok(shapes::results(height, &results)),
        None => Err(RpcError::internal(format!("could not find results for height #{height}"))),
    }
}

/// `/validators` of a height: who decides it.
pub(super) fn validators(context: &Context, params: &Params) -> Result<Value, RpcError> {
    let height = height(context, params)?;
    let found = context.view.validators(height).map_err(RpcError::internal)?;
    let set = found.ok_or_else(|| RpcError::internal(format!("could not find validators for height #{height}")))?;
    let all: Vec<Value> = set
        .validators()
        .iter()
        .map(|v| {
            json!({
                "address": v.address.to_string().to_ascii_uppercase(),
                "pub_key": shapes::public_key(&v.pub_key),
                "voting_power": v.power.to_string(),
                "proposer_priority": "0",
            })
        })
        .collect();
    let count = all.len().to_string();
    Ok(json!({ "block_height": height.to_string(), "validators": all, "count": count, "total": count }))
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_of_headers() {
        assert_eq!(range(1, 100, 0, 0), Ok((81, 100)));
        assert_eq!(range(1, 100, 5, 7), Ok((5, 7)));
        assert_eq!(range(1, 100, 5, 500), Ok((81, 100)));
        assert_eq!(range(1, 100, 5, 90), Ok((71, 90)));
        assert_eq!(range(95, 100, 1, 97), Ok((95, 97)));
        assert_eq!(range(1, 3, 0, 0), Ok((1, 3)));
        assert_eq!(range(1, 11, 5000, 5007), Err("min height 5000 can't be greater than max height 11".to_owned()));
        assert_eq!(range(0, 0, 0, 0), Err("min height 1 can't be greater than max height 0".to_owned()));
    }
}
