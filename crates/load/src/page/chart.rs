//! Charts as SVG.
//!
//! The idea: each chart is drawn for a width of 420 units and scaled by the browser, so that labels stay readable
//! on a phone. Labels of rows stand above their row, not beside it: they may be long.

use std::fmt::{self, Write as _};

use super::axes::{
    BOTTOM, COLOURS, Decades, HEIGHT, LEFT, WIDTH, across, path, short, steps, svg, up_mark,
};
use super::curve::{self, Line};
use super::escape::escape;
use super::grid::{self, Cell};
use super::heat::{self, Column};
use super::ratios::{self, Group};
use crate::stats::Samples;

/// The looks of the lines in the key of a chart.
const MARKS: [&str; 7] = [
    "\u{2501}", "\u{2505}", "\u{2508}", "\u{2504}", "\u{254c}", "\u{254d}", "\u{2509}",
];

/// One bar, whose parts lie one behind another.
#[derive(Debug, Clone)]
pub struct Bar {
    /// The label of the bar.
    pub label: String,
    /// One value a part.
    pub values: Vec<f64>,
}

/// A row of dots, one for each run.
#[derive(Debug, Clone)]
pub struct Dots {
    /// The label of the part.
    pub label: String,
    /// The places of the values.
    pub values: Vec<f64>,
}

/// A chart. Values that are no numbers are left out.
#[derive(Debug, Clone)]
pub enum Chart {
    /// Bars from zero.
    Bars {
        /// The chart's title.
        title: String,
        /// Unit of the values.
        unit: String,
        /// Names of the parts of a bar.
        parts: Vec<String>,
        /// The bars.
        bars: Vec<Bar>,
    },
    /// A dot for every run, the median as a stroke.
    Dots {
        /// The chart's title.
        title: String,
        /// Unit of the values.
        unit: String,
        /// The rows.
        rows: Vec<Dots>,
    },
    /// Latency (up, logarithmic, in ns) at each quantile (across, as nines).
    Spectrum {
        /// The chart's title.
        title: String,
        /// Quantile and latency in ns.
        lines: Vec<Line>,
    },
    /// Lines over linear axes from zero.
    Lines {
        /// The chart's title.
        title: String,
        /// Name and unit of what goes across.
        across: String,
        /// Name and unit of what goes up.
        up: String,
        /// The lines.
        lines: Vec<Line>,
    },
    /// Latency (up, logarithmic, in ns) over something, a dot for each measurement.
    Curve {
        /// The chart's title.
        title: String,
        /// Name and unit of what goes across.
        across: String,
        /// Lines of horizontal values against latency in ns.
        lines: Vec<Line>,
        /// Places across that have a name.
        marks: Vec<(String, f64)>,
    },
    /// Figures in rows and columns, tinted by how they compare.
    Grid {
        /// The chart's title.
        title: String,
        /// Unit of the figures, and what the tint means.
        unit: String,
        /// Names of the columns.
        columns: Vec<String>,
        /// The rows: each has a name and, for each column, a cell if it has a value.
        rows: Vec<(String, Vec<Option<Cell>>)>,
    },
    /// A dot and an interval for each of several ratios, over a logarithmic axis around 1.
    Ratios {
        /// What it shows.
        title: String,
        /// What dot, interval and band are.
        unit: String,
        /// What a place left of 1 means.
        less: String,
        /// What a place right of 1 means.
        more: String,
        /// The rows.
        groups: Vec<Group>,
    },
    /// How latencies (up, logarithmic, in ns) are spread at each of several measurements.
    Heat {
        /// The chart's title.
        title: String,
        /// Name and unit of what goes across.
        across: String,
        /// One column a measurement, in their order.
        columns: Vec<Column>,
    },
}

