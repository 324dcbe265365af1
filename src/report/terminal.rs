//! What is printed at the end: the verdict first, then why, then the tables, then what to do next. ASCII only, apart from
//! what nodes themselves wrote.

use std::fmt::Write as _;

use crate::judge::{FaultRow, Finding, Judgement, NodeRow, Outcome, Verdict};
use crate::timeline::{Heights, Role};

use super::state::LiveState;
use super::syncs::SyncRow;
use super::words;

/// Widest line that is wrapped or cut to, in characters.
const WIDTH: usize = 116;
/// Most lines of the tables of nodes and syncs; more go to `--json` and the page.
const ROWS_MAX: usize = 40;

/// How to print.
#[derive(Clone, Debug, Default)]
pub struct Style {
    /// With ANSI colours.
    pub colour: bool,
}

/// Everything about a run, for people. `state` and `syncs` come from the same records as `judgement`.
pub fn render(state: &LiveState, syncs: &[SyncRow], judgement: &Judgement, style: &Style) -> String {
    let mut out = String::new();
    verdict(&mut out, state, judgement, style);
    for (number, finding) in judgement.findings.iter().enumerate() {
        // The first is the verdict, which stands at the top already.
        let heading = number > 0 || finding.node.is_some() || finding.height.is_some();
        render_finding(&mut out, finding, heading, style);
    }
    faults(&mut out, &judgement.faults, style);
    nodes(&mut out, state, &judgement.nodes, style);
    sync_table(&mut out, syncs, style);
    notes(&mut out, judgement);
    ending(&mut out, state, judgement);
    out
}

