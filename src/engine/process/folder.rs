//! The folder of a run: `${TMPDIR:-/tmp}/midflush-UID/RUN/NODE/{home,token,agent.log}` with `owner.json` beside the
//! nodes. It appears complete, with its owner inside, or not at all, so that nobody can take a run that is just
//! starting for a leftover.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::engine::owner::{Owner, state_of_label};
use crate::engine::{EngineError, OwnerState};

const OWNER_FILE: &str = "owner.json";
/// Prefix of a folder that is still being made or being removed.
const UNFINISHED: &str = ".new-";

/// The folder below which all runs of this user live.
#[derive(Clone, Debug)]
pub(super) struct Base(PathBuf);

impl Base {
    /// The usual place. Nothing is created yet.
    pub(super) fn usual() -> Self {
        let uid = rustix::process::getuid().as_raw();
        Self(std::env::temp_dir().join(format!("midflush-{uid}")))
    }

    /// The path of a run's folder.
    pub(super) fn run(&self, run: &str) -> PathBuf {
        self.0.join(run)
    }

    /// The run that a path below this folder belongs to.
    pub(super) fn run_of(&self, path: &Path) -> Option<String> {
        let first = path.strip_prefix(&self.0).ok()?.components().next()?;
        first.as_os_str().to_str().map(str::to_owned)
    }

    /// Makes the folder of a run with its owner and one folder a node.
    pub(super) fn create(&self, run: &str, nodes: &[String], token: &str) -> Result<PathBuf, EngineError> {
        self.create_base()?;
        let unfinished = self.0.join(format!("{UNFINISHED}{run}-{}", std::process::id()));
        let failed = |e| EngineError::new(format!("make the run's folder {}", unfinished.display())).because(e);
        let made = fill(&unfinished, nodes, token).map_err(failed).and_then(|()| self.publish(&unfinished, run));
        if made.is_err() {
            // Best effort: the first error is the one to tell, and clean finds the folder by its owner.
            fs::remove_dir_all(&unfinished).ok();
        }
        made
    }

    fn publish(&self, unfinished: &Path, run: &str) -> Result<PathBuf, EngineError> {
        let path = self.run(run);
        fs::rename(unfinished, &path).map_err(|e| match e.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                EngineError::new(format!("start run {run}: its folder {} is there already", path.display()))
                    .mend("choose another run id or run `midflush clean`")
            }
            _ => EngineError::new(format!("name the run's folder {}", path.display())).because(e),
        })?;
        Ok(path)
    }

    /// Others can write to the temporary folder too, so ours must be a real folder, of this user, closed to others.
    fn create_base(&self) -> Result<(), EngineError> {
        let base = &self.0;
        let failed = |e| EngineError::new(format!("make the folder {}", base.display())).because(e);
        match DirBuilder::new().recursive(false).mode(0o700).create(base) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
            _ => {}
        }
        let data = fs::symlink_metadata(base).map_err(failed)?;
        let ours = data.is_dir() && data.uid() == rustix::process::getuid().as_raw() && data.mode() & 0o077 == 0;
        if ours {
            return Ok(());
        }
        Err(EngineError::new(format!("use {}: it is not a folder of this user alone", base.display()))
            .mend("remove it, or set TMPDIR to a folder of your own"))
    }

    /// Every folder of a run: its path, run and owner.
    pub(super) fn list(&self) -> Vec<(PathBuf, String, OwnerState)> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let owner = read_owner(&path)?;
                let name = path.file_name()?.to_str()?.to_owned();
                Some((path, run_of_name(&name), owner))
            })
            .collect();
        found.sort();
        found
    }
}

/// The owner's state as the folder says. `None` is a folder that carries no owner and so is not ours to touch.
fn read_owner(path: &Path) -> Option<OwnerState> {
    let label = fs::read_to_string(path.join(OWNER_FILE)).ok()?;
    Some(state_of_label(Some(&label), false))
}

/// The run of a folder, also of one left unfinished by a controller killed while it made it.
fn run_of_name(name: &str) -> String {
    match name.strip_prefix(UNFINISHED).and_then(|rest| rest.rsplit_once('-')) {
        Some((run, _pid)) => run.to_owned(),
        None => name.to_owned(),
    }
}

fn fill(folder: &Path, nodes: &[String], token: &str) -> io::Result<()> {
    private_folder(folder)?;
    fs::write(folder.join(OWNER_FILE), Owner::this().label())?;
    for node in nodes {
        private_folder(&folder.join(node))?;
        private_folder(&folder.join(node).join("home"))?;
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(node).join("token"))?;
        file.write_all(token.as_bytes())?;
    }
    Ok(())
}

fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> (tempfile::TempDir, Base) {
        let dir = tempfile::tempdir().unwrap();
        let base = Base(dir.path().join("midflush-test"));
        (dir, base)
    }

    #[test]
    fn a_folder_appears_with_owner_and_private_token() {
        let (_dir, base) = base();
        let path = base.create("r1", &["a".to_owned()], "secret").unwrap();
        assert_eq!(base.list(), [(path.clone(), "r1".to_owned(), OwnerState::Alive)]);
        let token = path.join("a/token");
        assert_eq!(fs::read_to_string(&token).unwrap(), "secret");
        assert_eq!(fs::metadata(&token).unwrap().mode() & 0o777, 0o600);
        assert_eq!(base.run_of(&path.join("a/home")), Some("r1".to_owned()));
        assert_eq!(base.run_of(Path::new("/")), None);
    }

    #[test]
    fn a_run_is_never_started_in_the_folder_of_another() {
        let (_dir, base) = base();
        base.create("r1", &[], "t").unwrap();
        let error = base.create("r1", &[], "t").unwrap_err().to_string();
        assert!(error.contains("there already"), "{error}");
        assert_eq!(base.list().len(), 1, "nothing unfinished is left");
    }

    #[test]
    fn folders_without_an_owner_are_not_ours_and_unfinished_ones_keep_their_run() {
        let (_dir, base) = base();
        base.create("r1", &[], "t").unwrap();
        fs::create_dir(base.run("somebody")).unwrap();
        fill(&base.run(".new-r-2-77"), &[], "t").unwrap();
        let runs: Vec<_> = base.list().into_iter().map(|(_, run, _)| run).collect();
        assert_eq!(runs, ["r-2", "r1"]);
    }

    #[test]
    fn a_base_that_others_may_write_is_refused() {
        let (_dir, base) = base();
        DirBuilder::new().mode(0o777).create(&base.0).unwrap();
        fs::set_permissions(&base.0, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(base.create("r1", &[], "t").unwrap_err().mend.is_some());
    }
}
