//! The finding that a topology expects: with a known defect in the network, only its being caught is a success.

use super::{ExpectedRow, Finding, Outcome, Verdict};
use crate::timeline::ExpectedVerdict;

/// Compares the findings, causes only, with the one that is expected. Where it did not come out although nothing stood in
/// the way, that is a finding of its own.
pub(crate) fn compare(wanted: &ExpectedVerdict, findings: &mut Vec<Finding>) -> ExpectedRow {
    let met = matches!(findings.as_slice(), [only] if is_it(wanted, only))
        || (wanted.kind == Verdict::Converged && findings.is_empty());
    let judged = findings.iter().all(|f| f.verdict.outcome() != Outcome::Inconclusive || f.verdict == wanted.kind);
    if !met && judged {
        let came = match findings.first() {
            None => Verdict::Converged.to_string(),
            Some(_) => findings.iter().map(words).collect::<Vec<_>>().join("; "),
        };
        findings.push(
            Finding::new(Verdict::ExpectationFailed, format!("expected {wanted} and nothing else, came out: {came}"))
                .why("a defect that is known to be there has to be caught, and blamed on the node that has it")
                .next("look at whether the fault met the defect, and at what the judge was shown of it"),
        );
        findings.sort_by_key(|f| f.verdict.rank());
    }
    ExpectedRow { finding: wanted.clone(), met }
}

fn is_it(wanted: &ExpectedVerdict, finding: &Finding) -> bool {
    finding.verdict == wanted.kind
        && wanted.node.as_ref().is_none_or(|node| finding.node.as_ref() == Some(node))
        && wanted.height.as_ref().is_none_or(|range| finding.height.is_some_and(|h| range.contains(h)))
}

fn words(finding: &Finding) -> String {
    let node = finding.node.as_deref().map(|n| format!(" of {n}")).unwrap_or_default();
    let height = finding.height.map(|h| format!(" at height {h}")).unwrap_or_default();
    format!("{}{node}{height}", finding.verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::HeightRange;

    fn wanted() -> ExpectedVerdict {
        let height = Some(HeightRange { from: 40, to: Some(60) });
        ExpectedVerdict { kind: Verdict::Diverged, node: Some("late".to_owned()), height }
    }

    fn diverged(node: &str, height: u64) -> Finding {
        Finding::new(Verdict::Diverged, "different").node(node).height(height)
    }

    #[test]
    fn it_and_nothing_else() {
        let mut findings = vec![diverged("late", 41)];
        assert!(compare(&wanted(), &mut findings).met);
        assert_eq!(findings.len(), 1);
    }

    #[test]
    fn anything_else_is_a_finding_of_its_own() {
        let other = Finding::new(Verdict::Forked, "two blocks").node("val-1");
        for wrong in [
            vec![],
            vec![diverged("late", 61)],
            vec![diverged("val-1", 41)],
            vec![other, diverged("late", 41)],
            vec![diverged("late", 41), Finding::new(Verdict::StoreSplit, "parts").node("val-2")],
        ] {
            let mut findings = wrong.clone();
            assert!(!compare(&wanted(), &mut findings).met, "{wrong:?}");
            assert!(findings.iter().any(|f| f.verdict == Verdict::ExpectationFailed), "{wrong:?}");
            assert!(findings.windows(2).all(|pair| pair[0].verdict.rank() <= pair[1].verdict.rank()));
        }
    }

    #[test]
    fn what_is_not_judged_has_not_failed() {
        let mut findings = vec![Finding::new(Verdict::Inconclusive, "the fault did not land")];
        assert!(!compare(&wanted(), &mut findings).met);
        assert_eq!(findings.len(), 1);
    }
}
