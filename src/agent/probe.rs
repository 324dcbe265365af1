//! What a sync of the real disk takes, tried before anything is measured: a latency below it cannot be had.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::agent_client::protocol::Probe;

use super::AgentError;
use super::supervisor::OWN_FOLDER;

/// Syncs made at most; a slow disk gets fewer.
const SYNCS: usize = 300;
/// Syncs that are made whatever they take.
const SYNCS_MIN: usize = 30;
/// Longest time of a probe with more than these.
const TIME_MAX: Duration = Duration::from_secs(3);
/// Bytes written before each sync: a page, as databases write.
const PAGE: [u8; 4096] = [0x5a; 4096];
/// Pages that are written in turn, once the file has them: databases write in place.
const PAGES: usize = 64;

/// Writes and syncs a file below home.
pub(crate) fn probe(home: &Path) -> Result<Probe, AgentError> {
    let path = home.join(OWN_FOLDER).join("probe");
    let failed = || AgentError::io("probe the disk");
    let mut file = File::create(&path).map_err(failed())?;
    for _ in 0..PAGES {
        file.write_all(&PAGE).map_err(failed())?;
    }
    file.sync_all().map_err(failed())?;
    let filesystem = filesystem(&file)?;
    let begun = Instant::now();
    let mut syncs_us = Vec::with_capacity(SYNCS);
    while syncs_us.len() < SYNCS && (syncs_us.len() < SYNCS_MIN || begun.elapsed() < TIME_MAX) {
        let page = syncs_us.len() % PAGES * PAGE.len();
        std::os::unix::fs::FileExt::write_all_at(&file, &PAGE, page as u64).map_err(failed())?;
        let before = Instant::now();
        file.sync_data().map_err(failed())?;
        syncs_us.push(u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    fs::remove_file(&path).map_err(failed())?;
    syncs_us.sort_unstable();
    Ok(Probe { filesystem, syncs_us })
}

/// The type by its magic number (`statfs(2)`).
fn filesystem(file: &File) -> Result<String, AgentError> {
    let found = rustix::fs::fstatfs(file).map_err(|e| AgentError::io("look at the file system")(e.into()))?;
    Ok(match found.f_type {
        0xef53 => "ext4".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683e => "btrfs".to_owned(),
        0x794c_7630 => "overlay".to_owned(),
        other => format!("file system {other:#x}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_tells_real_syncs_and_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(OWN_FOLDER)).unwrap();
        let probe = probe(home.path()).unwrap();
        assert!(probe.syncs_us.len() >= SYNCS_MIN && probe.syncs_us.is_sorted());
        assert!(!probe.filesystem.is_empty());
        assert!(!home.path().join(OWN_FOLDER).join("probe").exists());
    }
}
