//! Checkpoints: whole copies of the application's rows, beside the databases and outside of the hashed state, so that
//! making or losing one changes no hash.
//!
//! A checkpoint is one file `data/checkpoints/<height>`: the digest of what follows, the height, then the rows. It is
//! written beside its place, synced and renamed, so that a name always stands for a whole checkpoint.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::node::codec::{CodecError, Reader as Decoder, put_bytes, put_length};
use crate::node::config::{Checkpoints, Historical};
use crate::node::store::{Disk, Reader, Store, StoreError, StoreName};
use crate::node::types::{Height, sha256};

/// A block older than this is history.
const HISTORICAL_MS: u64 = 10 * 60 * 1000;
/// Most bytes of a key or a value that are read back.
const FIELD_MAX: usize = 8 << 20;
/// Most rows that are read back.
const ROWS_MAX: usize = 1 << 28;

/// A checkpoint could not be made or restored.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file.
    #[error("use checkpoint {path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a checkpoint, or a damaged one.
    #[error("use checkpoint {path}: {reason}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Decides when a checkpoint is made. Pure: the clock is an argument.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    settings: Checkpoints,
    last_ms: Option<u64>,
}

impl Schedule {
    /// Counts from the chain time of the newest checkpoint, if there is one.
    pub fn new(settings: Checkpoints, last_ms: Option<u64>) -> Self {
        Self { settings, last_ms }
    }

    /// Whether the block of this time is to be followed by a checkpoint.
    pub fn is_due(&self, block_ms: u64, now_ms: u64) -> bool {
        let old = now_ms.saturating_sub(block_ms) > HISTORICAL_MS;
        if old && self.settings.historical == Historical::Skip {
            return false;
        }
        self.last_ms.is_none_or(|last| block_ms.saturating_sub(last) >= self.settings.every_ms)
    }

    /// A checkpoint was made after the block of this time.
    pub fn made(&mut self, block_ms: u64) {
        self.last_ms = Some(block_ms);
    }
}

/// Heights of the checkpoints in a folder, lowest first.
pub fn list(folder: &Path) -> Vec<Height> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut heights: Vec<Height> =
        entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok())).collect();
    heights.sort_unstable();
    heights
}

/// Copies the version on disk into `folder`, then removes all but the newest `keep`. Returns the height.
pub fn make(reader: &Reader, folder: &Path, keep: usize) -> Result<Height, CheckpointError> {
    // One pass over one version: the height is one of its rows.
    let mut body = Vec::new();
    let mut count = 0;
    let mut height: Height = 0;
    reader.for_each(&mut |key, value| {
        if key == b"height" {
            height = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        }
        put_bytes(&mut body, key);
        put_bytes(&mut body, value);
        count += 1;
    })?;
    let mut content = height.to_le_bytes().to_vec();
    put_length(&mut content, count);
    content.extend_from_slice(&body);
    let path = folder.join(height.to_string());
    write_whole(folder, &path, &content).map_err(|source| CheckpointError::File { path: path.clone(), source })?;
    let heights = list(folder);
    for old in heights.iter().rev().skip(keep) {
        let path = folder.join(old.to_string());
        fs::remove_file(&path).map_err(|source| CheckpointError::File { path, source })?;
    }
    Ok(height)
}

fn write_whole(folder: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(&sha256(content).0)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

/// Replaces the application's database on `disk` with a checkpoint. The node must be down. At its next start it replays
/// the blocks after the checkpoint. Returns the checkpoint's height.
///
/// The rows go in as one batch, so that a kill leaves the old application or the restored one.
pub fn restore(folder: &Path, height: Height, disk: &dyn Disk, shift: Height) -> Result<Height, CheckpointError> {
    let path = folder.join(height.to_string());
    let bytes = fs::read(&path).map_err(|source| CheckpointError::File { path: path.clone(), source })?;
    let damaged = |reason: String| CheckpointError::Damaged { path: path.clone(), reason };
    let (digest, content) = bytes.split_at_checked(32).ok_or_else(|| damaged("too short".into()))?;
    if digest != sha256(content).0 {
        return Err(damaged("its digest is wrong".into()));
    }
    let mut decoder = Decoder::new(content);
    let mut read = || {
        let height = decoder.u64("height")?;
        let count = decoder.length(ROWS_MAX, "rows")?;
        let mut rows = Vec::new();
        for _ in 0..count {
            rows.push((decoder.bytes(FIELD_MAX, "key")?.to_vec(), decoder.bytes(FIELD_MAX, "value")?.to_vec()));
        }
        Ok((height, rows))
    };
    let (height, rows) = read().map_err(|error: CodecError| damaged(error.to_string()))?;
    let mut store = Store::open(disk, StoreName::App)?;
    let mut old = Vec::new();
    store.reader().for_each(&mut |key, _| old.push(key.to_vec()))?;
    for key in old {
        store.delete(key);
    }
    for (key, value) in rows {
        store.put(key, value);
    }
    // 0 but for one planted defect, which claims a block that the checkpoint does not hold.
    if shift > 0 {
        store.put_height(height + shift);
    }
    store.commit()?;
    Ok(height)
}
