//! "Did you mean": the known word nearest to a misspelt one.

/// The nearest of `known`, if it is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase().replace('_', "-");
    known
        .into_iter()
        .map(|candidate| (distance(&lower, &candidate.to_lowercase().replace('_', "-")), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len().max(word.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace, swap of neighbours) between two words; at most 64 characters of each count.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_slips_are_understood_and_others_not() {
        let known = ["peers", "power", "role", "storage", "application.db"];
        assert_eq!(nearest("perrs", known), Some("peers"));
        assert_eq!(nearest("stroage", known), Some("storage"));
        assert_eq!(nearest("aplication.db", known), Some("application.db"));
        assert_eq!(nearest("per_block", ["per-block"]), Some("per-block"));
        assert_eq!(nearest("engine", known), None);
        assert_eq!(nearest("", known), None);
    }
}
