//! A bench's folder: `bench.json`, everything that was measured, beside the file that it was made from.

use std::fs;
use std::path::{Path, PathBuf};

use super::BenchError;
use super::result::{BenchResult, VERSION};

/// Name of the document.
const DOCUMENT: &str = "bench.json";

/// Folder of benches below the folder of results, apart from runs.
const BENCHES: &str = "benches";

/// Makes the folder of a bench and writes what it is made from.
pub fn create(results: &Path, id: &str, resolved: &str) -> Result<PathBuf, BenchError> {
    let folder = results.join(BENCHES).join(id);
    let made = fs::create_dir_all(folder.parent().unwrap_or(results)).and_then(|()| fs::create_dir(&folder));
    made.and_then(|()| fs::write(folder.join("bench.yaml"), resolved)).map_err(failed("make the bench's folder"))?;
    Ok(folder)
}

/// Writes the result.
pub fn save(folder: &Path, result: &BenchResult) -> Result<(), BenchError> {
    let text = serde_json::to_string_pretty(result).map_err(|error| failed("write the result")(error.into()))?;
    write(folder, DOCUMENT, &(text + "\n"))
}

/// Writes another document beside it.
pub fn write(folder: &Path, name: &str, text: &str) -> Result<(), BenchError> {
    let partial = folder.join(format!("{name}.partial"));
    let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, folder.join(name)));
    written.map_err(failed("write the result"))
}

/// Reads a stored bench: its folder, or its document. An error is a sentence about what was given.
pub fn load(given: &Path) -> Result<BenchResult, String> {
    let path = if given.is_dir() { given.join(DOCUMENT) } else { given.to_owned() };
    let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let not_one = |error| format!("{} is no stored bench: {error}", path.display());
    let version = serde_json::from_str::<serde_json::Value>(&text).map_err(not_one)?;
    if version["version"] != VERSION {
        let found = &version["version"];
        return Err(format!("{} has version {found} of the format; this midflush reads {VERSION}", path.display()));
    }
    serde_json::from_str(&text).map_err(not_one)
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |source| BenchError::Machine { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::conclude::conclude;
    use crate::bench::sample;

    #[test]
    fn what_is_saved_reads_back() {
        let results = tempfile::tempdir().unwrap();
        let cells =
            vec![sample::cell("a", &[("peers", "1")], &sample::rates(100.0, 0)), sample::cell("b", &[], &[1.0])];
        let mut result = sample::result(cells);
        conclude(&mut result, &[]);
        let folder = create(results.path(), "b1", "midflush: 1\n").unwrap();
        save(&folder, &result).unwrap();
        let read = load(&folder).unwrap();
        assert_eq!(load(&folder.join(DOCUMENT)).unwrap(), read);
        // Numbers with a fraction are read back to the last digit but one.
        let rounds =
            |of: &BenchResult| of.cells.iter().map(|cell| (cell.label(), cell.rounds[0].rate)).collect::<Vec<_>>();
        assert_eq!((rounds(&read), &read.setup), (rounds(&result), &result.setup));
        assert!(create(results.path(), "b1", "").is_err(), "a bench is never written over");
    }

    #[test]
    fn anything_else_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        assert!(load(folder.path()).unwrap_err().contains("cannot read"));
        let path = folder.path().join("x.json");
        for (text, why) in
            [("{", "is no stored bench"), ("{\"version\": 9}", "version 9"), ("{\"version\": 1}", "is no stored bench")]
        {
            fs::write(&path, text).unwrap();
            assert!(load(&path).unwrap_err().contains(why), "{text}");
        }
    }
}
