//! What is said before a start where a disk has little room left, since a full one ends a run in its middle.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::run::chains_folder;
use crate::report::words;
use crate::run::cache;

/// Bytes that a disk should have left.
const ENOUGH: u64 = 1 << 30;

/// One line for each disk with little room that the results, the nodes' homes or built chains will lie on.
pub(crate) fn tell(results: &Path) {
    let (homes, chains) = (std::env::temp_dir(), chains_folder());
    let places = [("results", results), ("the nodes' homes", &*homes), ("built chains", &*chains)];
    let mut said = Vec::new();
    for (what, path) in places {
        let Some(disk) = Disk::of(path).filter(|disk| disk.free < ENOUGH && !said.contains(&disk.device)) else {
            continue;
        };
        said.push(disk.device);
        // What is kept on another disk gives no room back on this one.
        let kept = Disk::of(&chains).filter(|of_chains| of_chains.device == disk.device);
        let kept = kept.map_or(0, |_| cache::removable(&chains).bytes);
        let gives = match kept {
            0 => "`midflush clean --images` removes node images, which are made again".to_owned(),
            kept => format!(
                "`midflush clean --chains` gives back {} of built chains, `--images` node images; both are made again",
                words::bytes(kept)
            ),
        };
        super::tell(format_args!("note: {} free for {what} in {}; {gives}", words::bytes(disk.free), path.display()));
    }
}

/// What a folder lies on, or will.
struct Disk {
    device: u64,
    free: u64,
}

impl Disk {
    fn of(path: &Path) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        let there = path.ancestors().find(|folder| folder.exists())?;
        // What is no disk, such as `/proc`, has no room at all.
        let room = rustix::fs::statvfs(there).ok().filter(|room| room.f_blocks > 0)?;
        Some(Self { device: there.metadata().ok()?.dev(), free: room.f_bavail.saturating_mul(room.f_frsize) })
    }
}