impl fmt::Display for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chart::Bars {
                title,
                unit,
                parts,
                bars,
            } => {
                let key: Vec<&str> = match parts.len() {
                    0 | 1 => Vec::new(),
                    _ => parts.iter().map(String::as_str).collect(),
                };
                figure(f, title, unit, "\u{25a0}", &key, &bars_svg(bars))
            }
            Chart::Dots { title, unit, rows } => figure(f, title, unit, "", &[], &dots_svg(rows)),
            Chart::Spectrum { title, lines } => {
                let key: Vec<&str> = lines.iter().map(|line| &*line.label).collect();
                figure(
                    f,
                    title,
                    "latency at each percentile",
                    "",
                    &key,
                    &spectrum_svg(lines),
                )
            }
            Chart::Lines {
                title,
                across,
                up,
                lines,
            } => {
                let key: Vec<&str> = lines.iter().map(|line| &*line.label).collect();
                let unit = format!("{up}, over {across}");
                figure(f, title, &unit, "", &key, &lines_svg(lines))
            }
            Chart::Curve {
                title,
                across,
                lines,
                marks,
            } => {
                let key: Vec<&str> = lines.iter().map(|line| &*line.label).collect();
                let unit = format!("latency, over {across}");
                figure(f, title, &unit, "", &key, &curve::svg_of(lines, marks))
            }
            Chart::Grid {
                title,
                unit,
                columns,
                rows,
            } => grid::figure(f, title, unit, columns, rows),
            Chart::Ratios {
                title,
                unit,
                less,
                more,
                groups,
            } => ratios::figure(f, [title, unit, less, more], groups),
            Chart::Heat {
                title,
                across,
                columns,
            } => {
                let unit = format!("latency, over {across}; the darker, the more replies");
                figure(f, title, &unit, "", &[], &heat::svg_of(columns))
            }
        }
    }
}

/// The frame of a chart. Without a mark, the key shows lines.
fn figure(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    unit: &str,
    mark: &str,
    key: &[&str],
    svg: &str,
) -> fmt::Result {
    writeln!(f, "<figure><figcaption>{}</figcaption>", escape(title))?;
    writeln!(f, "<div class=\"key\">{}</div>", escape(unit))?;
    if !key.is_empty() {
        write!(f, "<div class=\"key\">")?;
        for (n, name) in key.iter().enumerate() {
            let mark = if mark.is_empty() {
                MARKS[n % MARKS.len()]
            } else {
                mark
            };
            let colour = n % COLOURS;
            write!(
                f,
                "<span class=\"k{colour}\" data-mark=\"{mark}\">{}</span>",
                escape(name)
            )?;
        }
        writeln!(f, "</div>")?;
    }
    writeln!(f, "{svg}</figure>")
}

fn good(values: &[f64]) -> impl Iterator<Item = f64> + '_ {
    values
        .iter()
        .copied()
        .filter(|v| v.is_finite() && *v >= 0.0)
}

/// A label that leaves room for its value: what is cut off stands in the table beside the chart.
fn fitting(label: &str) -> String {
    match label.char_indices().nth(LABEL_MAX) {
        Some((end, _)) => format!("{}\u{2026}", &label[..end]),
        None => label.to_owned(),
    }
}

/// Characters of a label inside of a chart.
const LABEL_MAX: usize = 44;

/// Height of a row with its label.
const ROW: f64 = 38.0;

fn bars_svg(bars: &[Bar]) -> String {
    let whole = |bar: &Bar| good(&bar.values).sum::<f64>();
    let most = bars.iter().map(whole).fold(0.0, f64::max);
    let steps = steps(most);
    let end = steps.last().copied().unwrap_or(1.0);
    let at = |value: f64| value / end * (WIDTH - 2.0) + 1.0;
    let bottom = bars.len() as f64 * ROW;
    let mut body = String::new();
    across(&mut body, &steps, 0.0, bottom, at);
    for (row, bar) in bars.iter().enumerate() {
        let y = row as f64 * ROW;
        let _ = write!(
            body,
            "<text x=\"2\" y=\"{:.1}\">{}: {}</text>",
            y + 13.0,
            escape(&fitting(&bar.label)),
            short(whole(bar))
        );
        let mut from = 0.0;
        for (part, value) in bar.values.iter().enumerate() {
            if !value.is_finite() || *value < 0.0 {
                continue;
            }
            let _ = write!(
                body,
                "<rect class=\"f{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\"/>",
                part % COLOURS,
                at(from),
                y + 18.0,
                (at(from + value) - at(from) - 0.5).max(0.5)
            );
            from += value;
        }
    }
    svg(bottom + 20.0, &body)
}

