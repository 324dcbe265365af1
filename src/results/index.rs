//! `index.sqlite`: one row a run, so that a list of thousands of runs opens no timeline.
//!
//! A row is used as long as the fingerprint of its folder (sizes and times of timeline and verdict) has not changed and
//! the run is over; any other is made again from the folder. So the index may be deleted, be old or be damaged at any
//! time: the next look mends it. Where the folder of results cannot be written (a read-only mount), the index lives in
//! memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rusqlite::{Connection, params};

use super::{Document, ResultsError, RunSummary, TIMELINE, owner, summarise};

/// Changes with the table: an index of another version is made anew.
const SCHEMA: i64 = 1;
const FILE: &str = "index.sqlite";

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS runs (
    run TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    started TEXT NOT NULL,
    topology TEXT NOT NULL,
    engine TEXT NOT NULL,
    state TEXT NOT NULL,
    verdict TEXT,
    summary TEXT NOT NULL
) STRICT;
PRAGMA user_version = 1;";

/// The runs below one folder of results.
#[derive(Debug)]
pub struct Index {
    results: PathBuf,
    connection: Connection,
}

/// No single run is meant.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is no such run.
    #[error("no run `{wanted}` in `{}`{}", .results.display(), .hint)]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// Where it was looked for.
        results: PathBuf,
        /// Which runs there are, in words.
        hint: String,
    },
    /// The prefix fits several runs.
    #[error("`{wanted}` fits several runs: {}", .runs.join(", "))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// Newest first.
        runs: Vec<String>,
    },
    /// The index failed.
    #[error("failed to {0}")]
    Results(#[from] ResultsError),
}

impl Index {
    /// Opens the index of `results`, made anew when it is missing, of another version or damaged. The folder need not
    /// exist: then there are no runs.
    pub fn open(results: &Path) -> Result<Self, ResultsError> {
        let path = results.join(FILE);
        let connection = match on_disk(&path) {
            Ok(connection) => connection,
            Err(error) if is_damage(&error) => match replace_damaged(results, &path) {
                Ok(connection) => connection,
                Err(error) => in_memory(&path, &error)?,
            },
            Err(error) => in_memory(&path, &error)?,
        };
        Ok(Self { results: results.to_owned(), connection })
    }

    /// The folder of results.
    pub fn results(&self) -> &Path {
        &self.results
    }

    /// All runs, newest first.
    pub fn runs(&mut self) -> Result<Vec<RunSummary>, ResultsError> {
        let folders = self.folders()?;
        let mut known = self.known()?;
        let mut runs = Vec::with_capacity(folders.len());
        let mut changed = Vec::new();
        for folder in folders {
            let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let fingerprint = fingerprint(&folder);
            match known.remove(&name) {
                // A folder of results may have been moved, or be mounted elsewhere.
                Some((old, summary)) if old == fingerprint && summary.state.is_final() => {
                    runs.push(RunSummary { folder, ..summary });
                }
                _ => {
                    let summary = summarise(&folder);
                    changed.push((fingerprint, summary.clone()));
                    runs.push(summary);
                }
            }
        }
        // The index only saves time: an answer is never refused because it could not be kept.
        if let Err(error) = self.keep(&changed, known.keys()) {
            tracing::warn!(%error, "the index of runs could not be updated");
        }
        runs.sort_by(|a, b| (start_time(b), &b.run).cmp(&(start_time(a), &a.run)));
        Ok(runs)
    }

    /// The run whose id is or begins with `wanted`; `last` is the newest.
    pub fn find(&mut self, wanted: &str) -> Result<RunSummary, FindError> {
        let runs = self.runs()?;
        let unknown =
            |hint: String| FindError::Unknown { wanted: wanted.to_owned(), results: self.results.clone(), hint };
        let Some(newest) = runs.first() else { return Err(unknown("; there are no runs yet".to_owned())) };
        if wanted == "last" {
            return Ok(newest.clone());
        }
        if let Some(exact) = runs.iter().find(|r| r.run == wanted) {
            return Ok(exact.clone());
        }
        let mut fits: Vec<_> = runs.iter().filter(|r| !wanted.is_empty() && r.run.starts_with(wanted)).collect();
        match (fits.pop(), fits.is_empty()) {
            (Some(only), true) => Ok(only.clone()),
            (None, _) => Err(unknown(format!("; the newest is `{}`", newest.run))),
            (Some(oldest), false) => {
                fits.push(oldest);
                let runs = fits.iter().map(|r| r.run.clone()).collect();
                Err(FindError::Ambiguous { wanted: wanted.to_owned(), runs })
            }
        }
    }

