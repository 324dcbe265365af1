//! The end of a run as Markdown, for a pull request or the summary of a job. Tables in the GitHub form.

use std::fmt::Write as _;

use crate::judge::{FaultRow, Finding, Judgement, NodeRow};

use super::state::LiveState;
use super::syncs::SyncRow;
use super::words;

/// Most lines of one table.
const ROWS_MAX: usize = 50;

/// Everything about a run. `state` and `syncs` come from the same records as `judgement`.
pub fn render(state: &LiveState, syncs: &[SyncRow], judgement: &Judgement) -> String {
    let as_expected = judgement.expected.as_ref().is_some_and(|expected| expected.met);
    let expected = if as_expected { ", as expected" } else { "" };
    let mut out = format!("## {}: {}{expected}\n\n", text(&judgement.topology), judgement.verdict);
    let proven = judgement.faults.iter().filter(|f| f.proven).count();
    let _ = writeln!(
        out,
        "{} on {}, seed {}, {}. {proven} of {} proven, {} compared, {}.",
        words::counted(judgement.nodes.len() as u64, "node"),
        text(&judgement.engine),
        judgement.seed,
        words::duration(state.at_us),
        words::counted(judgement.faults.len() as u64, "fault"),
        words::counted(judgement.heights_compared, "height"),
        words::counted(judgement.distinct_app_hashes, "distinct app hash"),
    );
    for finding in &judgement.findings {
        render_finding(&mut out, finding);
    }
    let faults: Vec<_> = judgement.faults.iter().map(fault).collect();
    let head = ["fault", "node", "where", "left app/state/store", "down", "replayed", "caught up", "proven"];
    table(&mut out, "Faults", &head, &faults);
    let nodes: Vec<_> = judgement.nodes.iter().map(node).collect();
    table(&mut out, "Nodes", &["node", "last height", "app/state/store", "starts", "last app hash", "verdict"], &nodes);
    let rows: Vec<_> = syncs.iter().map(sync).collect();
    let head = ["group", "mode", "tier", "store", "blocks", "syncs a block", "syncs a flush", "p50", "p99"];
    table(&mut out, "Syncs", &head, &rows);
    if let Some(started) = &state.started {
        let _ = write!(out, "\nRun it again:\n\n    {}\n", words::clean(&started.again));
    }
    out
}

/// What others wrote, with nothing in it that Markdown or HTML would take for its own.
fn text(from: &str) -> String {
    let mut safe = String::with_capacity(from.len());
    for c in words::clean(from).chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '#' | '\\' | '~' | '!' | '@' => {
                safe.push('\\');
                safe.push(c);
            }
            c => safe.push(c),
        }
    }
    safe
}

fn render_finding(out: &mut String, finding: &Finding) {
    let node = finding.node.as_deref().map(|n| format!(" {}", text(n))).unwrap_or_default();
    let height = finding.height.map(|h| format!(" at height {h}")).unwrap_or_default();
    let _ = write!(out, "\n**{}**{node}{height}: {}", text(&finding.verdict.to_string()), text(&finding.detail));
    for (label, said) in [("Why", &finding.why), ("Next", &finding.next)] {
        if !said.is_empty() {
            let _ = write!(out, "  \n{label}: {}", text(said));
        }
    }
    out.push('\n');
}

fn table<const N: usize>(out: &mut String, title: &str, head: &[&str; N], rows: &[[String; N]]) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(out, "\n### {title}\n\n| {} |\n|{}\n", head.join(" | "), " --- |".repeat(N));
    for row in rows.iter().take(ROWS_MAX) {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    if rows.len() > ROWS_MAX {
        let _ = write!(out, "\nand {} more\n", rows.len() - ROWS_MAX);
    }
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

fn fault(row: &FaultRow) -> [String; 8] {
    let name = if row.occurrence > 1 { format!("{} {}", row.name, row.occurrence) } else { row.name.clone() };
    let place = row.landed.as_ref().map_or_else(|| format!("not landed; {}", row.when), words::landed);
    let ms = |ms: Option<u64>| or_dash(ms.map(|ms| words::duration(ms * 1000)));
    [
        text(&name),
        text(&row.node),
        text(&place),
        or_dash(row.after),
        ms(row.down_ms),
        or_dash(row.replayed),
        ms(row.caught_up_ms),
        row.why_unproven.as_ref().map_or_else(|| "yes".to_owned(), |why| format!("**no**: {}", text(why))),
    ]
}

fn node(row: &NodeRow) -> [String; 6] {
    [
        text(&row.name),
        or_dash(row.height),
        row.heights.to_string(),
        row.starts.to_string(),
        row.app_hash.as_deref().unwrap_or("-").chars().take(12).collect(),
        text(&row.verdict.to_string()),
    ]
}

fn sync(row: &SyncRow) -> [String; 9] {
    let timed = |us: u64| if row.timed == 0 { "-".to_owned() } else { words::duration(us) };
    [
        text(&row.node),
        words::mode(row.mode).to_owned(),
        words::tier(row.tier).to_owned(),
        text(&row.store),
        row.blocks.to_string(),
        row.per_block.to_string(),
        row.per_flush.to_string(),
        timed(row.p50_us),
        timed(row.p99_us),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::judge;
    use crate::report::sample;
    use crate::report::syncs::Syncs;

    #[test]
    fn the_end_of_a_run_as_markdown() {
        let records = sample::records();
        let syncs = Syncs::of(&records).group_rows();
        insta::assert_snapshot!(render(&LiveState::of(&records), &syncs, &judge(&records)));
    }

    #[test]
    fn what_a_node_wrote_stays_text() {
        assert_eq!(text("<b>|a_b|\n[x](y)"), "&lt;b&gt;\\|a\\_b\\| \\[x\\](y)");
    }
}
