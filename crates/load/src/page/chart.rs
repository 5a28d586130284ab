//! Charts as SVG.
//!
//! The idea: each chart is drawn for a width of 420 units and scaled by the browser, so that labels stay readable
//! on a phone. Labels of rows stand above their row, not beside it: they may be long.

use std::fmt::{self, Write as _};

use super::{curve, escape, grid, heat};
use crate::stats::Samples;

/// Width of every chart.
pub(super) const WIDTH: f64 = 420.0;
/// Colours there are; further series begin again, with other dashes.
const COLOURS: usize = 7;
/// How lines of the same colour, or without any, differ.
const DASHES: [&str; 7] = ["", "7 4", "2 3", "10 3 2 3", "1 4", "12 4", "4 2"];
/// What the lines look like in the key.
const MARKS: [&str; 7] = [
    "\u{2501}", "\u{2505}", "\u{2508}", "\u{2504}", "\u{254c}", "\u{254d}", "\u{2509}",
];

/// One bar: its parts lie one behind the other.
#[derive(Debug, Clone)]
pub struct Bar {
    /// What it is of.
    pub label: String,
    /// One value a part.
    pub values: Vec<f64>,
}

/// A row of dots, one for each run.
#[derive(Debug, Clone)]
pub struct Dots {
    /// What it is of.
    pub label: String,
    /// Where they are.
    pub values: Vec<f64>,
}

/// A line.
#[derive(Debug, Clone)]
pub struct Line {
    /// What it is of.
    pub label: String,
    /// Across and up.
    pub points: Vec<(f64, f64)>,
}

/// A column of a heat map: how the latencies of one measurement are spread.
#[derive(Debug, Clone)]
pub struct Column {
    /// Where it stands across.
    pub at: f64,
    /// Quantile and latency in ns, ascending.
    pub spectrum: Vec<(f64, f64)>,
}

/// A cell of a grid.
#[derive(Debug, Clone)]
pub struct Cell {
    /// What stands in it.
    pub text: String,
    /// How many times as bad it is as what it is held against, below 1 better: its tint.
    pub worse: Option<f64>,
}

/// A chart. Values that are no numbers are left out.
#[derive(Debug, Clone)]
pub enum Chart {
    /// Bars from zero.
    Bars {
        /// What it shows.
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
        /// What it shows.
        title: String,
        /// Unit of the values.
        unit: String,
        /// The rows.
        rows: Vec<Dots>,
    },
    /// Latency (up, logarithmic, in ns) at each quantile (across, as nines).
    Spectrum {
        /// What it shows.
        title: String,
        /// Quantile and latency in ns.
        lines: Vec<Line>,
    },
    /// Lines over linear axes from zero.
    Lines {
        /// What it shows.
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
        /// What it shows.
        title: String,
        /// Name and unit of what goes across.
        across: String,
        /// What goes across, and latency in ns.
        lines: Vec<Line>,
        /// Places across that have a name.
        marks: Vec<(String, f64)>,
    },
    /// Figures in rows and columns, tinted by how they compare.
    Grid {
        /// What it shows.
        title: String,
        /// Unit of the figures, and what the tint means.
        unit: String,
        /// Names of the columns.
        columns: Vec<String>,
        /// Each with its name and a cell for each column, if there is anything in it.
        rows: Vec<(String, Vec<Option<Cell>>)>,
    },
    /// How latencies (up, logarithmic, in ns) are spread at each of several measurements.
    Heat {
        /// What it shows.
        title: String,
        /// Name and unit of what goes across.
        across: String,
        /// One a measurement, in their order.
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

pub(super) fn svg(height: f64, body: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">{body}</svg>")
}

/// Round numbers from zero to at least `most`.
pub(super) fn steps(most: f64) -> Vec<f64> {
    let most = if most.is_finite() && most > 0.0 {
        most
    } else {
        1.0
    };
    let raw = most / 4.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|n| n * power)
        .into_iter()
        .find(|step| *step >= raw)
        .unwrap_or(raw);
    let count = (most / step).ceil() as usize;
    (0..=count).map(|n| n as f64 * step).collect()
}

