//! The parts of charts: axes, their marks, lines and numbers.

use std::fmt::Write as _;

/// Width of every chart.
pub(super) const WIDTH: f64 = 420.0;
/// Colours there are; further series begin again, with other dashes.
pub(super) const COLOURS: usize = 7;
/// How lines of the same colour, or without any, differ.
const DASHES: [&str; 7] = ["", "7 4", "2 3", "10 3 2 3", "1 4", "12 4", "4 2"];

/// Room for the marks of an axis that goes up.
pub(super) const LEFT: f64 = 52.0;
/// Height of a chart with lines.
pub(super) const HEIGHT: f64 = 240.0;
/// The height of a chart's lower axis.
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

/// A number in as few characters as show it.
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

/// A logarithmic axis of nanoseconds that goes up.
pub(super) struct Decades {
    low: f64,
    high: f64,
}

impl Decades {
    /// Whole decades around all positive values; `None` if there are none.
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
