//! A bench as JUnit: one case a gate, and one a cell, for pipelines that read nothing else.

use std::fmt::Write as _;

use crate::bench::result::BenchResult;

/// The document.
pub fn junit(result: &BenchResult) -> String {
    let mut cases = String::new();
    let (mut failures, mut errors) = (0, 0);
    for gate in &result.gates {
        let (name, why) = (escaped(&gate.what), escaped(&gate.why));
        let inside = match gate.holds {
            Some(true) => String::new(),
            Some(false) => {
                failures += 1;
                format!("<failure message=\"{why}\"/>")
            }
            None => {
                errors += 1;
                format!("<error message=\"cannot be told: {why}\"/>")
            }
        };
        let _ = writeln!(cases, "  <testcase classname=\"gates\" name=\"{name}\">{inside}</testcase>");
    }
    for cell in &result.cells {
        let name = escaped(&cell.label());
        let why = match (&cell.inconclusive, cell.blocks_per_s) {
            (Some(why), _) => Some(why.clone()),
            (None, None) => Some("no round counts".to_owned()),
            (None, Some(_)) => None,
        };
        let seconds: f64 = cell.rounds.iter().map(|round| round.rate.to_us as f64 / 1e6).sum();
        let inside = why.map_or_else(
            || {
                let rate = cell.blocks_per_s.map_or(0.0, |of| of.mean.value);
                format!("<system-out>{rate:.1} blocks/s</system-out>")
            },
            |why| {
                errors += 1;
                format!("<error message=\"inconclusive: {}\"/>", escaped(&why))
            },
        );
        let _ = writeln!(
            cases,
            "  <testcase classname=\"cells\" name=\"{name}\" time=\"{seconds:.3}\">{inside}</testcase>"
        );
    }
    let (name, tests) = (escaped(&result.name), result.gates.len() + result.cells.len());
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"midflush bench {name}\" tests=\"{tests}\" \
         failures=\"{failures}\" errors=\"{errors}\" timestamp=\"{}\">\n{cases}</testsuite>\n",
        escaped(&result.started)
    )
}

/// Text inside XML; what XML cannot hold at all is left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(' '),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::conclude::conclude;
    use crate::bench::sample;
    use crate::topology::bench::{Gate, GateOf};

    #[test]
    fn gates_and_cells_are_cases() {
        let mut pr = sample::cell("pr", &[], &sample::rates(80.0, 1));
        pr.inconclusive = Some("asked 4 ms & got <9>".to_owned());
        let mut result = sample::result(vec![
            sample::cell("base", &[], &sample::rates(100.0, 0)),
            sample::cell("old", &[], &sample::rates(80.0, 2)),
            pr,
        ]);
        let gate = |a: &str, at_least| Gate {
            of: GateOf::Ratio(a.to_owned(), "base".to_owned()),
            at_least: Some(at_least),
            at_most: None,
        };
        conclude(&mut result, &[gate("old", 0.5), gate("old", 0.95), gate("pr", 0.95)]);
        insta::assert_snapshot!(junit(&result));
    }
}
