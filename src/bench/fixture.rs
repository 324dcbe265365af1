//! The chain that a bench syncs: built off-line, or a folder that is there already; with the hashes of all its heights.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::design::FixturePlan;
use super::session::Ground;
use super::{BenchError, grow};
use crate::agent_client::Client;
use crate::chain::{BlockContents, Chain};
use crate::run::cache::InUse;
use crate::run::ready_fixture;

/// Heights asked for at once.
const STEP: u64 = 20;

/// A chain on this machine.
#[derive(Clone, Debug)]
pub(super) struct Data {
    /// The folder that becomes `data/` of a serving peer.
    pub(super) folder: PathBuf,
    /// Where its hashes are kept; nowhere for a folder of somebody else.
    pub(super) hashes: Option<PathBuf>,
    /// Keeps it in the cache.
    _used: Option<Arc<InUse>>,
}

/// Block id and app hash of every height from the first on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    /// Height of the first.
    pub(super) first: u64,
    /// Both hashes, lower-case hex.
    pub(super) blocks: Vec<(String, String)>,
}

/// Makes the chain, or takes it from the cache.
pub(super) async fn ready(
    ground: &Ground<'_>,
    fixture: &FixturePlan,
    cancel: &CancellationToken,
) -> Result<Data, BenchError> {
    if let Some(data) = &fixture.spec.data {
        let folder = fs::canonicalize(data)
            .map_err(|error| BenchError::Input(format!("`fixture.data` `{data}` cannot be used: {error}")))?;
        return Ok(Data { folder, hashes: None, _used: None });
    }
    let contents =
        BlockContents { transactions: fixture.spec.transactions_per_block, size: fixture.spec.transaction_size };
    let (folder, used) = match ground.chain.filled_fixture(&fixture.plan, contents)? {
        Some(built) => ready_fixture(ground.cache, &built, cancel).await?,
        None => grow::grown(ground, fixture, cancel).await?,
    };
    let hashes = Some(folder.join("hashes.json"));
    Ok(Data { folder: folder.join("data"), hashes, _used: Some(Arc::new(used)) })
}

/// Reads the hashes from a serving peer, and compares them with those of earlier benches.
pub(super) async fn known(
    peer: &Arc<Client>,
    chain: &dyn Chain,
    heights: u64,
    data: &Data,
) -> Result<Known, BenchError> {
    let served = read(peer, chain, 1, heights)
        .await
        .map_err(|why| BenchError::Input(format!("the fixture in {} cannot be read: {why}", data.folder.display())))?;
    let Some(path) = &data.hashes else { return Ok(served) };
    let failed = |source| BenchError::Machine { what: "keep the fixture's hashes", source };
    match fs::read(path) {
        Ok(bytes) => match serde_json::from_slice::<Known>(&bytes) {
            Ok(kept) if kept == served => Ok(served),
            _ => Err(BenchError::Input(format!(
                "the fixture in {} does not have the hashes that it was made with; remove that folder",
                data.folder.display()
            ))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = serde_json::to_vec(&served).map_err(|error| failed(error.into()))?;
            let partial = path.with_extension("partial");
            fs::write(&partial, text).and_then(|()| fs::rename(&partial, path)).map_err(failed)?;
            Ok(served)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Hashes as a node serves them, from `first` to `last`; an error tells why they are not all there.
pub(super) async fn read(node: &Client, chain: &dyn Chain, first: u64, last: u64) -> Result<Known, String> {
    let rpc = chain.rpc();
    let mut known = Known { first, blocks: Vec::new() };
    let mut next = first;
    while next <= last {
        let answer = node.rpc(&rpc.hashes_request(next, last.min(next + STEP - 1))).await.map_err(|e| e.to_string())?;
        let hashes = rpc.hashes(&answer.body).map_err(|e| e.to_string())?;
        if hashes.blocks.is_empty() || hashes.first != next {
            return Err(format!("height {next} is not served"));
        }
        next += hashes.blocks.len() as u64;
        known.blocks.extend(hashes.blocks);
    }
    Ok(known)
}

impl Known {
    /// The first height at which another node differs, in words.
    pub(super) fn differs(&self, other: &Self) -> Option<String> {
        (self.first..).zip(self.blocks.iter().zip(&other.blocks)).find_map(|(height, (here, there))| {
            if here.0 != there.0 {
                return Some(format!("block {height} is {} there and {} in the fixture", there.0, here.0));
            }
            let (a, b) = (&there.1, &here.1);
            (a != b).then(|| format!("the app hash in header {height} is {a} there and {b} in the fixture"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_hash_is_named_with_its_height() {
        let of = |hashes: &[(&str, &str)]| Known {
            first: 5,
            blocks: hashes.iter().map(|(id, app)| ((*id).to_owned(), (*app).to_owned())).collect(),
        };
        let right = of(&[("aa", "01"), ("bb", "02"), ("cc", "03")]);
        assert_eq!(right.differs(&of(&[("aa", "01"), ("bb", "02")])), None, "what is not there yet is no difference");
        let wrong = right.differs(&of(&[("aa", "01"), ("bb", "09")])).expect("a difference");
        assert!(wrong.contains("header 6") && wrong.contains("09"), "{wrong}");
        assert!(right.differs(&of(&[("ab", "01")])).expect("a difference").contains("block 5"));
    }
}
