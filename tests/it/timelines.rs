//! Timelines of real runs, broken off at every line and in the middle of lines, as a controller that was killed leaves them:
//! what did not come about so far is no finding, and what has happened for good stays one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use midflush::judge::{Judgement, Outcome, Verdict, judge};
use midflush::timeline::{Record, read_all};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// A timeline, and the only finding that any beginning of it may have.
const TIMELINES: [(&str, Option<Verdict>); 7] = [
    ("quickstart", None),
    ("timelines/four", None),
    ("timelines/silent-stall", None),
    ("timelines/too-slow", None),
    ("timelines/app-hash-order", Some(Verdict::Diverged)),
    ("timelines/switch-without-flush", Some(Verdict::HeightRegressed)),
    ("timelines/panic-second-restart", Some(Verdict::PanicOnRestart)),
];

fn text(name: &str) -> Vec<u8> {
    fs::read(folder().join(format!("{name}.ndjson"))).expect("a timeline")
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// What a judgement of a beginning may not say.
fn wrong(judgement: &Judgement, allowed: Option<Verdict>) -> Option<String> {
    let findings = judgement.findings.iter().filter(|f| f.verdict.outcome() == Outcome::Finding);
    let other: Vec<String> =
        findings.filter(|f| Some(f.verdict) != allowed).map(|f| format!("{}: {}", f.verdict, f.detail)).collect();
    if !other.is_empty() {
        return Some(other.join("; "));
    }
    (judgement.outcome() == Outcome::Converged).then(|| "a pass".to_owned())
}

#[test]
fn a_beginning_of_a_run_is_no_finding_about_what_may_come_yet() {
    let mut problems = Vec::new();
    for (name, allowed) in TIMELINES {
        let text = text(name);
        let records: Vec<Record> = read_all(text.as_slice()).expect("records").0;
        assert!(records.len() > 100, "{name}: only {} records", records.len());
        // Every line of the small ones.
        let step = records.len().div_ceil(400);
        for end in (1..records.len()).step_by(step) {
            if let Some(wrong) = wrong(&judge(&records[..end]), allowed) {
                problems.push(format!("{name} after line {end}: {wrong}"));
            }
        }
    }
    assert!(problems.is_empty(), "{} beginnings:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn whole_timelines_have_the_verdicts_of_their_runs() {
    for (name, verdict) in [
        ("quickstart", Verdict::Converged),
        ("timelines/four", Verdict::Converged),
        ("timelines/silent-stall", Verdict::Stuck),
        ("timelines/too-slow", Verdict::NeverCatchesUp),
        ("timelines/app-hash-order", Verdict::Diverged),
        ("timelines/switch-without-flush", Verdict::HeightRegressed),
        ("timelines/panic-second-restart", Verdict::ConvergedSlow),
    ] {
        let judgement = judge(&read_all(text(name).as_slice()).expect("records").0);
        assert_eq!((judgement.verdict, judgement.outcome()), (verdict, Outcome::Converged), "{name}");
    }
}

#[test]
fn a_line_that_breaks_off_in_its_middle_is_left_out() {
    for (name, allowed) in TIMELINES {
        let text = text(name);
        let lines = lines(&text);
        let mut before = 0;
        for (number, line) in lines.iter().enumerate() {
            if number % 23 == 0 {
                for cut in [1, line.len() / 2, line.len() - 2] {
                    let (records, torn) = read_all(&text[..before + cut])
                        .unwrap_or_else(|error| panic!("{name}, line {}, {cut} bytes: {error}", number + 1));
                    assert_eq!((records.len(), torn.map(|t| t.bytes)), (number, Some(cut)), "{name}");
                    assert_eq!(wrong(&judge(&records), allowed), None, "{name}, line {}", number + 1);
                }
            }
            before += line.len();
        }
    }
}

#[test]
fn the_command_line_calls_a_broken_off_timeline_inconclusive() {
    let text = text("timelines/silent-stall");
    let ends: Vec<usize> = lines(&text)
        .iter()
        .scan(0, |sum, line| {
            *sum += line.len();
            Some(*sum)
        })
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    for bytes in [20, ends[0], ends[60] + 30, ends[ends.len() - 2]] {
        let file = folder.path().join("timeline.ndjson");
        fs::write(&file, &text[..bytes]).expect("written");
        let output =
            Command::new(env!("CARGO_BIN_EXE_midflush")).arg("judge").arg(&file).output().expect("midflush runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{bytes} bytes: {said}");
        assert!(said.starts_with("INCONCLUSIVE"), "{bytes} bytes: {said}");
    }
}
