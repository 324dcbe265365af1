//! One cause, one finding: what follows from it is listed under it.

use super::{Consequence, Finding, Outcome, Verdict};

/// Class of the finding that a run was stopped before its end.
pub(crate) const ENDED_EARLY: &str = "ended-early";

/// Class of the finding that the nodes did not come together in time.
pub(crate) const NOT_TOGETHER: &str = "not-together";

/// Class of the finding that no two nodes had a height in common.
pub(crate) const NOTHING_COMPARED: &str = "nothing-compared";

/// Whether a finding of `later` can follow from `head` on the same node.
fn follows(head: Verdict, later: Verdict) -> bool {
    use Verdict::*;
    match head {
        Forked | DoubleSign | Diverged => !matches!(later, ConfigError | ClockSuspect | ToolError),
        SignStateRegressed => matches!(later, PanicOnRestart | Stuck | ConvergedSlow | Inconclusive | ChainHalted),
        HeightRegressed => matches!(
            later,
            PanicOnRestart
                | Stuck
                | NeverCatchesUp
                | EventBeforeDurable
                | StoreSplit
                | ExpectationFailed
                | ConvergedSlow
                | Inconclusive
        ),
        PanicOnRestart => matches!(
            later,
            Stuck
                | NeverCatchesUp
                | ChainHalted
                | EventBeforeDurable
                | StoreSplit
                | ExpectationFailed
                | ConvergedSlow
                | Inconclusive
        ),
        Stuck | NeverCatchesUp | ChainHalted => {
            matches!(later, Stuck | NeverCatchesUp | ExpectationFailed | ConvergedSlow | Inconclusive)
        }
        StoreSplit | ExpectationFailed | ConvergedSlow | HaltMissed | ConfigError => matches!(later, Inconclusive),
        _ => false,
    }
}

/// Findings about the run as a whole that a finding about any node explains.
fn explained(finding: &Finding, heads: &[Finding]) -> Option<usize> {
    if finding.node.is_some() {
        return None;
    }
    heads.iter().position(|head| match finding.verdict {
        // Different blocks lead to different states from there on.
        Verdict::Diverged => head.verdict == Verdict::Forked && head.height <= finding.height,
        Verdict::ChainHalted => matches!(head.verdict, Verdict::Forked | Verdict::Diverged | Verdict::PanicOnRestart),
        Verdict::Inconclusive => {
            let by = |class: &str| finding.class.as_deref() == Some(class);
            (by(NOT_TOGETHER) || by(NOTHING_COMPARED)) && follows(head.verdict, Verdict::Inconclusive)
        }
        _ => false,
    })
}

/// Folds consequences into their causes and puts the worst first.
pub(crate) fn merge(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|f| (f.verdict.rank(), f.height.unwrap_or(u64::MAX)));
    let mut heads: Vec<Finding> = Vec::new();
    for finding in findings {
        let same = |head: &Finding| {
            head.verdict == finding.verdict && head.node == finding.node && head.detail == finding.detail
        };
        if heads.iter().any(same) {
            continue;
        }
        let cause = heads.iter().position(|head| {
            let about = finding.node.is_some() && finding.names().all(|name| head.names().any(|n| n == name));
            about
                && (head.verdict == finding.verdict && repeats(head.verdict) || follows(head.verdict, finding.verdict))
        });
        match cause.or_else(|| explained(&finding, &heads)) {
            Some(index) => heads[index].consequences.push(Consequence::from(finding)),
            None => heads.push(finding),
        }
    }
    if heads.iter().any(|f| f.verdict.outcome() == Outcome::Finding) {
        // Whether agreement proves anything is no question where there is none.
        heads.retain(|f| f.verdict != Verdict::ConvergedUnproven);
    }
    tool_first(ended_early(heads))
}

/// A run that was stopped before its end misses much, all for that one reason.
fn ended_early(heads: Vec<Finding>) -> Vec<Finding> {
    let early = |f: &Finding| f.node.is_none() && f.class.as_deref() == Some(ENDED_EARLY);
    if !heads.iter().any(early) {
        return heads;
    }
    let (rest, mut kept): (Vec<Finding>, Vec<Finding>) = heads
        .into_iter()
        .partition(|f| !early(f) && matches!(f.verdict, Verdict::Inconclusive | Verdict::ConvergedUnproven));
    if let Some(cause) = kept.iter_mut().find(|f| early(f)) {
        cause.consequences.extend(rest.into_iter().map(Consequence::from));
    }
    kept
}

/// Verdicts that show again and again once they are true.
fn repeats(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Forked
            | Verdict::Diverged
            | Verdict::DoubleSign
            | Verdict::HeightRegressed
            | Verdict::EventBeforeDurable
            | Verdict::Stuck
            | Verdict::PanicOnRestart
            | Verdict::HaltMissed
            | Verdict::ConvergedSlow
    )
}

/// When the tool failed, only what no tool can bring about stands beside it.
fn tool_first(heads: Vec<Finding>) -> Vec<Finding> {
    if !heads.iter().any(|f| f.verdict == Verdict::ToolError) {
        return heads;
    }
    let (mut kept, rest): (Vec<Finding>, Vec<Finding>) =
        heads.into_iter().partition(|f| f.verdict.is_safety() || f.verdict == Verdict::ToolError);
    if let Some(tool) = kept.iter_mut().find(|f| f.verdict == Verdict::ToolError) {
        // What was not seen because the tool failed is not worth a line each.
        for finding in rest.into_iter().filter(|f| f.verdict.outcome() == Outcome::Finding) {
            tool.consequences.extend(finding.consequences.clone());
            tool.consequences.push(Consequence::from(finding));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: Verdict, node: &str, height: u64) -> Finding {
        Finding::new(verdict, format!("{verdict} of {node} at {height}")).node(node).height(height)
    }

    #[test]
    fn consequences_are_listed_under_their_cause() {
        let merged = merge(vec![
            finding(Verdict::Stuck, "v1", 41),
            finding(Verdict::Diverged, "v1", 42),
            finding(Verdict::PanicOnRestart, "v1", 41),
            finding(Verdict::Diverged, "v1", 41),
            finding(Verdict::Stuck, "v2", 30),
        ]);
        assert_eq!(merged.len(), 2);
        assert_eq!(
            (merged[0].verdict, merged[0].height, merged[0].consequences.len()),
            (Verdict::Diverged, Some(41), 3)
        );
        assert_eq!((merged[1].verdict, merged[1].node.as_deref()), (Verdict::Stuck, Some("v2")));
    }

    #[test]
    fn the_tool_failed_so_the_nodes_are_not_blamed() {
        let tool = Finding::new(Verdict::ToolError, "disk full");
        let merged =
            merge(vec![finding(Verdict::PanicOnRestart, "v1", 9), tool.clone(), finding(Verdict::Stuck, "v3", 9)]);
        assert_eq!((merged.len(), merged[0].verdict, merged[0].consequences.len()), (1, Verdict::ToolError, 2));
        let merged = merge(vec![finding(Verdict::Forked, "v1", 9), tool]);
        assert_eq!(merged.iter().map(|f| f.verdict).collect::<Vec<_>>(), [Verdict::Forked, Verdict::ToolError]);
    }
}