fn dots_svg(rows: &[Dots]) -> String {
    let most = rows
        .iter()
        .flat_map(|row| good(&row.values))
        .fold(0.0, f64::max);
    let steps = steps(most);
    let end = steps.last().copied().unwrap_or(1.0);
    let at = |value: f64| value / end * (WIDTH - 10.0) + 5.0;
    let bottom = rows.len() as f64 * ROW;
    let mut body = String::new();
    across(&mut body, &steps, 0.0, bottom, at);
    for (row, dots) in rows.iter().enumerate() {
        let y = row as f64 * ROW;
        let mut values: Vec<f64> = good(&dots.values).collect();
        values.sort_by(f64::total_cmp);
        let median = Samples::new(values.iter().copied()).ok();
        let median = median.map(|all| all.median());
        let shown = median.map_or_else(String::new, short);
        let _ = write!(
            body,
            "<text x=\"2\" y=\"{:.1}\">{}: {shown}</text>",
            y + 13.0,
            escape(&fitting(&dots.label))
        );
        for (n, value) in values.iter().enumerate() {
            // A little up and down, so that equal ones are seen.
            let wiggle = [0.0, 3.0, -3.0][n % 3];
            let _ = write!(
                body,
                "<circle class=\"f0\" fill-opacity=\"0.6\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                at(*value),
                y + 25.0 + wiggle
            );
        }
        if let Some(median) = median {
            let x = at(median);
            let _ = write!(
                body,
                "<line class=\"s1\" stroke-width=\"2.5\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                y + 17.0,
                y + 33.0
            );
        }
    }
    svg(bottom + 20.0, &body)
}

fn spectrum_svg(lines: &[Line]) -> String {
    // Nines: 0 is the shortest, 1 is p90, 3 is p99.9.
    let nines = |quantile: f64| -(1.0 - quantile.clamp(0.0, 0.999_999)).log10();
    let fits = |&&(q, ns): &&(f64, f64)| q.is_finite() && ns.is_finite() && ns > 0.0 && q < 1.0;
    let all = || {
        lines
            .iter()
            .flat_map(|line| line.points.iter().filter(fits))
    };
    let furthest = all().map(|(q, _)| nines(*q)).fold(1.0, f64::max).ceil();
    let Some(decades) = Decades::around(all().map(|(_, ns)| *ns)) else {
        return svg(20.0, "<text x=\"2\" y=\"14\">no latencies</text>");
    };
    let x = |quantile: f64| LEFT + nines(quantile) / furthest * (WIDTH - LEFT - 4.0);
    let y = |ns: f64| decades.y(ns);
    let mut body = String::new();
    decades.marks(&mut body);
    let marks = [
        (0.0, "p0"),
        (0.5, "p50"),
        (0.9, "p90"),
        (0.99, "p99"),
        (0.999, "p99.9"),
        (0.9999, "p99.99"),
    ];
    for (quantile, label) in marks {
        if nines(quantile) > furthest {
            break;
        }
        let at = x(quantile);
        let anchor = if at > WIDTH - 30.0 { "end" } else { "middle" };
        let _ = write!(
            body,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"8\" y2=\"{BOTTOM}\"/>\
             <text class=\"axis\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>",
            BOTTOM + 14.0
        );
    }
    for (number, line) in lines.iter().enumerate() {
        let points = line.points.iter().filter(fits);
        path(&mut body, number, points.map(|(q, ns)| (x(*q), y(*ns))));
    }
    svg(HEIGHT, &body)
}

fn lines_svg(lines: &[Line]) -> String {
    let fits = |&&(x, y): &&(f64, f64)| x.is_finite() && y.is_finite() && x >= 0.0 && y >= 0.0;
    let all = || {
        lines
            .iter()
            .flat_map(|line| line.points.iter().filter(fits))
    };
    let right = steps(all().map(|(x, _)| *x).fold(0.0, f64::max));
    let high = steps(all().map(|(_, y)| *y).fold(0.0, f64::max));
    let last = |steps: &[f64]| steps.last().copied().unwrap_or(1.0);
    let (width, height) = (last(&right), last(&high));
    let x = |value: f64| LEFT + value / width * (WIDTH - LEFT - 4.0);
    let y = |value: f64| BOTTOM - value / height * (BOTTOM - 8.0);
    let mut body = String::new();
    for step in &high {
        up_mark(&mut body, y(*step), &short(*step));
    }
    across(&mut body, &right, 8.0, BOTTOM, x);
    for (number, line) in lines.iter().enumerate() {
        let points = line.points.iter().filter(fits);
        path(&mut body, number, points.map(|(a, b)| (x(*a), y(*b))));
    }
    svg(HEIGHT, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_labels_are_cut_between_characters() {
        assert_eq!(fitting("short"), "short");
        let cut = fitting(&"\u{e9}".repeat(100));
        assert_eq!(cut.chars().count(), LABEL_MAX + 1);
    }

    #[test]
    fn the_stroke_of_an_even_number_of_dots_is_between_the_two_in_the_middle() {
        let row = Dots {
            label: "runs".into(),
            values: vec![1.0, 2.0, 4.0, 100.0],
        };
        assert!(dots_svg(&[row]).contains("runs: 3<"));
    }
}
