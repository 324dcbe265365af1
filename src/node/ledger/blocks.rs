//! Rows of the block store: `H:<height>` the block, `C:<height>` its commit, `M:<height>` its meta, and the records
//! `height`, `base`, `window` (F and F′ of the last window that was flushed) and `flushed`.
//!
//! Heights in keys are ASCII decimal, so that they show in the pages that a commit writes.

use crate::node::codec::{Codec, CodecError};
use crate::node::store::{Reader, Store, StoreError, StoreName};
use crate::node::types::{Block, BlockId, BlockMeta, Commit, Height};

const BASE: &[u8] = b"base";
const WINDOW: &[u8] = b"window";
const FLUSHED: &[u8] = b"flushed";

fn block_key(height: Height) -> Vec<u8> {
    format!("H:{height}").into_bytes()
}

fn commit_key(height: Height) -> Vec<u8> {
    format!("C:{height}").into_bytes()
}

fn meta_key(height: Height) -> Vec<u8> {
    format!("M:{height}").into_bytes()
}

/// Puts a block, its commit and its meta. `encoded` is the block's encoding.
pub(super) fn put_block(store: &mut Store, block: &Block, encoded: Vec<u8>, block_id: &BlockId, commit: &Commit) {
    let height = block.header.height;
    let meta = BlockMeta {
        block_id: *block_id,
        header: block.header.clone(),
        block_size: encoded.len() as u64,
        num_txs: block.txs.len() as u64,
    };
    store.put(block_key(height), encoded);
    store.put(commit_key(height), commit.to_bytes());
    store.put(meta_key(height), meta.to_bytes());
}

/// Puts the height record, and the base with the first block.
pub(super) fn put_height(store: &mut Store, height: Height, initial_height: Height) {
    store.put_height(height);
    if height == initial_height {
        store.put(BASE, height.to_string());
    }
}

/// Puts the record of the per-block flush.
pub(super) fn put_flushed(store: &mut Store, height: Height) {
    store.put(FLUSHED, height.to_string());
}

/// Puts the record of a window: blocks from+1 to `to`.
pub(super) fn put_window(store: &mut Store, from: Height, to: Height) {
    store.put(WINDOW, format!("{from} {to}"));
}

/// The record of the last window, if blocks have not come singly since.
pub(super) fn window(reader: &Reader) -> Result<Option<(Height, Height)>, StoreError> {
    let Some(value) = reader.get(WINDOW)? else { return Ok(None) };
    let parsed = std::str::from_utf8(&value).ok().and_then(|text| {
        let (from, to) = text.split_once(' ')?;
        Some((from.parse().ok()?, to.parse().ok()?))
    });
    parsed.map(Some).ok_or_else(|| StoreError::corrupt(StoreName::Blocks, "the window's record"))
}

/// Takes the record of a window back.
pub(super) fn clear_window(store: &mut Store) {
    store.delete(WINDOW);
}

/// Lowers the height record to `to` and removes the blocks above, up to `from`.
pub(super) fn lower(store: &mut Store, from: Height, to: Height) {
    for height in to + 1..=from {
        store.delete(block_key(height));
        store.delete(commit_key(height));
        store.delete(meta_key(height));
    }
    store.put_height(to);
    clear_window(store);
}

fn decoded<T: Codec>(bytes: Option<Vec<u8>>, what: &str, height: Height) -> Result<Option<T>, StoreError> {
    let corrupt = |error: CodecError| StoreError::corrupt(StoreName::Blocks, format!("{what} {height}: {error}"));
    bytes.map(|bytes| T::from_bytes(&bytes).map_err(corrupt)).transpose()
}

/// A way to rows: the version on disk, or what is held over it.
pub(super) trait Get {
    /// The value of a key.
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
}

impl Get for Reader {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.get(key)
    }
}

impl Get for Store {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.get(key)
    }
}

/// Lowest height kept, 0 when there is none.
pub(super) fn base(from: &dyn Get) -> Result<Height, StoreError> {
    let Some(value) = from.row(BASE)? else { return Ok(0) };
    let base = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    base.ok_or_else(|| StoreError::corrupt(StoreName::Blocks, "base"))
}

/// A block.
pub(super) fn block(from: &dyn Get, height: Height) -> Result<Option<Block>, StoreError> {
    decoded(from.row(&block_key(height))?, "block", height)
}

/// The commit of a block.
pub(super) fn commit(from: &dyn Get, height: Height) -> Result<Option<Commit>, StoreError> {
    decoded(from.row(&commit_key(height))?, "commit", height)
}

/// Header, name and size of a block.
pub(super) fn meta(from: &dyn Get, height: Height) -> Result<Option<BlockMeta>, StoreError> {
    decoded(from.row(&meta_key(height))?, "meta", height)
}