/// `text` in the colour that a verdict has.
fn paint(text: &str, outcome: Outcome, style: &Style) -> String {
    let code = match outcome {
        Outcome::Converged => "1;32",
        Outcome::Finding => "1;31",
        Outcome::Inconclusive | Outcome::Interrupted => "1;33",
    };
    if style.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

fn bold(text: &str, style: &Style) -> String {
    if style.colour { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
}

fn verdict(out: &mut String, state: &LiveState, judgement: &Judgement, style: &Style) {
    let name = judgement.verdict.to_string();
    let interrupted = if judgement.interrupted { " (interrupted)" } else { "" };
    let expected = match &judgement.expected {
        Some(expected) if expected.met => ", as expected".to_owned(),
        Some(expected) => format!(", expected {}", expected.finding),
        None => String::new(),
    };
    let _ = writeln!(out, "{}{expected}{interrupted}", paint(&name, judgement.outcome(), style));
    let proven = judgement.faults.iter().filter(|f| f.proven).count();
    let seen = format!(
        "{}, {}",
        words::counted(judgement.heights_compared, "height") + " compared",
        words::counted(judgement.distinct_app_hashes, "distinct app hash")
    );
    let nodes = words::counted(judgement.nodes.len() as u64, "node");
    // Who wrote down what a network did has named no run.
    let summary = if judgement.topology.is_empty() {
        format!("{nodes}, {seen}")
    } else {
        format!(
            "{} on {}, seed {}: {nodes}, {proven} of {} proven, {seen}, {}",
            judgement.topology,
            judgement.engine,
            judgement.seed,
            words::counted(judgement.faults.len() as u64, "fault"),
            words::duration(state.at_us),
        )
    };
    let _ = writeln!(out, "{summary}");
}

fn render_finding(out: &mut String, finding: &Finding, heading: bool, style: &Style) {
    let node = finding.node.as_deref().map(|n| format!(" {n}")).unwrap_or_default();
    let height = finding.height.map(|h| format!(" at height {h}")).unwrap_or_default();
    let name = paint(&finding.verdict.to_string(), finding.verdict.outcome(), style);
    out.push('\n');
    if heading {
        let _ = writeln!(out, "{name}{node}{height}");
    }
    wrap(out, "  what   ", &finding.detail);
    wrap(out, "  why    ", &finding.why);
    wrap(out, "  next   ", &finding.next);
    if !finding.evidence.is_empty() {
        let numbers: Vec<String> = finding.evidence.iter().map(u64::to_string).collect();
        wrap(out, "  seen   ", &format!("records {} of the timeline", numbers.join(", ")));
    }
    for consequence in &finding.consequences {
        let node = consequence.node.as_deref().map(|n| format!(" {n}")).unwrap_or_default();
        wrap(out, "  also   ", &format!("{}{node}: {}", consequence.verdict, consequence.detail));
    }
}

fn faults(out: &mut String, rows: &[FaultRow], style: &Style) {
    if rows.is_empty() {
        return;
    }
    let width = |of: fn(&FaultRow) -> &str, least: usize| {
        rows.iter().map(|r| of(r).chars().count()).max().unwrap_or(0).clamp(least, 28)
    };
    let (names, nodes) = (width(|r| &r.name, 5), width(|r| &r.node, 4));
    let head = format!(
        "{:<names$}  {:<nodes$}  {:<7}  {:<8}  {:<20}  {:>8}  {:>8}  {:>9}",
        "fault", "node", "kind", "proven", "left app/state/store", "down for", "replayed", "caught up"
    );
    let _ = writeln!(out, "\n{}", bold(&head, style));
    for row in rows {
        let name = if row.occurrence > 1 { format!("{} {}", row.name, row.occurrence) } else { row.name.clone() };
        let ms = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| words::duration(ms * 1000));
        let after = row.after.map_or_else(|| "-".to_owned(), |h| h.to_string());
        let replayed = row.replayed.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let proven = format!("{:<8}", if row.proven { "yes" } else { "NO" });
        let outcome = if row.proven { Outcome::Converged } else { Outcome::Finding };
        let _ = writeln!(
            out,
            "{:<names$}  {:<nodes$}  {:<7}  {}  {after:<20}  {:>8}  {replayed:>8}  {:>9}",
            words::cut(&name, names),
            words::cut(&row.node, nodes),
            words::kind(row.kind),
            paint(&proven, outcome, style),
            ms(row.down_ms),
            ms(row.caught_up_ms),
        );
        match &row.asked {
            Some(asked) => wrap(out, "    asked   ", &words::asked(asked)),
            None => wrap(out, "    asked   ", &row.when),
        }
        match (&row.landed, &row.exit) {
            (Some(landed), exit) => {
                let exit = exit.as_deref().map(|e| format!(", {e}")).unwrap_or_default();
                wrap(out, "    landed  ", &format!("{}{exit}", words::landed(landed)));
            }
            (None, Some(exit)) => wrap(out, "    exit    ", exit),
            (None, None) => {}
        }
        if let Some(why) = &row.why_unproven {
            wrap(out, "    unproven: ", why);
        }
    }
}

fn nodes(out: &mut String, state: &LiveState, rows: &[NodeRow], style: &Style) {
    if rows.is_empty() {
        return;
    }
    let names = rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0).clamp(4, 24);
    let head = format!(
        "{:<names$}  {:<9}  {:>8}  {:<20}  {:>6}  {:<12}  {:<12}  {}",
        "node", "role", "height", "app/state/store", "starts", "app hash", "storage", "verdict"
    );
    let _ = writeln!(out, "\n{}", bold(&head, style));
    // With many nodes those with a finding are the ones to see.
    let mut order: Vec<&NodeRow> = rows.iter().collect();
    order.sort_by_key(|row| row.verdict.outcome() == Outcome::Converged && rows.len() > ROWS_MAX);
    for row in order.iter().take(ROWS_MAX) {
        let role = match row.role {
            Role::Validator => "validator",
            Role::Full => "full",
        };
        let height = row.height.map_or_else(|| "-".to_owned(), |h| h.to_string());
        let hash: String = row.app_hash.as_deref().unwrap_or("-").chars().take(12).collect();
        let storage = state.nodes.get(&row.name).and_then(|n| n.storage.as_deref()).unwrap_or("-");
        let verdict = node_words(row, state.nodes.contains_key(&row.name));
        let _ = writeln!(
            out,
            "{:<names$}  {role:<9}  {height:>8}  {:<20}  {:>6}  {hash:<12}  {storage:<12}  {}",
            words::cut(&row.name, names),
            row.heights.to_string(),
            row.starts,
            paint(&verdict, row.verdict.outcome(), style),
        );
    }
    left_out(out, rows.len());
    let _ = writeln!(
        out,
        "(each as last seen of that node: heights and app hashes of two nodes need not be of one moment)"
    );
}

/// What is said of a node in one word or two; `planned` is one whose starts a timeline tells.
fn node_words(row: &NodeRow, planned: bool) -> String {
    let seen = row.height.is_some() || row.app_hash.is_some() || row.heights != Heights::default();
    match row.verdict {
        Verdict::Converged if !seen => "-".to_owned(),
        Verdict::Converged => "agrees".to_owned(),
        Verdict::Inconclusive if planned && row.starts == 0 && row.height.is_none() => "never started".to_owned(),
        other => other.to_string(),
    }
}

fn sync_table(out: &mut String, rows: &[SyncRow], style: &Style) {
    if rows.is_empty() {
        return;
    }
    let names = rows.iter().map(|r| r.node.chars().count()).max().unwrap_or(0).clamp(4, 20);
    let stores = rows.iter().map(|r| r.store.chars().count()).max().unwrap_or(0).clamp(5, 20);
    let head = format!(
        "{:<names$}  {:<10}  {:<9}  {:<stores$}  {:>8}  {:>11}  {:>11}  {:>8}  {:>8}",
        "node", "mode", "tier", "store", "blocks", "syncs/block", "syncs/flush", "p50", "p99"
    );
    let _ = writeln!(out, "\n{}", bold(&head, style));
    for row in rows.iter().take(ROWS_MAX) {
        let timed = |us: u64| if row.timed == 0 { "-".to_owned() } else { words::duration(us) };
        let _ = writeln!(
            out,
            "{:<names$}  {:<10}  {:<9}  {:<stores$}  {:>8}  {:>11}  {:>11}  {:>8}  {:>8}",
            words::cut(&row.node, names),
            words::mode(row.mode),
            words::tier(row.tier),
            words::cut(&row.store, stores),
            row.blocks,
            row.per_block,
            row.per_flush,
            timed(row.p50_us),
            timed(row.p99_us),
        );
    }
    left_out(out, rows.len());
    let _ = writeln!(out, "(medians; latency as the node sees it, injected latency included; never compare tiers)");
}

