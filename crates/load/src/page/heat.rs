//! How latencies are spread, a column for each measurement: what one percentile over another hides.
//!
//! The idea: a column is cut into cells of equal height on the logarithmic axis, and the share of
//! replies in each is its opacity. One colour in shades needs no legend, and colour-blind readers
//! see the same.

use std::fmt::Write as _;

use super::axes::{BOTTOM, Decades, HEIGHT, LEFT, WIDTH, short, svg};

/// A column of a heat map: how the latencies of one measurement are spread.
#[derive(Debug, Clone)]
pub struct Column {
    /// The horizontal place of the column.
    pub at: f64,
    /// Quantile and latency in ns, ascending.
    pub spectrum: Vec<(f64, f64)>,
}

/// Cells of a column.
const CELLS: usize = 40;

pub(super) fn svg_of(columns: &[Column]) -> String {
    let all = columns.iter().flat_map(|column| &column.spectrum);
    let Some(decades) = Decades::around(all.map(|(_, ns)| *ns)) else {
        return svg(20.0, "<text x=\"2\" y=\"14\">no latencies</text>");
    };
    let mut body = String::new();
    decades.marks(&mut body);
    let width = (WIDTH - LEFT - 4.0) / columns.len() as f64;
    let high = (BOTTOM - 8.0) / CELLS as f64;
    let every = columns.len().div_ceil(7).max(1);
    for (number, column) in columns.iter().enumerate() {
        let x = LEFT + number as f64 * width;
        for (cell, share) in shares(column, &decades).into_iter().enumerate() {
            if share < 1e-5 {
                continue;
            }
            // A share of a thousandth is still seen: that is what tails are.
            let opacity = 0.12 + 0.88 * (1.0 + share.max(1e-4).log10() / 4.0);
            let _ = write!(
                body,
                "<rect class=\"f0\" fill-opacity=\"{opacity:.2}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                 height=\"{high:.1}\"/>",
                x + 0.5,
                8.0 + cell as f64 * high,
                (width - 1.0).max(0.5)
            );
        }
        if number % every == 0 && column.at.is_finite() {
            let _ = write!(
                body,
                "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x + width / 2.0,
                BOTTOM + 14.0,
                short(column.at)
            );
        }
    }
    svg(HEIGHT, &body)
}

/// The share of replies in each cell, from the top. Between two points of a distribution all is as likely.
fn shares(column: &Column, decades: &Decades) -> [f64; CELLS] {
    let mut cells = [0.0; CELLS];
    let (mut before, mut from) = (0.0, None);
    for (quantile, ns) in &column.spectrum {
        if !(ns.is_finite() && *ns > 0.0 && quantile.is_finite()) {
            continue;
        }
        let place = (decades.y(*ns) - 8.0) / (BOTTOM - 8.0) * CELLS as f64;
        let to = (place.max(0.0) as usize).min(CELLS - 1);
        // Slower ones are nearer to the top. The cell of the point before has its share already.
        let last = from.map_or(to, |from: usize| from.saturating_sub(1).max(to));
        let each = (quantile - before).max(0.0) / (last - to + 1) as f64;
        for cell in &mut cells[to..=last] {
            *cell += each;
        }
        before = quantile.max(before);
        from = Some(to);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_replies_are_in_some_cell_and_the_slow_ones_are_on_top() {
        let spectrum = vec![(0.9, 1e6), (0.99, 1e7), (1.0, 1e9)];
        let column = Column { at: 1.0, spectrum };
        let decades = Decades::around([1e6, 1e9].into_iter()).unwrap();
        let cells = shares(&column, &decades);
        assert!((cells.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        // One in a hundred is somewhere in the upper two thirds, nine in ten are at the bottom.
        let upper: f64 = cells[..CELLS * 2 / 3].iter().sum();
        assert!((upper - 0.01).abs() < 1e-3 && (cells[CELLS - 1] - 0.9).abs() < 1e-9);
        assert!(cells.iter().all(|share| *share > 0.0), "no gaps: {cells:?}");
    }
}
