//! The chain that a run starts from: built once, cached by everything that it depends on.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::RunError;
use super::cache::{self as kept, BUILD_MAX, InUse};
use crate::chain::Fixture;

/// Whether a fixture was built before.
pub(super) fn is_there(cache: &Path, fixture: &Fixture) -> bool {
    cache.join(&fixture.key).join("data").is_dir()
}

/// Returns a folder with the fixture's `data/`, building it when the cache has none. It stays as long as the second part lives.
///
/// Two runs that need the same chain at once build it once: the second waits for the first one's lock.
pub(crate) async fn ready(
    cache: &Path,
    fixture: &Fixture,
    cancel: &CancellationToken,
) -> Result<(PathBuf, InUse), RunError> {
    let done = cache.join(&fixture.key);
    loop {
        let used = kept::used(cache, &fixture.key, cancel).await?;
        if done.join("data").is_dir() {
            return Ok((done, used));
        }
        drop(used);
        let _lock = kept::make(cache, &fixture.key, cancel).await?;
        if !done.join("data").is_dir() {
            make(cache, &done, fixture, cancel).await?;
            kept::trim(cache, kept::BYTES_MAX);
        }
    }
}

async fn make(cache: &Path, done: &Path, fixture: &Fixture, cancel: &CancellationToken) -> Result<(), RunError> {
    let fail = |reason: String| RunError::Fixture { folder: done.to_owned(), reason };
    let work = tempfile::Builder::new().prefix("building-").tempdir_in(cache).map_err(|e| fail(e.to_string()))?;
    write_files(work.path(), fixture).map_err(|e| fail(e.to_string()))?;
    build(work.path(), fixture, cancel).await?;
    if !work.path().join("data").is_dir() {
        return Err(fail("the command made no `data` folder".to_owned()));
    }
    fs::rename(work.keep(), done).map_err(|e| fail(e.to_string()))
}

fn write_files(folder: &Path, fixture: &Fixture) -> std::io::Result<()> {
    for (name, contents) in &fixture.files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(contents.mode).open(path)?;
        file.write_all(&contents.bytes)?;
    }
    Ok(())
}

async fn build(folder: &Path, fixture: &Fixture, cancel: &CancellationToken) -> Result<(), RunError> {
    let fail = |reason: String| RunError::Fixture { folder: folder.to_owned(), reason };
    let Some((program, arguments)) = fixture.command.split_first() else {
        return Err(fail("the node family gave no command".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::select! {
        () = cancel.cancelled() => return Err(RunError::Interrupted),
        output = tokio::time::timeout(BUILD_MAX, command.output()) => output,
    };
    let output = output
        .map_err(|_| fail(format!("`{program}` did not end within {} s", BUILD_MAX.as_secs())))?
        .map_err(|e| fail(format!("`{program}` could not be started: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n");
    Err(fail(format!("`{}` ended with {}:\n{tail}", fixture.command.join(" "), output.status)))
}
