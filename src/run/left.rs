//! What a node leaves behind when its process has ended: the output of that start, heights and the last signature in its files.

use std::sync::Arc;

use super::unit::UnitParts;
use crate::agent_client::Client;
use crate::results::RunFolder;
use crate::timeline::{Heights, LastSigned, Role};

/// Copies the captured output of one start into the run folder. What cannot be had is left out and said: the exit's last
/// lines are in the timeline anyway.
pub(super) async fn keep_log(client: &Client, folder: &RunFolder, node: &str, start: u32) -> Result<(), String> {
    let bytes = client.log(start).await.map_err(|e| format!("the log of start {start} could not be fetched: {e}"))?;
    folder.write_log(node, start, &bytes).map_err(|e| format!("the log of start {start} is lost: failed to {e}"))
}

/// What a node's files hold while it is down, as far as its family can read them.
#[derive(Debug, Default)]
pub(super) struct OffLine {
    pub(super) heights: Option<Heights>,
    pub(super) signed: Option<LastSigned>,
}

/// Reads a copy of the node's files.
pub(super) async fn off_line(parts: &UnitParts) -> Result<OffLine, String> {
    let stored = parts.chain.stored_paths();
    let signed = (parts.node.role == Role::Validator).then(|| parts.chain.signed_path().to_owned());
    let paths: Vec<String> = stored.iter().chain(&signed).cloned().collect();
    if paths.is_empty() {
        return Ok(OffLine::default());
    }
    let archive = parts.client.export(&paths).await.map_err(|e| e.to_string())?;
    let chain = Arc::clone(&parts.chain);
    let read = move || {
        let copy = tempfile::tempdir().map_err(|e| e.to_string())?;
        tar::Archive::new(archive.as_ref()).unpack(copy.path()).map_err(|e| with_cause(&e))?;
        let heights = (!stored.is_empty()).then(|| chain.stored_heights(copy.path())).transpose();
        let heights = heights.map_err(|e| e.to_string())?;
        Ok(OffLine { heights, signed: signed.map(|_| chain.last_signed(copy.path())) })
    };
    tokio::task::spawn_blocking(read).await.map_err(|e| e.to_string())?
}

/// The text of an error with its first cause, which that of an archive leaves out.
fn with_cause(error: &dyn std::error::Error) -> String {
    match std::iter::successors(error.source(), |cause| cause.source()).last() {
        Some(first) => format!("{error}: {first}"),
        None => error.to_string(),
    }
}