fn left_out(out: &mut String, rows: usize) {
    if rows > ROWS_MAX {
        let _ = writeln!(out, "and {} more, see --json or the page", rows - ROWS_MAX);
    }
}

fn notes(out: &mut String, judgement: &Judgement) {
    for (position, note) in judgement.notes.iter().take(ROWS_MAX).enumerate() {
        if position == 0 {
            out.push('\n');
        }
        let node = note.node.as_deref().map(|n| format!("{n}: ")).unwrap_or_default();
        let height = note.height.map(|h| format!(" (height {h})")).unwrap_or_default();
        wrap(out, &format!("note ({})  ", note.kind), &format!("{node}{}{height}", note.detail));
    }
    left_out(out, judgement.notes.len());
}

fn ending(out: &mut String, state: &LiveState, judgement: &Judgement) {
    out.push('\n');
    if !judgement.results.is_empty() {
        let _ = writeln!(out, "results    {}", judgement.results);
    }
    if let Some(started) = &state.started {
        let _ = writeln!(out, "run again  {}", words::clean(&started.again));
    }
    // The program as it was called for this run, which is not always on the search path.
    let again = state.started.as_ref().map_or("", |started| started.again.as_str());
    let program = again.split_once(" run ").map_or("midflush", |(program, _)| program);
    // The page serves the folder that the run's folder lies in.
    if let Some((results, run)) = judgement.results.rsplit_once('/') {
        let (program, results) = (words::clean(program), words::quoted(&words::clean(results)));
        let _ = writeln!(out, "look       {program} serve --results {results}");
        let _ = writeln!(out, "           then open http://127.0.0.1:8420/runs/{run}");
    }
}

/// Writes `text` after `lead`, broken between words, later lines indented as far.
fn wrap(out: &mut String, lead: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    let text = words::ascii(&words::clean(text));
    let indent = lead.chars().count();
    let mut line = lead.to_owned();
    let mut used = indent;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > indent && used + 1 + length > WIDTH {
            let _ = writeln!(out, "{}", line.trim_end());
            line = " ".repeat(indent);
            used = indent;
        }
        if used > indent {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::judge;
    use crate::report::sample;
    use crate::report::syncs::Syncs;

    fn rendered(colour: bool) -> String {
        let records = sample::records();
        let mut judgement = judge(&records);
        judgement.results = "/work/midflush-results/quickstart-7".to_owned();
        render(&LiveState::of(&records), &Syncs::of(&records).rows(), &judgement, &Style { colour })
    }

    #[test]
    fn the_end_of_a_run_is_told_verdict_first() {
        insta::assert_snapshot!(rendered(false));
    }

    fn of(observation: &str) -> String {
        let judgement = crate::judge::judge_observation(observation).expect("an observation");
        render(&LiveState::default(), &[], &judgement, &Style::default())
    }

    #[test]
    fn who_is_in_dispute_without_a_majority_does_not_agree() {
        let text = of("observation: 1\npower: {a: 5, b: 5, c: 0}\napp_hashes: {nodes: {a: {7: AA}, b: {7: AC}}}\n");
        for (node, words) in [("a ", "DIVERGED"), ("b ", "DIVERGED"), ("c ", "-")] {
            let row = text.lines().find(|l| l.starts_with(node)).expect("a row");
            assert!(row.ends_with(words), "{text}");
        }
        assert!(text.contains("3 nodes, 1 height compared, 2 distinct app hashes\n"), "{text}");
    }

    #[test]
    fn a_node_that_never_started_does_not_agree_and_the_verdict_stands_once() {
        let records = sample::records();
        let records = &records[..4];
        let text = render(&LiveState::of(records), &[], &judge(records), &Style::default());
        assert_eq!(text.matches("INCONCLUSIVE\n").count(), 1, "{text}");
        assert!(text.contains("  what   the timeline ends before the run does"), "{text}");
        assert_eq!(text.matches("never started").count(), 5, "{text}");
        assert!(!text.contains("agrees"), "{text}");
    }

    #[test]
    fn plain_output_is_ascii_within_the_width() {
        let text = rendered(false);
        assert!(text.is_ascii(), "{text}");
        for line in text.lines().filter(|l| !l.starts_with("run again")) {
            assert!(line.len() <= 120, "{} characters: {line}", line.len());
        }
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let mut plain = rendered(true);
        for code in ["\u{1b}[1;32m", "\u{1b}[1;31m", "\u{1b}[1;33m", "\u{1b}[1m", "\u{1b}[0m"] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, rendered(false));
    }
}
