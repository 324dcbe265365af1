//! What must not change a verdict: the order in which different nodes are looked at, the names of nodes, and seeing the
//! same thing twice.

use proptest::prelude::*;

use super::*;

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    Frozen(usize),
    Slow(usize),
    Diverged(usize),
    Forked(usize),
    SignedTwice(usize),
    Gone(usize),
    Killed(u64),
    Halted,
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let node = 0..ALL.len();
    prop_oneof![
        Just(Trouble::None),
        node.clone().prop_map(Trouble::Frozen),
        node.clone().prop_map(Trouble::Slow),
        node.clone().prop_map(Trouble::Diverged),
        node.clone().prop_map(Trouble::Forked),
        node.clone().prop_map(Trouble::SignedTwice),
        node.prop_map(Trouble::Gone),
        (80_u64..100).prop_map(Trouble::Killed),
        Just(Trouble::Halted),
    ]
}

fn run(trouble: Trouble) -> Run {
    if let Trouble::Killed(app) = trouble {
        return killed(Exit::Signal(9), Some(Heights::new(app, 89, 120)), None);
    }
    let mut run = Run::new(Vec::new(), Expect::default());
    for node in ALL {
        run.started(0, node, 1);
    }
    for at in 1..=60 {
        for (index, node) in ALL.iter().enumerate() {
            let height = match trouble {
                Trouble::Frozen(n) if n == index => 100 + at.min(20),
                Trouble::Slow(n) if n == index => 20 + at / 2,
                Trouble::Halted => 100 + at.min(30),
                Trouble::Gone(n) if n == index && at > 30 => continue,
                _ => 100 + at,
            };
            run.status(at, node, height, false);
        }
    }
    if let Trouble::Gone(n) = trouble {
        run.exited(30, ALL[n], 1, Exit::Code(2), ExitCause::Own, &["panic: version does not exist"]);
    }
    run.end(matches!(trouble, Trouble::None | Trouble::SignedTwice(_)));
    for (index, node) in ALL.iter().enumerate() {
        run.hashes(node, 151, 155, |h| match trouble {
            Trouble::Diverged(n) if n == index => (block(h).0, "dd".to_owned()),
            Trouble::Forked(n) if n == index => ("ff".to_owned(), block(h).1),
            _ => block(h),
        });
    }
    if let Trouble::SignedTwice(n) = trouble {
        double_sign::signed_twice(&mut run, n);
    }
    run
}

/// All that is said, without the record numbers.
fn said(records: &[Record]) -> serde_json::Value {
    let mut judgement = judge(records);
    for finding in &mut judgement.findings {
        finding.evidence.clear();
        finding.consequences.iter_mut().for_each(|c| c.evidence.clear());
    }
    judgement.faults.iter_mut().for_each(|f| f.evidence.clear());
    serde_json::to_value(judgement).expect("JSON")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_order_of_different_nodes_does_not_matter(trouble in trouble(), picks in prop::collection::vec(0_usize..6, 800)) {
        let records = run(trouble).records;
        let (head, rest) = records.split_at(2);
        // One queue a node and one for what is about none; each keeps its own order.
        let mut queues: BTreeMap<Option<String>, Vec<Record>> = BTreeMap::new();
        for record in rest.iter().rev() {
            queues.entry(record.node.clone()).or_default().push(record.clone());
        }
        let mut queues: Vec<Vec<Record>> = queues.into_values().collect();
        let mut mixed = head.to_vec();
        let mut picks = picks.into_iter().cycle();
        while queues.iter().any(|q| !q.is_empty()) {
            let pick = picks.next().unwrap_or(0) % queues.len();
            let next = queues[pick].pop().or_else(|| queues.iter_mut().find_map(Vec::pop));
            mixed.extend(next);
        }
        prop_assert_eq!(mixed.len(), records.len());
        prop_assert_eq!(said(&mixed), said(&records));
    }

    #[test]
    fn renaming_only_renames(trouble in trouble(), order in Just([3_usize, 0, 4, 1, 2]).prop_shuffle()) {
        let records = run(trouble).records;
        let text = serde_json::to_string(&records).expect("JSON");
        let named = |text: &str| {
            let names = ALL.iter().zip(order);
            names.fold(text.to_owned(), |t, (name, n)| t.replace(name, &format!("node-{n}")))
        };
        let renamed: Vec<Record> = serde_json::from_str(&named(&text)).expect("records");
        prop_assert_eq!(said(&renamed).to_string(), named(&said(&records).to_string()));
    }

    #[test]
    fn seeing_something_twice_changes_nothing(trouble in trouble(), twice in prop::collection::vec(any::<bool>(), 1000)) {
        let records = run(trouble).records;
        let doubled: Vec<Record> = records
            .iter()
            .zip(twice.into_iter().cycle())
            .flat_map(|(record, twice)| std::iter::repeat_n(record.clone(), 1 + usize::from(twice)))
            .collect();
        prop_assert_eq!(said(&doubled), said(&records));
    }
}

#[test]
fn the_troubles_of_these_tests_are_what_they_seem() {
    for (trouble, verdict) in [
        (Trouble::None, Verdict::Converged),
        (Trouble::Frozen(1), Verdict::Stuck),
        (Trouble::Slow(4), Verdict::NeverCatchesUp),
        (Trouble::Diverged(2), Verdict::Diverged),
        (Trouble::Forked(3), Verdict::Forked),
        (Trouble::SignedTwice(3), Verdict::DoubleSign),
        (Trouble::Gone(0), Verdict::PanicOnRestart),
        (Trouble::Killed(89), Verdict::Converged),
        (Trouble::Killed(88), Verdict::Inconclusive),
        (Trouble::Halted, Verdict::ChainHalted),
    ] {
        assert_eq!(run(trouble).verdict().verdict, verdict, "{trouble:?}");
    }
}
