//! What people and programs read of a bench. Pure: a result in, text out.

mod html;
mod json;
mod junit;
mod markdown;
pub mod terminal;

pub use html::html;
pub use json::json;
pub use junit::junit;
pub use markdown::markdown;

use indexmap::IndexSet;

use super::result::BenchResult;
use super::statistics::Interval;

/// A ratio with its interval.
pub(super) fn ratio_words(interval: Option<Interval>) -> String {
    interval.map_or_else(|| "not measured".to_owned(), |of| format!("{:.3} [{:.3}, {:.3}]", of.value, of.lo, of.hi))
}

/// Microseconds as milliseconds.
fn ms(us: f64) -> String {
    format!("{:.3}", us / 1e3)
}

/// Blocks a second of one arm over two axes.
pub(super) struct Grid {
    arm: String,
    row_axis: String,
    column_axis: String,
    rows: Vec<String>,
    columns: Vec<String>,
    /// By row, then by column.
    rates: Vec<Vec<Option<f64>>>,
}

/// One grid for each arm of a bench with exactly two axes.
fn grids(result: &BenchResult) -> Vec<Grid> {
    let Some(first) = result.cells.first().filter(|cell| cell.axes.len() == 2) else { return Vec::new() };
    let axes: Vec<&String> = first.axes.keys().collect();
    let cells = || result.cells.iter().filter(|cell| !cell.twin);
    let values = |axis: &str| {
        let mut seen: Vec<String> = Vec::new();
        for cell in cells() {
            if let Some(value) = cell.axes.get(axis).filter(|value| !seen.contains(value)) {
                seen.push(value.clone());
            }
        }
        seen
    };
    let (rows, columns) = (values(axes[0]), values(axes[1]));
    let arms: IndexSet<&String> = cells().map(|cell| &cell.arm).collect();
    let rate = |arm: &str, row: &String, column: &String| {
        let found = cells().find(|cell| cell.arm == arm && cell.axes[axes[0]] == *row && cell.axes[axes[1]] == *column);
        found.and_then(|cell| cell.blocks_per_s).map(|of| of.mean.value)
    };
    let grid = |arm: &String| Grid {
        arm: arm.clone(),
        row_axis: axes[0].clone(),
        column_axis: axes[1].clone(),
        rates: rows.iter().map(|row| columns.iter().map(|column| rate(arm, row, column)).collect()).collect(),
        rows: rows.clone(),
        columns: columns.clone(),
    };
    arms.into_iter().map(grid).collect()
}