    /// Folders that hold a run: those with an owner.
    fn folders(&self) -> Result<Vec<PathBuf>, ResultsError> {
        let entries = match fs::read_dir(&self.results) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ResultsError::new("read the folder of results", &self.results, error)),
        };
        let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(folders.filter(|path| path.join(owner::OWNER).is_file()).collect())
    }

    fn known(&self) -> Result<BTreeMap<String, (String, RunSummary)>, ResultsError> {
        let read = || -> rusqlite::Result<Vec<(String, String, String)>> {
            let mut statement = self.connection.prepare_cached("SELECT run, fingerprint, summary FROM runs")?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
        };
        let rows = read().map_err(ResultsError::at("read", &self.results.join(FILE)))?;
        let parsed = rows.into_iter().filter_map(|(run, fingerprint, summary)| {
            // A row that does not read back is made again from its folder.
            Some((run, (fingerprint, serde_json::from_str(&summary).ok()?)))
        });
        Ok(parsed.collect())
    }

    fn keep<'a>(
        &mut self,
        changed: &[(String, RunSummary)],
        gone: impl Iterator<Item = &'a String>,
    ) -> Result<(), ResultsError> {
        let path = self.results.join(FILE);
        let failed = || ResultsError::at::<rusqlite::Error>("write", &path);
        let gone: Vec<_> = gone.collect();
        if changed.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let transaction = self.connection.transaction().map_err(failed())?;
        for (fingerprint, summary) in changed {
            let text = serde_json::to_string(summary).map_err(ResultsError::at("write", &path))?;
            let state = summary.state.words();
            let s = summary;
            transaction
                .execute(
                    "INSERT OR REPLACE INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                    params![s.run, fingerprint, s.started, s.topology, s.engine, state, s.verdict, text],
                )
                .map_err(failed())?;
        }
        for run in gone {
            transaction.execute("DELETE FROM runs WHERE run = ?1", [run]).map_err(failed())?;
        }
        transaction.commit().map_err(failed())
    }
}

fn start_time(summary: &RunSummary) -> Option<jiff::Timestamp> {
    summary.started.parse().ok()
}

/// Sizes and modification times of what a summary is made from.
fn fingerprint(folder: &Path) -> String {
    let one = |name: &str| {
        fs::metadata(folder.join(name)).map_or_else(
            |_| "-".to_owned(),
            |meta| {
                let modified = meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
                format!("{}@{}", meta.len(), modified.unwrap_or_default().as_nanos())
            },
        )
    };
    format!("{} {}", one(TIMELINE), one(Document::Verdict.file_name()))
}

fn on_disk(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    // Two processes list at once, and one waits for the other.
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    let check: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if check != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(check)));
    }
    prepare(&connection)?;
    Ok(connection)
}

/// Makes the table, dropping that of another version: rows are only copies.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version != SCHEMA {
        connection.execute_batch(&format!("BEGIN IMMEDIATE; DROP TABLE IF EXISTS runs; {TABLE} COMMIT;"))?;
    }
    Ok(())
}

fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}

/// Takes the damaged index away, under a lock, so that of two processes one mends and the other finds it mended.
fn replace_damaged(results: &Path, path: &Path) -> rusqlite::Result<Connection> {
    let lock = File::create(results.join("index.lock")).and_then(|file| file.lock().map(|()| file));
    let Ok(_lock) = lock else { return on_disk(path) };
    match on_disk(path) {
        Err(error) if is_damage(&error) => {
            tracing::warn!(path = %path.display(), %error, "the index of runs is damaged and is made anew");
            for suffix in ["", "-wal", "-shm"] {
                // What is not there need not be removed; what cannot be removed shows when the file is opened again.
                let _ = fs::remove_file(results.join(format!("{FILE}{suffix}")));
            }
            on_disk(path)
        }
        opened => opened,
    }
}

fn in_memory(path: &Path, why: &rusqlite::Error) -> Result<Connection, ResultsError> {
    tracing::debug!(path = %path.display(), error = %why, "the index of runs is kept in memory");
    let open = || {
        let connection = Connection::open_in_memory()?;
        prepare(&connection)?;
        Ok(connection)
    };
    open().map_err(ResultsError::at::<rusqlite::Error>("open an index in memory for", path))
}

#[cfg(test)]
mod tests;
