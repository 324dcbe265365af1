//! A bench for a pull request: the rounds in the columns that people post by hand, then means and ratios.

use std::fmt::Write as _;

use super::ratio_words;
use crate::bench::result::{BenchResult, CellResult};

/// Rounds shown one by one; a longer list is cut, and the mean has them all.
const ROWS_MAX: usize = 120;

/// The whole report.
pub fn markdown(result: &BenchResult) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "### Bench `{}`\n", text(&result.name));
    verdicts(&mut out, result);
    means(&mut out, result);
    rounds(&mut out, result);
    spent(&mut out, result);
    setup(&mut out, result);
    out
}

/// What comes from files and may hold anything, inside a table.
fn text(words: &str) -> String {
    words.replace('|', "\\|").replace('`', "'").replace(['\n', '\r'], " ").replace('<', "&lt;")
}

fn verdicts(out: &mut String, result: &BenchResult) {
    for ratio in &result.ratios {
        let (a, b) = (text(&ratio.a), text(&ratio.b));
        let why = if ratio.why.is_empty() { String::new() } else { format!(" ({})", text(&ratio.why)) };
        let _ = writeln!(out, "* **{a}** / **{b}**: {}, {}{why}", ratio_words(ratio.ratio), ratio.verdict);
    }
    if let Some(floor) = result.floor {
        let _ = writeln!(out, "* noise floor, one cell against itself: [{:.3}, {:.3}]", floor.lo, floor.hi);
    }
    for knee in &result.knees {
        let _ = writeln!(out, "* {}", text(knee));
    }
    for gate in &result.gates {
        let word = match gate.holds {
            Some(true) => "holds",
            Some(false) => "**fails**",
            None => "**cannot be told**",
        };
        let _ = writeln!(out, "* required: {}: {word} ({})", text(&gate.what), text(&gate.why));
    }
    out.push('\n');
}

fn means(out: &mut String, result: &BenchResult) {
    out.push_str(
        "| build | blocks/s | 95 % | median | ms/block | syncs/block | rounds |\n|---|---|---|---|---|---|---|\n",
    );
    for cell in &result.cells {
        let label = text(&cell.label());
        let Some((rate, time)) = cell.blocks_per_s.zip(cell.ms_per_block) else {
            let _ = writeln!(out, "| {label} | | | | | | 0 |");
            continue;
        };
        let syncs = cell.all_syncs_per_block();
        let (mean, lo, hi, median) = (rate.mean.value, rate.mean.lo, rate.mean.hi, rate.median);
        let (ms, rounds) = (time.mean.value, cell.counted().len());
        let _ = writeln!(
            out,
            "| {label} | {mean:.1} | {lo:.1} to {hi:.1} | {median:.1} | {ms:.3} | {syncs:.2} | {rounds} |"
        );
    }
    out.push('\n');
}

fn rounds(out: &mut String, result: &BenchResult) {
    let mut rows: Vec<(u32, u32, usize, usize)> = Vec::new();
    for (at, cell) in result.cells.iter().enumerate() {
        rows.extend(cell.rounds.iter().enumerate().map(|(number, round)| (round.round, round.place, at, number)));
    }
    // Voided rounds keep their number, so that the order of measuring within one is by what was first.
    rows.sort_by_key(|(round, place, _, number)| (*round, *number, *place));
    let _ = writeln!(out, "<details><summary>{} rounds, {} voided</summary>\n", result.rounds, result.voided);
    out.push_str("| round | build | heights | blocks/s | ms/block | load |\n|---|---|---|---|---|---|\n");
    for (round, _, at, number) in rows.iter().take(ROWS_MAX) {
        let cell = &result.cells[*at];
        let of = &cell.rounds[*number];
        let (rate, ms) = (of.rate.blocks_per_s(), of.rate.ms_per_block());
        let voided = of.voided.as_ref().map(|why| format!(" (voided: {})", text(why))).unwrap_or_default();
        let label = text(&cell.label());
        let _ = writeln!(
            out,
            "| {round}{voided} | {label} | {} to {} | {rate:.1} | {ms:.3} | {:.2} |",
            of.rate.from, of.rate.to, of.load1
        );
    }
    if rows.len() > ROWS_MAX {
        let _ = writeln!(out, "\n{} more rows are in the stored bench.", rows.len() - ROWS_MAX);
    }
    out.push_str("\n</details>\n\n");
}

fn spent(out: &mut String, result: &BenchResult) {
    out.push_str("<details><summary>where the time goes, ms/block</summary>\n\n");
    out.push_str("| build | CPU | in syncs | stages |\n|---|---|---|---|\n");
    for cell in &result.cells {
        let stages = stages(cell);
        let syncs = cell.sync_ms_per_block();
        let _ = writeln!(out, "| {} | {:.3} | {syncs:.3} | {} |", text(&cell.label()), cell.spent.cpu, text(&stages));
    }
    out.push_str("\n</details>\n\n");
}

/// A cell's stages, the longest first.
fn stages(cell: &CellResult) -> String {
    let mut stages: Vec<(&String, &f64)> = cell.spent.stages.iter().filter(|(_, ms)| **ms >= 0.0005).collect();
    stages.sort_by(|a, b| b.1.total_cmp(a.1));
    stages.iter().map(|(stage, ms)| format!("{stage} {ms:.3}")).collect::<Vec<_>>().join(", ")
}

fn setup(out: &mut String, result: &BenchResult) {
    let setup = &result.setup;
    let _ = writeln!(
        out,
        "{} × {}, kernel {}, engine {}, midflush {}, {}; a sync of {} takes {} µs (p50). Seed {}, `{}`",
        setup.cpus,
        text(&setup.cpu),
        text(&setup.kernel),
        text(&setup.engine),
        text(&setup.midflush),
        text(&setup.fixture),
        text(&setup.disk.filesystem),
        setup.disk.p50_us,
        result.seed,
        text(&result.again),
    );
    for note in &result.notes {
        let _ = writeln!(out, "\n_{}_", text(note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::conclude::conclude;
    use crate::bench::sample;

    #[test]
    fn a_report_for_a_pull_request() {
        let mut twin = sample::cell("base", &[], &sample::rates(100.0, 3));
        twin.twin = true;
        let mut pr = sample::cell("pr", &[], &sample::rates(120.0, 1));
        pr.rounds[2].voided = Some("load 9.0 is above 4".to_owned());
        let mut result = sample::result(vec![sample::cell("base", &[], &sample::rates(100.0, 0)), twin, pr]);
        conclude(&mut result, &[]);
        insta::assert_snapshot!(markdown(&result));
    }

    #[test]
    fn nothing_from_a_file_breaks_out_of_a_table() {
        assert_eq!(text("a|b`c\n<script>"), "a\\|b'c &lt;script>");
    }
}
