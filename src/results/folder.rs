//! One run's folder, from the side that writes it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{ResultsError, ResultsErrorKind, TIMELINE, TimelineWriter, owner};

/// A JSON document of a run folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// The plan.
    Plan,
    /// What only the machine knows: addresses, ports, folders.
    Binding,
    /// What the judge concluded: the object that `run --json` prints.
    Verdict,
}

impl Document {
    /// Its file name.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Plan => "plan.json",
            Self::Binding => "binding.json",
            Self::Verdict => "verdict.json",
        }
    }
}

/// A file that takes up space while the run goes on, so that its end can be written when the disk is full.
const RESERVE: &str = ".reserve";
/// Bytes in it.
const RESERVED: u64 = 256 << 10;

/// How much of the space is given back that a run holds for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// For the last records of the timeline.
    Half,
    /// For the verdict.
    All,
}

/// A run folder that this process owns until it drops this value.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    _owner: File,
}

impl RunFolder {
    /// Makes `RESULTS/RUN` and takes ownership of it. Fails when the folder exists, or when `run` is no plain file name
    /// (letters, digits, `.`, `_`, `-`, not starting with `.`).
    pub fn create(results: &Path, run: &str) -> Result<Self, ResultsError> {
        let path = results.join(run);
        plain_name(run).map_err(|kind| ResultsError::new("create", &path, kind))?;
        fs::create_dir_all(results).map_err(ResultsError::at("create", results))?;
        fs::create_dir(&path).map_err(ResultsError::at("create", &path))?;
        let path = path.canonicalize().map_err(ResultsError::at("find", &path))?;
        let owner = owner::take(&path)?;
        let folder = Self { path, _owner: owner };
        let bytes = vec![0; usize::try_from(RESERVED).unwrap_or_default()];
        // Nothing has happened yet: a disk that is full now leaves no folder behind.
        replace(&folder.path.join(RESERVE), &bytes).inspect_err(|_| drop(fs::remove_dir_all(&folder.path)))?;
        Ok(folder)
    }

    /// Gives back space that was held for a full disk: half of it for the last records of a timeline that does not fit any more,
    /// the rest for the verdict.
    pub fn release(&self, how: Release) {
        let path = self.path.join(RESERVE);
        // What cannot be given back is no reason to stop: the write that needs it tells more.
        match how {
            Release::Half => drop(File::options().write(true).open(path).and_then(|file| file.set_len(RESERVED / 2))),
            Release::All => drop(fs::remove_file(path)),
        }
    }

    /// The folder, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `topology.yaml`.
    pub fn write_topology(&self, yaml: &str) -> Result<(), ResultsError> {
        replace(&self.path.join("topology.yaml"), yaml.as_bytes())
    }

    /// Writes a document, whole or not at all.
    pub fn write(&self, document: Document, value: &impl Serialize) -> Result<(), ResultsError> {
        let path = self.path.join(document.file_name());
        let mut bytes = serde_json::to_vec_pretty(value).map_err(ResultsError::at("write", &path))?;
        bytes.push(b'\n');
        replace(&path, &bytes)
    }

    /// Starts the timeline. Fails when there is one.
    pub fn timeline(&self) -> Result<TimelineWriter, ResultsError> {
        TimelineWriter::create(&self.path.join(TIMELINE))
    }

    /// Where the captured output of one start goes: `logs/NODE/start-N.log`, its folder made. Starts count from 1.
    pub fn log_path(&self, node: &str, start: u32) -> Result<PathBuf, ResultsError> {
        let folder = self.path.join("logs").join(node);
        plain_name(node).map_err(|kind| ResultsError::new("create", &folder, kind))?;
        fs::create_dir_all(&folder).map_err(ResultsError::at("create", &folder))?;
        Ok(folder.join(format!("start-{start}.log")))
    }

    /// Writes the captured output of one start, whole or not at all.
    pub fn write_log(&self, node: &str, start: u32, bytes: &[u8]) -> Result<(), ResultsError> {
        replace(&self.log_path(node, start)?, bytes)
    }
}

/// Names come from topologies and go into paths and addresses of the page.
fn plain_name(name: &str) -> Result<(), ResultsErrorKind> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.starts_with('.') || name.len() > 128 || !name.chars().all(plain) {
        let rule = "use letters, digits, `.`, `_` and `-`, at most 128, the first not a `.`";
        return Err(ResultsErrorKind::Refused(format!("`{name}` cannot be a file name; {rule}")));
    }
    Ok(())
}

/// Writes beside the file and renames, so that a reader sees the old or the new contents, never a part.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = File::create(&partial).and_then(|mut file| file.write_all(bytes));
    if let Err(error) = written.and_then(|()| fs::rename(&partial, path)) {
        // The first error is the one that helps; a left-over `.partial` is overwritten by the next try.
        let _ = fs::remove_file(&partial);
        return Err(ResultsError::new("write", path, error));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_holds_what_was_written_and_nothing_half_written() {
        let results = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&results.path().join("below/it"), "r1").unwrap();
        folder.write_topology("name: quickstart\n").unwrap();
        folder.write(Document::Plan, &serde_json::json!({"seed": 7})).unwrap();
        folder.write(Document::Plan, &serde_json::json!({"seed": 8})).unwrap();
        folder.write_log("val-1", 2, b"started\n").unwrap();

        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("topology.yaml"), "name: quickstart\n");
        assert_eq!(read("plan.json"), "{\n  \"seed\": 8\n}\n");
        assert_eq!(read("logs/val-1/start-2.log"), "started\n");
        folder.release(Release::Half);
        assert_eq!(fs::metadata(folder.path().join(RESERVE)).unwrap().len(), RESERVED / 2);
        folder.release(Release::All);
        assert!(!folder.path().join(RESERVE).exists());
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(names.iter().all(|n| !n.to_string_lossy().ends_with(".partial")), "{names:?}");
    }

    #[test]
    fn a_run_is_never_written_over() {
        let results = tempfile::tempdir().unwrap();
        let _first = RunFolder::create(results.path(), "r1").unwrap();
        let error = RunFolder::create(results.path(), "r1").unwrap_err();
        assert!(error.to_string().starts_with("create `"), "{error}");
    }

    #[test]
    fn names_that_would_leave_the_folder_are_refused() {
        let results = tempfile::tempdir().unwrap();
        for name in ["", "..", "../x", "a/b", ".hidden", "a b", "<script>"] {
            assert!(RunFolder::create(results.path(), name).is_err(), "{name}");
        }
        let folder = RunFolder::create(results.path(), "r1").unwrap();
        assert!(folder.write_log("../val-1", 1, b"").is_err());
    }
}
