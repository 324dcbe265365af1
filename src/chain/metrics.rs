//! Reads what nodes tell in the text form of Prometheus.

use super::Stages;

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

/// Blocks and stages of CometBFT and what came of it. The namespace in front of a name is the configuration's (`tendermint`
/// before CometBFT 0.37, and in Tenderdash). The stages of a block in block sync are Tenderdash's alone, from 1.8 on; those of
/// its execution carry `exec_`, since they are parts of the stage `exec`.
pub(super) fn comet_stages(text: &str) -> Stages {
    let mut stages = Stages::default();
    let (mut synced, mut committed) = (None, None);
    for sample in samples(text) {
        let Some((_namespace, name)) = sample.name.split_once('_') else { continue };
        let stage = match (name, sample.label("stage"), sample.label("method")) {
            ("blocksync_latest_block_height", _, _) => {
                synced = sample.whole();
                continue;
            }
            ("consensus_latest_block_height", _, _) => {
                committed = sample.whole();
                continue;
            }
            // Milliseconds, of the application's part of a block.
            ("state_block_processing_time_sum", _, _) => ("finalize_block".to_owned(), 1e-3),
            ("consensus_block_sync_apply_stage_duration_sum", Some(stage), _) => (stage.to_owned(), 1e-3),
            ("state_block_apply_stage_duration_sum", Some(stage), _) => (format!("exec_{stage}"), 1e-3),
            ("abci_connection_method_timing_seconds_sum" | "abci_connection_method_timing_sum", _, Some(method)) => {
                (format!("abci_{method}"), 1.0)
            }
            _ => continue,
        };
        *stages.seconds.entry(stage.0).or_default() += sample.value * stage.1;
    }
    // A release that counts both keeps the first at zero until it syncs.
    stages.blocks = synced.filter(|height| *height > 0).or(committed);
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_read_whatever_the_namespace() {
        let comet = comet_stages(
            "cometbft_blocksync_latest_block_height{chain_id=\"c\"} 70\ncometbft_consensus_latest_block_height 3\n\
             cometbft_state_block_processing_time_sum{chain_id=\"c\"} 250\n\
             cometbft_abci_connection_method_timing_seconds_sum{chain_id=\"c\",method=\"commit\",type=\"sync\"} 0.5\n\
             cometbft_abci_connection_method_timing_seconds_sum{chain_id=\"c\",method=\"commit\",type=\"async\"} 0.25\n",
        );
        assert_eq!(comet.blocks, Some(70));
        let stages: Vec<(&str, f64)> =
            comet.seconds.iter().map(|(stage, seconds)| (stage.as_str(), *seconds)).collect();
        assert_eq!(stages, [("abci_commit", 0.75), ("finalize_block", 0.25)]);
        let tenderdash = comet_stages(
            "tendermint_consensus_latest_block_height 12\n\
             tendermint_consensus_block_sync_apply_stage_duration_sum{stage=\"save\"} 40\n\
             tendermint_state_block_apply_stage_duration_sum{stage=\"save_state\"} 10\n",
        );
        assert_eq!(tenderdash.blocks, Some(12));
        assert_eq!(tenderdash.seconds["save"], 0.04);
        assert_eq!(tenderdash.seconds["exec_save_state"], 0.01);
        assert_eq!(comet_stages("up 1\n"), Stages::default());
    }

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
