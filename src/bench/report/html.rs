//! A page that stands alone: tables and charts, with the chart library in it.

use std::fmt::Write as _;

use plotly::common::{ErrorData, ErrorType, Mode};
use plotly::layout::Axis;
use plotly::{Bar, HeatMap, Layout, Plot, Scatter};

use super::{grids, ratio_words};
use crate::bench::result::{BenchResult, CellResult};

/// Curves of one chart of heights over time: more hide each other.
const CURVES_MAX: usize = 40;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}\
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.25rem .75rem;border-bottom:1px solid #d0d7de;text-align:left}\
td.n{text-align:right;font-variant-numeric:tabular-nums}.bad{color:#b3261e;font-weight:600}.dim{color:#59636e}";

/// The page.
pub fn html(result: &BenchResult) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    let name = escaped(&result.name);
    let _ = write!(out, "<title>{name}, midflush bench</title><style>{STYLE}</style>");
    out.push_str(&Plot::offline_js_sources());
    let _ = write!(out, "</head><body><h1>{name}</h1>");
    let _ = write!(out, "<p>{} rounds count, {} voided; {}</p>", result.rounds, result.voided, escaped(&result.ended));
    verdicts(&mut out, result);
    cells(&mut out, result);
    out.push_str("<h2>Rates</h2>");
    out.push_str(&rates(result).to_inline_html(Some("rates")));
    for (at, grid) in grids(result).into_iter().enumerate() {
        let _ = write!(out, "<h2>Surface of {}</h2>", escaped(&grid.arm));
        out.push_str(&surface(grid).to_inline_html(Some(&format!("surface-{at}"))));
    }
    out.push_str("<h2>Where the time goes</h2>");
    out.push_str(&spent(result).to_inline_html(Some("spent")));
    latency(&mut out, result);
    out.push_str("<h2>Heights over time</h2>");
    out.push_str(&heights(result).to_inline_html(Some("heights")));
    setup(&mut out, result);
    out.push_str("</body></html>\n");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn verdicts(out: &mut String, result: &BenchResult) {
    out.push_str("<h2>Ratios</h2><table><tr><th>cells</th><th>ratio [95 %]</th><th>verdict</th><th></th></tr>");
    for ratio in &result.ratios {
        let class = if ratio.verdict == "inconclusive" { "bad" } else { "" };
        let _ = write!(
            out,
            "<tr><td>{} / {}</td><td class=\"n\">{}</td><td class=\"{class}\">{}</td><td class=\"dim\">{}</td></tr>",
            escaped(&ratio.a),
            escaped(&ratio.b),
            ratio_words(ratio.ratio),
            escaped(&ratio.verdict),
            escaped(&ratio.why)
        );
    }
    out.push_str("</table>");
    if let Some(floor) = result.floor {
        let _ = write!(out, "<p>Noise floor, one cell against itself: [{:.3}, {:.3}]</p>", floor.lo, floor.hi);
    }
    for knee in &result.knees {
        let _ = write!(out, "<p>{}</p>", escaped(knee));
    }
    for gate in &result.gates {
        let (class, word) = match gate.holds {
            Some(true) => ("", "holds"),
            Some(false) => ("bad", "fails"),
            None => ("bad", "cannot be told"),
        };
        let (what, why) = (escaped(&gate.what), escaped(&gate.why));
        let _ = write!(
            out,
            "<p>Required: {what}: <span class=\"{class}\">{word}</span> <span class=\"dim\">{why}</span></p>"
        );
    }
}

fn cells(out: &mut String, result: &BenchResult) {
    out.push_str("<h2>Cells</h2><table><tr><th>cell</th><th>tier</th><th>blocks/s</th><th>95 %</th><th>median</th>");
    out.push_str("<th>spread</th><th>ms/block</th><th>syncs/block</th><th></th></tr>");
    for cell in &result.cells {
        let label = escaped(&cell.label());
        let Some((rate, time)) = cell.blocks_per_s.zip(cell.ms_per_block) else { continue };
        let syncs = cell.all_syncs_per_block();
        let why = escaped(cell.inconclusive.as_deref().unwrap_or_default());
        let _ = write!(
            out,
            "<tr><td>{label}</td><td>{}</td><td class=\"n\">{:.1}</td><td class=\"n\">{:.1} to {:.1}</td><td class=\"n\">{:.1}</td>\
             <td class=\"n\">{:.1} %</td><td class=\"n\">{:.3}</td><td class=\"n\">{syncs:.2}</td><td class=\"bad\">{why}</td></tr>",
            escaped(&cell.tier),
            rate.mean.value,
            rate.mean.lo,
            rate.mean.hi,
            rate.median,
            rate.spread * 100.0,
            time.mean.value
        );
    }
    out.push_str("</table>");
}

/// Means with their intervals, and every round that counts as a point.
fn rates(result: &BenchResult) -> Plot {
    let mut plot = Plot::new();
    let counted: Vec<&CellResult> = result.cells.iter().filter(|cell| cell.blocks_per_s.is_some()).collect();
    let labels: Vec<String> = counted.iter().map(|cell| escaped(&cell.label())).collect();
    let of = |take: fn(&crate::bench::statistics::Interval) -> f64| -> Vec<f64> {
        counted.iter().filter_map(|cell| Some(take(&cell.blocks_per_s?.mean))).collect()
    };
    let errors = ErrorData::new(ErrorType::Data).symmetric(true).array(of(|i| (i.hi - i.lo) / 2.0));
    plot.add_trace(Bar::new(labels, of(|i| i.value)).error_y(errors).name("mean"));
    for cell in counted {
        let rates: Vec<f64> = cell.counted().into_values().collect();
        let x = vec![escaped(&cell.label()); rates.len()];
        plot.add_trace(Scatter::new(x, rates).mode(Mode::Markers).show_legend(false));
    }
    plot.set_layout(Layout::new().y_axis(Axis::new().title("blocks/s")));
    plot
}

fn surface(grid: super::Grid) -> Plot {
    let mut plot = Plot::new();
    let z: Vec<Vec<f64>> = grid.rates.iter().map(|row| row.iter().map(|rate| rate.unwrap_or(0.0)).collect()).collect();
    plot.add_trace(HeatMap::new(grid.columns.clone(), grid.rows.clone(), z));
    let axis = |name: &str| Axis::new().title(escaped(name)).type_(plotly::layout::AxisType::Category);
    plot.set_layout(Layout::new().x_axis(axis(&grid.column_axis)).y_axis(axis(&grid.row_axis)));
    plot
}

fn spent(result: &BenchResult) -> Plot {
    let mut plot = Plot::new();
    let labels: Vec<String> = result.cells.iter().map(|cell| escaped(&cell.label())).collect();
    let mut stages: Vec<&String> = result.cells.iter().flat_map(|cell| cell.spent.stages.keys()).collect();
    stages.sort();
    stages.dedup();
    for stage in stages {
        let ms = result.cells.iter().map(|cell| cell.spent.stages.get(stage).copied().unwrap_or(0.0)).collect();
        plot.add_trace(Bar::new(labels.clone(), ms).name(escaped(stage)));
    }
    let syncs = result.cells.iter().map(CellResult::sync_ms_per_block).collect();
    plot.add_trace(Bar::new(labels.clone(), syncs).name("inside syncs"));
    plot.add_trace(Bar::new(labels, result.cells.iter().map(|cell| cell.spent.cpu).collect()).name("CPU"));
    plot.set_layout(Layout::new().y_axis(Axis::new().title("ms a block")));
    plot
}

/// Asked beside measured.
fn latency(out: &mut String, result: &BenchResult) {
    let asked = |cell: &&CellResult| cell.latency.values().any(|of| of.asked.is_some());
    if !result.cells.iter().any(|cell| asked(&cell)) {
        return;
    }
    out.push_str("<h2>Sync latency</h2><table><tr><th>cell</th><th>store</th><th>asked</th><th>syncs</th>");
    out.push_str("<th>p50 µs</th><th>p99 µs</th></tr>");
    let mut plot = Plot::new();
    for cell in result.cells.iter().filter(asked) {
        for (store, of) in &cell.latency {
            let (label, store) = (escaped(&cell.label()), escaped(store));
            let words = escaped(of.asked.as_deref().unwrap_or("as the disk is"));
            let (count, p50, p99) = (of.count, of.p50_us, of.p99_us);
            let _ = write!(
                out,
                "<tr><td>{label}</td><td>{store}</td><td>{words}</td><td class=\"n\">{count}</td><td class=\"n\">{p50}</td>\
                 <td class=\"n\">{p99}</td></tr>"
            );
            let (us, counts): (Vec<u64>, Vec<u64>) = of.histogram.iter().copied().unzip();
            plot.add_trace(Scatter::new(us, counts).mode(Mode::Lines).name(format!("{label}, {store}")));
        }
    }
    out.push_str("</table>");
    let log = Axis::new().title("µs").type_(plotly::layout::AxisType::Log);
    plot.set_layout(Layout::new().x_axis(log).y_axis(Axis::new().title("syncs")));
    out.push_str(&plot.to_inline_html(Some("latency")));
}

fn heights(result: &BenchResult) -> Plot {
    let mut plot = Plot::new();
    let rounds = result.cells.iter().flat_map(|cell| cell.rounds.iter().map(move |round| (cell, round)));
    for (cell, round) in rounds.take(CURVES_MAX) {
        let x: Vec<f64> = round.looks.iter().map(|look| look.at_us as f64 / 1e6).collect();
        let y: Vec<u64> = round.looks.iter().map(|look| look.height).collect();
        let name = format!("{}, round {}", escaped(&cell.label()), round.round);
        plot.add_trace(Scatter::new(x, y).mode(Mode::Lines).name(name));
    }
    let seconds = Axis::new().title("seconds since the node was started");
    plot.set_layout(Layout::new().x_axis(seconds).y_axis(Axis::new().title("height")));
    plot
}

fn setup(out: &mut String, result: &BenchResult) {
    let setup = &result.setup;
    let cores = format!("{:?} node, {:?} peers", setup.node_cpus, setup.peer_cpus);
    let disk = &setup.disk;
    let disk = format!("{}: a sync takes {} µs (p50), {} µs (p99)", disk.filesystem, disk.p50_us, disk.p99_us);
    let rows = [
        ("midflush", setup.midflush.clone()),
        ("engine", setup.engine.clone()),
        ("kernel", setup.kernel.clone()),
        ("processor", format!("{} × {}", setup.cpus, setup.cpu)),
        ("cores", cores),
        ("fixture", setup.fixture.clone()),
        ("disk", disk),
        ("seed", result.seed.to_string()),
        ("run again", result.again.clone()),
    ];
    out.push_str("<h2>Setup</h2><table>");
    for (what, value) in rows {
        let _ = write!(out, "<tr><th>{what}</th><td>{}</td></tr>", escaped(&value));
    }
    for (arm, digest) in &setup.builds {
        let _ = write!(out, "<tr><th>build of {}</th><td>{}</td></tr>", escaped(arm), escaped(digest));
    }
    out.push_str("</table>");
    for note in &result.notes {
        let _ = write!(out, "<p class=\"dim\">{}</p>", escaped(note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::conclude::conclude;
    use crate::bench::sample;

    #[test]
    fn the_page_stands_alone_and_holds_nothing_unescaped() {
        let cell = |arm: &str, peers: &str, disk: &str| {
            sample::cell(arm, &[("peers", peers), ("disk.sync", disk)], &sample::rates(100.0, 0))
        };
        let mut result = sample::result(vec![
            cell("a", "1", "1ms"),
            cell("a", "2", "1ms"),
            cell("a", "1", "4ms"),
            cell("a", "2", "4ms"),
        ]);
        result.notes.push("<script>alert(1)</script>".to_owned());
        conclude(&mut result, &[]);
        let page = html(&result);
        assert!(page.contains("id=\"rates\"") && page.contains("id=\"surface-0\"") && page.contains("id=\"heights\""));
        assert!(!page.contains("<script>alert(1)"));
        let tags = page.match_indices("<script").map(|(at, _)| page[at..].split('>').next().unwrap_or_default());
        assert!(tags.into_iter().all(|tag| !tag.contains("src")), "nothing is loaded from elsewhere");
    }
}
