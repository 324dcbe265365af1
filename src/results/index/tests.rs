//! The index against folders as runs leave them.

use super::*;
use crate::results::{RunFolder, RunState, TimelineWriter};
use crate::timeline::{Event, Record, RunStarted, VERSION};

fn started(run: &str, minute: u32) -> Event {
    Event::RunStarted(RunStarted {
        version: VERSION,
        run: run.to_owned(),
        topology: "quickstart".to_owned(),
        seed: 7,
        engine: "process".to_owned(),
        midflush: "0.1.0".to_owned(),
        kernel: "6.18".to_owned(),
        cpus: 2,
        started: format!("2026-11-30T18:{minute:02}:00Z"),
        again: "midflush run topologies/quickstart.yaml --seed 7".to_owned(),
        builds: BTreeMap::new(),
    })
}

fn append(writer: &mut TimelineWriter, event: Event) {
    let seq = writer.next_seq();
    writer.append(&Record { seq, at_us: seq * 1_000_000, node: None, event }).unwrap();
}

/// A run as it is while its controller lives.
fn begin(results: &Path, run: &str, minute: u32) -> (RunFolder, TimelineWriter) {
    let folder = RunFolder::create(results, run).unwrap();
    let mut writer = folder.timeline().unwrap();
    append(&mut writer, started(run, minute));
    (folder, writer)
}

fn end((folder, mut writer): (RunFolder, TimelineWriter), verdict: &str) {
    append(&mut writer, Event::RunEnded);
    let verdict = serde_json::json!({
        "version": 1, "verdict": verdict,
        "findings": [{"verdict": verdict, "detail": "val-1 differs"}],
        "faults": [{"proven": true}, {"proven": false}],
    });
    folder.write(Document::Verdict, &verdict).unwrap();
}

fn list(results: &Path) -> Vec<(String, RunState, Option<String>)> {
    let runs = Index::open(results).unwrap().runs().unwrap();
    runs.into_iter().map(|r| (r.run, r.state, r.verdict)).collect()
}

#[test]
fn runs_are_listed_newest_first_with_their_state() {
    let results = tempfile::tempdir().unwrap();
    end(begin(results.path(), "a", 1), "CONVERGED");
    let live = begin(results.path(), "b", 3);
    drop(begin(results.path(), "c", 2));
    let mut stopped = begin(results.path(), "d", 0);
    append(&mut stopped.1, Event::Interrupted);
    end(stopped, "INCONCLUSIVE");

    let converged = Some("CONVERGED".to_owned());
    let before = [
        ("b".to_owned(), RunState::Running, None),
        ("c".to_owned(), RunState::ControllerGone, None),
        ("a".to_owned(), RunState::Ended, converged.clone()),
        ("d".to_owned(), RunState::Interrupted, Some("INCONCLUSIVE".to_owned())),
    ];
    assert_eq!(list(results.path()), before);
    assert_eq!(list(results.path()), before, "from the rows as from the folders");

    end(live, "CONVERGED");
    assert_eq!(list(results.path())[0], ("b".to_owned(), RunState::Ended, converged));
}

#[test]
fn a_summary_says_what_the_run_was() {
    let results = tempfile::tempdir().unwrap();
    end(begin(results.path(), "a", 1), "DIVERGED");
    let run = Index::open(results.path()).unwrap().find("last").unwrap();
    assert_eq!((run.topology.as_str(), run.seed, run.engine.as_str()), ("quickstart", 7, "process"));
    assert_eq!((run.faults_proven, run.duration_ms), (1, 1000));
    assert_eq!(run.why.as_deref(), Some("val-1 differs"));
}

#[test]
fn a_missing_stale_or_damaged_index_is_made_again() {
    let results = tempfile::tempdir().unwrap();
    end(begin(results.path(), "a", 1), "CONVERGED");
    let expected = list(results.path());
    let index = results.path().join(FILE);
    assert!(index.is_file());

    fs::remove_file(&index).unwrap();
    assert_eq!(list(results.path()), expected, "missing");
    fs::write(&index, b"this was never a database, only some text that is long enough to be one").unwrap();
    assert_eq!(list(results.path()), expected, "damaged");
    assert!(fs::read(&index).unwrap().starts_with(b"SQLite format 3"), "and mended on disk");

    Connection::open(&index).unwrap().execute_batch("DROP TABLE runs; PRAGMA user_version = 99;").unwrap();
    assert_eq!(list(results.path()), expected, "of another version");
    fs::remove_dir_all(results.path().join("a")).unwrap();
    assert_eq!(list(results.path()), [], "a run that was removed");
}

#[test]
fn ids_are_found_by_prefix() {
    let results = tempfile::tempdir().unwrap();
    let mut index = Index::open(results.path()).unwrap();
    assert!(index.find("last").unwrap_err().to_string().contains("there are no runs yet"));
    end(begin(results.path(), "quick-1", 1), "CONVERGED");
    end(begin(results.path(), "quick-12", 2), "CONVERGED");
    assert_eq!(index.find("quick-1").unwrap().run, "quick-1", "the whole id wins over a prefix");
    assert_eq!(index.find("quick-12").unwrap().run, "quick-12");
    let error = index.find("quick").unwrap_err().to_string();
    assert_eq!(error, "`quick` fits several runs: quick-12, quick-1");
    assert!(index.find("nothing").unwrap_err().to_string().contains("the newest is `quick-12`"));
}

#[test]
fn processes_that_list_at_once_do_not_hurt_each_other() {
    let results = tempfile::tempdir().unwrap();
    for n in 0..20 {
        end(begin(results.path(), &format!("r{n:02}"), n), "CONVERGED");
    }
    // Each thread has its own connection, as each process would.
    let lists: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| list(results.path()))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(lists[0].len(), 20);
    assert!(lists.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_folder_that_cannot_be_read_does_not_hide_the_others() {
    let results = tempfile::tempdir().unwrap();
    end(begin(results.path(), "good", 1), "CONVERGED");
    let bad = RunFolder::create(results.path(), "bad").unwrap();
    fs::write(bad.path().join(TIMELINE), "{\"seq\":0,\"nonsense\":true}\n").unwrap();
    let runs = Index::open(results.path()).unwrap().runs().unwrap();
    assert_eq!(runs.len(), 2);
    let bad = runs.iter().find(|r| r.run == "bad").unwrap();
    assert_eq!(bad.state, RunState::Unreadable);
    assert!(bad.why.as_deref().unwrap().contains("read a record of"), "{bad:?}");
}
