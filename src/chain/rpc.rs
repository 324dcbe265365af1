//! How a node's RPC is asked and read: the shapes of CometBFT, which the reference node speaks too, and from which its
//! relatives differ in a few.
//!
//! What is lenient and what is strict in reading them is told in [`crate::timeline::wire`]; `sync_info` may be spelt as the
//! command line does.

use serde_json::Value;

use super::ChainError;
use crate::timeline::wire::{self, Encoding, WireError, answer, brief, either, field, number, object};
use crate::timeline::{CommitVotes, DoubleVote, Hashes, Status, votes};

/// Most headers that `/blockchain` gives in one answer.
const HEADERS_MAX: u64 = 20;

/// How one family's RPC is asked and read. Requests are paths with query, answered through the agent's relay. What a family
/// does not say otherwise is as in CometBFT.
pub trait Rpc: Send + Sync {
    /// Distance between a block and the header that carries the app hash after it: 1, or 0 for Tenderdash.
    fn app_hash_offset(&self) -> u64 {
        1
    }

    /// How hashes are spelt.
    fn hash_encoding(&self) -> Encoding {
        Encoding::Hex
    }

    /// The request for a status.
    fn status_request(&self) -> String {
        "/status".to_owned()
    }

    /// Its answer; heights as text or numbers, hashes normalised to lower-case hex.
    fn status(&self, body: &[u8]) -> Result<Status, ChainError> {
        let result = answer(body)?;
        let sync = either(&result, "sync_info", "SyncInfo")?;
        let sync = object(sync, "sync_info")?;
        let catching_up = match sync.get("catching_up") {
            Some(Value::Bool(flag)) => *flag,
            other => return Err(ChainError::new(format!("`catching_up` is no truth value: {}", brief(other)))),
        };
        Ok(Status {
            height: number(sync, "latest_block_height")?,
            catching_up,
            peers: None,
            app_hash: wire::hash(sync, "latest_app_hash", self.hash_encoding())?,
        })
    }

    /// The request for the number of peers.
    fn peers_request(&self) -> String {
        "/net_info".to_owned()
    }

    /// Its answer.
    fn peers(&self, body: &[u8]) -> Result<u32, ChainError> {
        let peers = number(&answer(body)?, "n_peers")?;
        u32::try_from(peers).map_err(|_| ChainError::new(format!("`n_peers` is {peers}")))
    }

    /// The request for the application's own height.
    fn app_request(&self) -> String {
        "/abci_info".to_owned()
    }

    /// The name of that height in the answer.
    fn app_height_name(&self) -> &'static str {
        "last_block_height"
    }

    /// Its answer; absent is height 0.
    fn app_height(&self, body: &[u8]) -> Result<u64, ChainError> {
        let result = answer(body)?;
        let response = object(field(&result, "response")?, "response")?;
        let name = self.app_height_name();
        if response.contains_key(name) { Ok(number(response, name)?) } else { Ok(0) }
    }

    /// The request for block ids and app hashes from `first` to at most `last`, as many as one answer holds.
    fn hashes_request(&self, first: u64, last: u64) -> String {
        let last = last.min(first.saturating_add(HEADERS_MAX - 1));
        format!("/blockchain?minHeight={first}&maxHeight={last}")
    }

    /// Its answer: newest first in the body, in height order here; may be shorter than asked for.
    fn hashes(&self, body: &[u8]) -> Result<Hashes, ChainError> {
        headers(body, self.hash_encoding())
    }

    /// The address under which the node signs, in the answer to a request for a status.
    fn signs_as(&self, body: &[u8]) -> Option<String> {
        votes::signs_as(&answer(body).ok()?)
    }

    /// The request for the commit of a height.
    fn commit_request(&self, height: u64) -> String {
        format!("/commit?height={height}")
    }

    /// Its answer; `None` where the commit does not tell who signed it.
    fn commit(&self, body: &[u8]) -> Result<Option<CommitVotes>, ChainError> {
        Ok(votes::commit_votes(&answer(body)?, self.hash_encoding())?)
    }

    /// Heights of the blocks that hold evidence, in the answer to a request for hashes.
    fn with_evidence(&self, body: &[u8]) -> Vec<u64> {
        answer(body).map(|result| votes::with_evidence(&result)).unwrap_or_default()
    }

    /// The request for a block.
    fn block_request(&self, height: u64) -> String {
        format!("/block?height={height}")
    }

    /// The double votes in the evidence of a block.
    fn evidence(&self, body: &[u8]) -> Result<Vec<DoubleVote>, ChainError> {
        Ok(votes::evidence(&answer(body)?, self.hash_encoding())?)
    }

    /// The request that submits a transaction.
    fn submit_request(&self, transaction: &[u8]) -> String {
        format!("/broadcast_tx_sync?tx=0x{}", hex::encode(transaction))
    }

    /// Whether the answer says that it was taken.
    fn submitted(&self, body: &[u8]) -> bool {
        answer(body).and_then(|result| number(&result, "code")).is_ok_and(|code| code == 0)
    }
}

