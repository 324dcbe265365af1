//! Two stored benches against each other: cells of the same arm and axes, not measured together. Pure.

use std::fmt::Write as _;

use super::result::{BenchResult, CellResult, Setup};
use super::statistics::{Interval, ROUNDS_MIN, unpaired_ratio};

/// What a comparison says.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// In which respects the setups differ; figures are compared only when there are none, or when somebody insists.
    pub differs: Vec<String>,
    /// Cells of both, second over first.
    pub pairs: Vec<ComparedPair>,
    /// Labels of cells that only one of them has.
    pub alone: Vec<String>,
}

/// One cell of both.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedPair {
    /// Its label.
    pub label: String,
    /// The second's rate over the first's.
    pub ratio: Option<Interval>,
    /// `faster`, `slower`, `no change` or `inconclusive`.
    pub verdict: &'static str,
}

/// Compares `b` with `a`.
pub fn compare(a: &BenchResult, b: &BenchResult) -> Comparison {
    let mut comparison = Comparison { differs: differs(&a.setup, &b.setup), pairs: Vec::new(), alone: Vec::new() };
    let same = |one: &CellResult, other: &CellResult| one.label() == other.label() && one.tier == other.tier;
    for cell in &a.cells {
        match b.cells.iter().find(|other| same(cell, other)) {
            Some(other) => comparison.pairs.push(pair(a, b, cell, other)),
            None => comparison.alone.push(cell.label()),
        }
    }
    let only_b = b.cells.iter().filter(|cell| !a.cells.iter().any(|other| same(cell, other)));
    comparison.alone.extend(only_b.map(CellResult::label));
    comparison
}

fn pair(a: &BenchResult, b: &BenchResult, one: &CellResult, other: &CellResult) -> ComparedPair {
    let rates = |cell: &CellResult| cell.counted().into_values().collect::<Vec<f64>>();
    let (old, new) = (rates(one), rates(other));
    let ratio = unpaired_ratio(&new, &old);
    let usable = old.len().min(new.len()) >= ROUNDS_MIN && one.inconclusive.is_none() && other.inconclusive.is_none();
    // Two sessions differ at least by what one session differs from itself.
    let floors = [a.floor, b.floor].into_iter().flatten();
    let inside = |value: f64| floors.clone().any(|floor| (floor.lo..=floor.hi).contains(&value));
    let verdict = match ratio.filter(|_| usable) {
        None => "inconclusive",
        Some(ratio) if ratio.contains(1.0) || inside(ratio.value) => "no change",
        Some(ratio) if ratio.value > 1.0 => "faster",
        Some(_) => "slower",
    };
    ComparedPair { label: one.label(), ratio, verdict }
}

/// Everything that a rate depends on beside arms and axes. Builds may differ: that is what is compared.
fn differs(a: &Setup, b: &Setup) -> Vec<String> {
    let pairs = [
        ("processor", a.cpu.clone(), b.cpu.clone()),
        ("number of processors", a.cpus.to_string(), b.cpus.to_string()),
        ("cores of the node", format!("{:?}", a.node_cpus), format!("{:?}", b.node_cpus)),
        ("cores of the peers", format!("{:?}", a.peer_cpus), format!("{:?}", b.peer_cpus)),
        ("kernel", a.kernel.clone(), b.kernel.clone()),
        ("engine", a.engine.clone(), b.engine.clone()),
        ("midflush", a.midflush.clone(), b.midflush.clone()),
        ("fixture", a.fixture.clone(), b.fixture.clone()),
        ("file system", a.disk.filesystem.clone(), b.disk.filesystem.clone()),
    ];
    pairs.into_iter().filter(|(_, a, b)| a != b).map(|(what, a, b)| format!("{what}: {a} and {b}")).collect()
}

impl Comparison {
    /// For a terminal.
    pub fn text(&self, a: &BenchResult, b: &BenchResult, insisted: bool) -> String {
        let mut out = format!("{} ({}) against {} ({})\n\n", b.name, b.started, a.name, a.started);
        if !self.differs.is_empty() {
            let _ = writeln!(out, "the setups differ:");
            for what in &self.differs {
                let _ = writeln!(out, "  {what}");
            }
            if !insisted {
                let _ = writeln!(out, "\nnot compared; `--anyway` compares all the same");
                return out;
            }
            out.push('\n');
        }
        for pair in &self.pairs {
            let ratio = super::report::ratio_words(pair.ratio);
            let _ = writeln!(out, "{:<40}  {ratio:<24}  {}", pair.label, pair.verdict);
        }
        for label in &self.alone {
            let _ = writeln!(out, "{label:<40}  only in one of them");
        }
        let builds =
            a.setup.builds.iter().filter(|(arm, digest)| b.setup.builds.get(*arm).is_some_and(|d| d != *digest));
        for (arm, _) in builds {
            let _ = writeln!(out, "note      the build of `{arm}` is another one");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::conclude::conclude;
    use crate::bench::sample;

    fn bench(rate: f64) -> BenchResult {
        let mut result = sample::result(vec![sample::cell("base", &[], &sample::rates(rate, 0))]);
        conclude(&mut result, &[]);
        result
    }

    #[test]
    fn equal_setups_are_compared() {
        let verdict = |rate| compare(&bench(100.0), &bench(rate)).pairs[0].verdict;
        assert_eq!([verdict(100.3), verdict(130.0), verdict(70.0)], ["no change", "faster", "slower"]);
    }

    #[test]
    fn setups_that_differ_are_told_and_not_compared_silently() {
        let (a, mut b) = (bench(100.0), bench(130.0));
        b.setup.kernel = "7.0.0".to_owned();
        b.setup.disk.filesystem = "ext4".to_owned();
        let of = compare(&a, &b);
        assert_eq!(of.differs, ["kernel: 6.18.0 and 7.0.0", "file system: tmpfs and ext4"]);
        let text = of.text(&a, &b, false);
        assert!(text.contains("not compared") && !text.contains("faster"), "{text}");
        assert!(of.text(&a, &b, true).contains("faster"));
    }

    #[test]
    fn cells_of_one_alone_and_of_other_tiers_have_no_ratio() {
        let (a, mut b) = (bench(100.0), bench(100.0));
        b.cells[0].tier = "none".to_owned();
        let of = compare(&a, &b);
        assert_eq!((of.pairs.len(), of.alone.len()), (0, 2));
    }
}
