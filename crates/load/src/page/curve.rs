//! Latency over a rate: a line with a dot for each measurement, and places with names, such as the knee.

use std::fmt::Write as _;

use super::axes::{BOTTOM, Decades, HEIGHT, LEFT, WIDTH, across, path, steps, svg};
use super::escape::escape;

/// A line.
#[derive(Debug, Clone)]
pub struct Line {
    /// The label of the curve.
    pub label: String,
    /// Across and up.
    pub points: Vec<(f64, f64)>,
}

pub(super) fn svg_of(lines: &[Line], marks: &[(String, f64)]) -> String {
    let fits = |&&(x, ns): &&(f64, f64)| x.is_finite() && x >= 0.0 && ns.is_finite() && ns > 0.0;
    let all = || {
        lines
            .iter()
            .flat_map(|line| line.points.iter().filter(fits))
    };
    let Some(decades) = Decades::around(all().map(|(_, ns)| *ns)) else {
        return svg(20.0, "<text x=\"2\" y=\"14\">no latencies</text>");
    };
    let right = steps(all().map(|(x, _)| *x).fold(0.0, f64::max));
    let width = right.last().copied().unwrap_or(1.0);
    let x = |value: f64| LEFT + value / width * (WIDTH - LEFT - 4.0);
    let mut body = String::new();
    decades.marks(&mut body);
    across(&mut body, &right, 8.0, BOTTOM, x);
    for (name, at) in marks {
        if !(0.0..=width).contains(at) {
            continue;
        }
        let (at, anchor) = (x(*at), if *at > width / 2.0 { "end" } else { "start" });
        let beside = if anchor == "end" { -4.0 } else { 4.0 };
        let _ = write!(
            body,
            "<line class=\"s6\" stroke-dasharray=\"3 3\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"8\" \
             y2=\"{BOTTOM}\"/><text x=\"{:.1}\" y=\"19\" text-anchor=\"{anchor}\">{}</text>",
            at + beside,
            escape(name)
        );
    }
    for (number, line) in lines.iter().enumerate() {
        let points: Vec<(f64, f64)> = line
            .points
            .iter()
            .filter(fits)
            .map(|(a, ns)| (x(*a), decades.y(*ns)))
            .collect();
        path(&mut body, number, points.iter().copied());
        for (x, y) in points {
            let colour = number % 7;
            let _ = write!(
                body,
                "<circle class=\"f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
            );
        }
    }
    svg(HEIGHT, &body)
}
