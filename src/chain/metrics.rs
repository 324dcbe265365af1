//! Reads what nodes tell in the text form of Prometheus.

/// One line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample<'a> {
    /// Name of the metric.
    pub(super) name: &'a str,
    labels: &'a str,
    /// Its value.
    pub(super) value: f64,
}

impl<'a> Sample<'a> {
    /// The value of a label; values with quotes in them are not told apart, none of those looked at has any.
    pub(super) fn label(&self, name: &str) -> Option<&'a str> {
        self.labels.split(',').find_map(|label| {
            let (key, value) = label.split_once('=')?;
            (key.trim() == name).then(|| value.trim().trim_matches('"'))
        })
    }

    /// The value as a count.
    pub(super) fn whole(&self) -> Option<u64> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded and not negative")]
        (self.value >= 0.0 && self.value < 1e15).then_some(self.value as u64)
    }
}

/// All samples; comments and lines that are none are passed over.
pub(super) fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (name, rest) = match line.split_once('{') {
            Some((name, rest)) => (name, rest.split_once('}')?),
            None => line.split_once(' ').map(|(name, rest)| (name, ("", rest)))?,
        };
        let (labels, value) = rest;
        let value = value.split_whitespace().next()?.parse().ok()?;
        Some(Sample { name, labels, value })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_and_without_labels() {
        let text = "# TYPE a counter\na_total{stage=\"save\", x=\"y\"} 1.5\nplain 7 1700000000\nbroken\n";
        let all: Vec<Sample> = samples(text).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].name, all[0].label("stage"), all[0].label("x")), ("a_total", Some("save"), Some("y")));
        assert_eq!((all[0].value, all[0].label("z")), (1.5, None));
        assert_eq!((all[1].name, all[1].whole()), ("plain", Some(7)));
    }
}