/// A number in as few characters as say it.
pub(super) fn short(n: f64) -> String {
    let (n, suffix) = match n.abs() {
        a if a >= 1e9 => (n / 1e9, "G"),
        a if a >= 1e6 => (n / 1e6, "M"),
        a if a >= 1e4 => (n / 1e3, "k"),
        _ => (n, ""),
    };
    let text = match n.abs() {
        a if a >= 100.0 || a == 0.0 => format!("{n:.0}"),
        a if a >= 10.0 => format!("{n:.1}"),
        a if a >= 1.0 => format!("{n:.2}"),
        _ => format!("{n:.3}"),
    };
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{suffix}")
}

pub(super) fn nanos(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{} s", short(ns / 1e9)),
        ns if ns >= 1e6 => format!("{} ms", short(ns / 1e6)),
        ns if ns >= 1e3 => format!("{} us", short(ns / 1e3)),
        ns => format!("{} ns", short(ns)),
    }
}

fn good(values: &[f64]) -> impl Iterator<Item = f64> + '_ {
    values
        .iter()
        .copied()
        .filter(|v| v.is_finite() && *v >= 0.0)
}

/// Marks of a linear axis at the bottom.
pub(super) fn across(
    body: &mut String,
    steps: &[f64],
    top: f64,
    bottom: f64,
    at: impl Fn(f64) -> f64,
) {
    for (n, step) in steps.iter().enumerate() {
        let x = at(*step);
        let anchor = match n {
            0 => "start",
            n if n + 1 == steps.len() => "end",
            _ => "middle",
        };
        let _ = write!(
            body,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>\
             <text class=\"axis\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            bottom + 14.0,
            short(*step)
        );
    }
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

/// Room for the marks of an axis that goes up.
pub(super) const LEFT: f64 = 52.0;
/// Height of a chart with lines.
pub(super) const HEIGHT: f64 = 240.0;
/// Where its lower axis is.
pub(super) const BOTTOM: f64 = HEIGHT - 22.0;

pub(super) fn path(body: &mut String, number: usize, points: impl Iterator<Item = (f64, f64)>) {
    let mut d = String::new();
    for (n, (x, y)) in points.enumerate() {
        let _ = write!(d, "{}{x:.1} {y:.1}", if n == 0 { 'M' } else { 'L' });
    }
    if d.is_empty() {
        return;
    }
    let colour = number % COLOURS;
    let dash = DASHES[number % DASHES.len()];
    let _ = write!(
        body,
        "<path class=\"s{colour}\" stroke-dasharray=\"{dash}\" d=\"{d}\"/>"
    );
}

pub(super) fn up_mark(body: &mut String, y: f64, label: &str) {
    let _ = write!(
        body,
        "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
        LEFT - 5.0,
        y + 4.0
    );
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

/// A logarithmic axis of nanoseconds that goes up.
pub(super) struct Decades {
    low: f64,
    high: f64,
}

impl Decades {
    /// Whole decades around all that is more than zero; `None` if nothing is.
    pub(super) fn around(values: impl Iterator<Item = f64>) -> Option<Decades> {
        let good = values.filter(|ns| ns.is_finite() && *ns > 0.0);
        let (low, high) = good.fold((f64::MAX, 0.0), |(low, high), ns| {
            (f64::min(low, ns), f64::max(high, ns))
        });
        (high > 0.0).then(|| {
            let low = low.log10().floor();
            let high = high.log10().ceil().max(low + 1.0);
            Decades { low, high }
        })
    }

    pub(super) fn y(&self, ns: f64) -> f64 {
        BOTTOM - (ns.log10() - self.low) / (self.high - self.low) * (BOTTOM - 8.0)
    }

    pub(super) fn marks(&self, body: &mut String) {
        for decade in self.low as i32..=self.high as i32 {
            let ns = 10f64.powi(decade);
            up_mark(body, self.y(ns), &nanos(ns));
        }
    }
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
    fn axes_have_round_numbers_that_reach_the_end() {
        for most in [0.0, 0.003, 1.0, 7.3, 99.0, 123_456.0, f64::NAN] {
            let steps = steps(most);
            assert!((2..=6).contains(&steps.len()), "{most}: {steps:?}");
            let last = *steps.last().unwrap();
            assert!(most.is_nan() || most <= last, "{most}: {steps:?}");
        }
    }

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

    #[test]
    fn numbers_are_short() {
        for (n, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (5.0, "5"),
            (12.5, "12.5"),
            (1234.0, "1234"),
            (25_000.0, "25k"),
            (1.5e6, "1.5M"),
            (100.0, "100"),
        ] {
            assert_eq!(short(n), text);
        }
        assert_eq!(nanos(1_500.0), "1.5 us");
    }
}
