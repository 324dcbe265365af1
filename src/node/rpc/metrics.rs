//! `/metrics`: heights, peers, mempool and stage times, read at each scrape, in the text form of Prometheus.

use std::fmt;
use std::sync::Arc;

use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::Context;

/// Every name begins with this.
const PREFIX: &str = "midflush_node";

/// What is scraped.
#[derive(Clone)]
pub(super) struct Metrics {
    registry: Arc<Registry>,
}

impl Metrics {
    /// The metrics of a node.
    pub(super) fn new(context: Context) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(Scrape(context)));
        Self { registry: Arc::new(registry) }
    }

    /// All of them as text.
    pub(super) fn answer(&self) -> Response {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            Ok(()) => {
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                ([(header::CONTENT_TYPE, kind)], text).into_response()
            }
            Err(error) => (axum::http::StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

struct Scrape(Context);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self(context) = self;
        // A store that fails has stopped the node: zeros, where the other metrics still tell something.
        let heights = context.view.heights().unwrap_or_default();
        let mut height = encoder.encode_descriptor("height", "Height on disk by store", None, MetricType::Gauge)?;
        for (store, value) in [("app", heights.app), ("state", heights.state), ("store", heights.store)] {
            gauge(height.encode_family(&[("store", store)])?, value)?;
        }
        let (txs, bytes) = context.handle.mempool_size();
        let single = [
            ("applied_height", "Height applied, on disk or held", context.view.applied_height()),
            ("peers", "Connected peers", context.handle.peers().len() as u64),
            ("syncing", "1 while catching up", u64::from(context.handle.catching_up())),
            ("mempool_transactions", "Transactions that wait", txs as u64),
            ("mempool_size_bytes", "Bytes of these", bytes as u64),
        ];
        for (name, help, value) in single {
            gauge(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?, value)?;
        }
        let help = "Syncs of a database since the start";
        let mut syncs = encoder.encode_descriptor("syncs", help, None, MetricType::Counter)?;
        for (name, _, count) in context.view.disk_counts() {
            ConstCounter::new(count).encode(syncs.encode_family(&[("store", name.file())])?)?;
        }
        let totals = context.view.timings().totals();
        let help = "Time taken by a stage of applying blocks";
        let mut seconds = encoder.encode_descriptor("stage", help, Some(&Unit::Seconds), MetricType::Counter)?;
        for (stage, total) in &totals {
            ConstCounter::new(total.sum.as_secs_f64()).encode(seconds.encode_family(&[("stage", stage.name())])?)?;
        }
        let help = "How often a stage was taken";
        let mut counts = encoder.encode_descriptor("stage_runs", help, None, MetricType::Counter)?;
        for (stage, total) in &totals {
            ConstCounter::new(total.count).encode(counts.encode_family(&[("stage", stage.name())])?)?;
        }
        Ok(())
    }
}

fn gauge(encoder: MetricEncoder<'_>, value: u64) -> Result<(), fmt::Error> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder)
}