/// Shapes of CometBFT 0.34 to 1.x: header H carries the app hash after H−1, hashes are hex.
#[derive(Clone, Copy, Debug, Default)]
pub struct CometShapes;

impl Rpc for CometShapes {}

/// `/blockchain`, with hashes in this encoding.
fn headers(body: &[u8], encoding: Encoding) -> Result<Hashes, ChainError> {
    let result = answer(body)?;
    let Some(Value::Array(metas)) = result.get("block_metas") else {
        return Err(ChainError::new(format!("`block_metas` is no list: {}", brief(result.get("block_metas")))));
    };
    let mut blocks = metas.iter().map(|meta| block(meta, encoding)).collect::<Result<Vec<_>, _>>()?;
    blocks.sort_by_key(|(height, ..)| *height);
    let first = blocks.first().map(|(height, ..)| *height).ok_or_else(|| ChainError::new("no block in the answer"))?;
    for (expected, (height, ..)) in (first..).zip(&blocks) {
        if *height != expected {
            return Err(ChainError::new(format!("height {expected} is missing between {first} and {height}")));
        }
    }
    Ok(Hashes { first, blocks: blocks.into_iter().map(|(_, id, app)| (id, app)).collect() })
}

/// Height, block id and app hash of one block's meta.
fn block(meta: &Value, encoding: Encoding) -> Result<(u64, String, String), WireError> {
    let meta = object(meta, "block_metas[]")?;
    let header = object(field(meta, "header")?, "header")?;
    let id = wire::hash(object(field(meta, "block_id")?, "block_id")?, "hash", encoding)?;
    let height = number(header, "height")?;
    if id.is_empty() {
        return Err(WireError::new(format!("block {height} has no hash")));
    }
    Ok((height, id, wire::hash(header, "app_hash", encoding)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/recordings/cometbft-0.38/");

    fn recorded(name: &str) -> Vec<u8> {
        std::fs::read(format!("{RECORDED}{name}.json")).expect("a recording")
    }

    #[test]
    fn reads_the_answers_of_a_live_node() {
        let status = CometShapes.status(&recorded("status")).expect("a status");
        assert_eq!((status.height, status.catching_up), (10, false));
        assert_eq!(status.app_hash, "0400000000000000");
        assert_eq!(CometShapes.peers(&recorded("net_info")).expect("peers"), 3);
        let hashes = CometShapes.hashes(&recorded("blockchain")).expect("hashes");
        assert_eq!((hashes.first, hashes.blocks.len()), (5, 3));
        assert!(hashes.blocks.iter().all(|(id, app)| id.len() == 64 && app.len() == 16));
        assert_eq!(hashes.blocks[2].1, "0400000000000000");
        assert!(CometShapes.submitted(&recorded("broadcast_tx_sync")));
        assert!(!CometShapes.submitted(&recorded("broadcast_tx_sync_refused")));
        assert!(!CometShapes.submitted(&recorded("broadcast_tx_sync_known")));
    }

    #[test]
    fn a_height_that_is_not_there_is_an_error_with_the_nodes_words() {
        let error = CometShapes.hashes(&recorded("blockchain_too_high")).expect_err("an error");
        assert!(error.0.contains("can't be greater than max height"), "{error}");
    }

    #[test]
    fn the_application_tells_its_height_or_leaves_nought_out() {
        let body = |fields: &str| format!(r#"{{"jsonrpc":"2.0","id":-1,"result":{{"response":{{{fields}}}}}}}"#);
        let height = |fields: &str| CometShapes.app_height(body(fields).as_bytes()).expect("a height");
        assert_eq!(height(r#""data":"{}","last_block_height":"12""#), 12);
        assert_eq!(height(r#""data":"{}""#), 0);
        assert!(CometShapes.app_height(br#"{"jsonrpc":"2.0","id":-1,"error":{"code":-1}}"#).is_err());
    }

    #[test]
    fn a_fresh_node_has_height_nought_and_no_hash() {
        let body = br#"{"jsonrpc":"2.0","id":-1,"result":{"sync_info":{"latest_block_hash":"","latest_app_hash":"",
            "latest_block_height":"0","latest_block_time":"1970-01-01T00:00:00Z","catching_up":true}}}"#;
        let status = CometShapes.status(body).expect("a status");
        assert_eq!(status, Status { height: 0, catching_up: true, peers: None, app_hash: String::new() });
    }

    #[test]
    fn spelling_of_the_command_line_and_plain_numbers() {
        let body = br#"{"NodeInfo":{"network":"n"},"SyncInfo":{"latest_block_height":3310,
            "latest_app_hash":"8C099E25","catching_up":false}}"#;
        let status = CometShapes.status(body).expect("a status");
        assert_eq!((status.height, status.app_hash.as_str()), (3310, "8c099e25"));
    }

    #[test]
    fn what_is_no_answer_is_never_height_nought() {
        let bodies: [&[u8]; 8] = [
            br#"{"jsonrpc":"2.0","id":-1,"result":null}"#,
            br#"{"code":-32603,"message":"Internal error","data":"asked height 50, have 7"}"#,
            br#"{"jsonrpc":"2.0","id":-1,"error":{"code":-32603,"message":"Internal error","data":"x"}}"#,
            br#"{"jsonrpc":"2.0","id":-1,"result":{}}"#,
            br#"{"jsonrpc":"2.0","id":-1,"result":{"sync_info":{"latest_block_height":"-3","catching_up":true}}}"#,
            br#"{"jsonrpc":"2.0","id":-1}"#,
            b"404 page not found",
            b"[]",
        ];
        for body in bodies {
            assert!(CometShapes.status(body).is_err(), "{}", String::from_utf8_lossy(body));
            assert!(CometShapes.hashes(body).is_err(), "{}", String::from_utf8_lossy(body));
            assert!(CometShapes.peers(body).is_err(), "{}", String::from_utf8_lossy(body));
            assert!(!CometShapes.submitted(body), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn headers_come_in_height_order_without_gaps_or_not_at_all() {
        let meta = |height: u64| {
            format!(r#"{{"block_id":{{"hash":"AB{height:02}"}},"header":{{"height":"{height}","app_hash":"CD"}}}}"#)
        };
        let body = |heights: &[u64]| {
            format!(
                r#"{{"result":{{"block_metas":[{}]}}}}"#,
                heights.iter().map(|h| meta(*h)).collect::<Vec<_>>().join(",")
            )
        };
        let hashes = CometShapes.hashes(body(&[9, 8, 7]).as_bytes()).expect("hashes");
        assert_eq!(hashes.first, 7);
        assert_eq!(hashes.blocks[0], ("ab07".to_owned(), "cd".to_owned()));
        assert!(CometShapes.hashes(body(&[9, 7]).as_bytes()).is_err());
        assert!(CometShapes.hashes(body(&[]).as_bytes()).is_err());
        assert!(CometShapes.hashes(body(&[7, 7]).as_bytes()).is_err());
    }

    #[test]
    fn requests() {
        assert_eq!(CometShapes.hashes_request(5, 500), "/blockchain?minHeight=5&maxHeight=24");
        assert_eq!(CometShapes.hashes_request(5, 7), "/blockchain?minHeight=5&maxHeight=7");
        assert_eq!(CometShapes.submit_request(b"a=b"), "/broadcast_tx_sync?tx=0x613d62");
    }
}
