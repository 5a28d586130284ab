//! Ratios with their intervals on one logarithmic axis: the picture with which a report begins.
//!
//! The idea: each lane is a row of a table with a small drawing in its middle cell, so that names and figures keep
//! the size of text on every screen, and nothing has to be scrolled sideways. Places in a drawing are percent of its
//! width. What a difference means is told by place and shape; colour only repeats it.

use std::fmt::{self, Write as _};

use super::escape::escape;
use crate::stats::Estimate;

/// The difference from 1 that may be claimed of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// A difference for the better is shown.
    Better,
    /// A difference for the worse is shown.
    Worse,
    /// A difference is shown that is neither better nor worse.
    Other,
    /// No difference is shown.
    NotShown,
}

/// A dot and its interval.
#[derive(Debug, Clone)]
pub struct Lane {
    /// Name of what is compared.
    pub label: String,
    /// The ratio; without one, the lane says so.
    pub ratio: Option<Estimate>,
    /// How far the ratio of two equal servers reaches, as a factor of at least 1: the grey band.
    pub equal: Option<f64>,
    /// What may be claimed of the ratio.
    pub difference: Difference,
}

/// Lanes that belong together: a row of the picture.
#[derive(Debug, Clone)]
pub struct Group {
    /// Name of the row; may be empty where there is only one.
    pub label: String,
    /// More about the row.
    pub remark: String,
    /// The lanes, in an order that all rows have in common.
    pub lanes: Vec<Lane>,
}

/// Marks an axis may have, the more important first.
const MARKS: [f64; 23] = [
    1.0, 2.0, 0.5, 10.0, 0.1, 5.0, 0.2, 100.0, 0.01, 1.5, 0.67, 3.0, 0.33, 1.2, 0.8, 1.1, 0.9,
    1.05, 0.95, 20.0, 0.05, 50.0, 0.02,
];
/// Marks are at least so many percent of the width apart: on a phone their labels have room.
const APART: f64 = 15.0;
/// Percent of the width on both sides of all that is drawn.
const MARGIN: f64 = 4.0;
/// Height of a lane, in pixels.
const HEIGHT: u32 = 18;

/// A logarithmic axis around 1, in percent of the width.
struct Axis {
    low: f64,
    high: f64,
}

/// Whether a ratio can be drawn.
fn fits(ratio: &Estimate) -> bool {
    let all = [ratio.low, ratio.value, ratio.high];
    all.iter().all(|of| of.is_finite() && *of > 0.0)
}

impl Axis {
    fn around(groups: &[Group]) -> Axis {
        let mut axis = Axis {
            low: 0.9f64.ln(),
            high: 1.1f64.ln(),
        };
        for lane in groups.iter().flat_map(|group| &group.lanes) {
            let ratio = lane.ratio.filter(fits);
            let ends = ratio.map(|ratio| (ratio.low.ln(), ratio.high.ln()));
            let band = lane.reach().map(|reach| (-reach.ln(), reach.ln()));
            for (low, high) in ends.into_iter().chain(band) {
                axis.low = axis.low.min(low);
                axis.high = axis.high.max(high);
            }
        }
        axis
    }

    fn at(&self, ratio: f64) -> f64 {
        let share = (ratio.ln() - self.low) / (self.high - self.low);
        MARGIN + share * (100.0 - 2.0 * MARGIN)
    }

    /// Round ratios with room between them.
    fn marks(&self) -> Vec<f64> {
        let mut chosen: Vec<f64> = Vec::new();
        for mark in MARKS {
            let at = self.at(mark);
            let is_inside = (MARGIN..=100.0 - MARGIN).contains(&at);
            if is_inside
                && chosen
                    .iter()
                    .all(|other| (self.at(*other) - at).abs() >= APART)
            {
                chosen.push(mark);
            }
        }
        chosen
    }
}

impl Lane {
    /// How far the grey band reaches, where it can be drawn.
    fn reach(&self) -> Option<f64> {
        self.equal
            .filter(|reach| reach.is_finite() && *reach >= 1.0)
    }

    fn drawing(&self, axis: &Axis, marks: &[f64]) -> String {
        let mut body = String::new();
        // A string takes everything.
        if let Some(reach) = self.reach() {
            let from = axis.at(1.0 / reach);
            let width = (axis.at(reach) - from).max(0.4);
            let _ = write!(
                body,
                "<rect class=\"band\" x=\"{from:.2}%\" y=\"0\" width=\"{width:.2}%\" height=\"{HEIGHT}\"/>"
            );
        }
        for mark in marks {
            let class = if *mark == 1.0 { "one" } else { "grid" };
            let at = axis.at(*mark);
            let _ = write!(
                body,
                "<line class=\"{class}\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"{HEIGHT}\"/>"
            );
        }
        if let Some(ratio) = self.ratio.filter(fits) {
            let class = match self.difference {
                Difference::Better => "better",
                Difference::Worse => "worse",
                Difference::Other => "other",
                Difference::NotShown => "open",
            };
            let middle = HEIGHT / 2;
            let [low, at, high] = [ratio.low, ratio.value, ratio.high].map(|of| axis.at(of));
            let _ = write!(
                body,
                "<line class=\"reach {class}\" x1=\"{low:.2}%\" x2=\"{high:.2}%\" y1=\"{middle}\" y2=\"{middle}\"/>\
                 <circle class=\"dot {class}\" cx=\"{at:.2}%\" cy=\"{middle}\" r=\"4.5\"/>"
            );
        }
        format!("<svg width=\"100%\" height=\"{HEIGHT}\" aria-hidden=\"true\">{body}</svg>")
    }
}

/// A ratio in as many digits as say something.
fn ratio(value: f64) -> String {
    match value {
        10.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A mark of the axis.
fn mark(value: f64) -> String {
    format!("{}", (value * 100.0).round() / 100.0)
}

pub(super) fn figure(
    f: &mut fmt::Formatter<'_>,
    [title, unit, less, more]: [&str; 4],
    groups: &[Group],
) -> fmt::Result {
    let axis = Axis::around(groups);
    let marks = axis.marks();
    writeln!(
        f,
        "<figure class=\"full ratios\"><figcaption>{}</figcaption>\n<div class=\"key\">{}</div>\n\
         <div class=\"ends\"><span>\u{2190} {}</span><span>{} \u{2192}</span></div>\n<table>",
        escape(title),
        escape(unit),
        escape(less),
        escape(more)
    )?;
    write!(
        f,
        "<thead><tr><th class=\"name\"></th><td class=\"plot\"><svg width=\"100%\" height=\"{HEIGHT}\">"
    )?;
    for of in &marks {
        write!(
            f,
            "<text class=\"axis\" x=\"{:.2}%\" y=\"13\" text-anchor=\"middle\">{}</text>",
            axis.at(*of),
            mark(*of)
        )?;
    }
    writeln!(f, "</svg></td><td class=\"value\">ratio</td></tr></thead>")?;
    for group in groups {
        writeln!(f, "<tbody>")?;
        if !group.label.is_empty() {
            writeln!(
                f,
                "<tr><th class=\"group\" colspan=\"3\" scope=\"rowgroup\">{} <span>{}</span></th></tr>",
                escape(&group.label),
                escape(&group.remark)
            )?;
        }
        for lane in &group.lanes {
            let value = match lane.ratio.filter(fits) {
                Some(of) => format!(
                    "{} <span>({} to {})</span>",
                    ratio(of.value),
                    ratio(of.low),
                    ratio(of.high)
                ),
                None => "-".to_owned(),
            };
            writeln!(
                f,
                "<tr><th class=\"name\" scope=\"row\">{}</th><td class=\"plot\">{}</td><td class=\"value\">{value}</td></tr>",
                escape(&lane.label),
                lane.drawing(&axis, &marks)
            )?;
        }
        writeln!(f, "</tbody>")?;
    }
    writeln!(f, "</table></figure>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(value: f64, low: f64, high: f64) -> Lane {
        Lane {
            label: "s".into(),
            ratio: Some(Estimate { value, low, high }),
            equal: Some(1.1),
            difference: Difference::Worse,
        }
    }

    fn group(lanes: Vec<Lane>) -> Vec<Group> {
        vec![Group {
            label: "w".into(),
            remark: String::new(),
            lanes,
        }]
    }

    #[test]
    fn all_that_is_drawn_is_on_the_axis_and_equal_factors_are_equally_far() {
        let axis = Axis::around(&group(vec![lane(2.0, 1.8, 4.0), lane(0.01, 0.005, 0.02)]));
        for ratio in [4.0, 0.005, 1.1, 1.0 / 1.1] {
            let at = axis.at(ratio);
            assert!(
                (MARGIN - 0.01..=100.01 - MARGIN).contains(&at),
                "{ratio}: {at}"
            );
        }
        let step = |from: f64| axis.at(from * 2.0) - axis.at(from);
        assert!((step(0.01) - step(2.0)).abs() < 1e-9);
    }

    #[test]
    fn marks_have_room_and_one_is_among_them() {
        for widest in [1.0, 1.05, 1.3, 3.0, 80.0, 5000.0] {
            let axis = Axis::around(&group(vec![lane(1.0, 1.0 / widest, widest)]));
            let marks = axis.marks();
            assert!(
                marks.contains(&1.0) && marks.len() >= 3,
                "{widest}: {marks:?}"
            );
            for (n, a) in marks.iter().enumerate() {
                let others = marks[n + 1..].iter();
                assert!(
                    others
                        .map(|b| (axis.at(*a) - axis.at(*b)).abs())
                        .all(|far| far >= APART)
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_a_dash() {
        struct Drawn(Vec<Group>);
        impl fmt::Display for Drawn {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                figure(f, ["t", "u", "less", "more"], &self.0)
            }
        }
        let mut lanes = vec![
            lane(f64::NAN, 1.0, 2.0),
            lane(1.0, 0.0, 2.0),
            lane(1.0, 1.0, f64::INFINITY),
        ];
        lanes[0].equal = Some(f64::NAN);
        lanes[1].equal = Some(0.5);
        lanes[2].equal = None;
        let text = Drawn(group(lanes)).to_string();
        assert_eq!(
            text.matches("<td class=\"value\">-</td>").count(),
            3,
            "{text}"
        );
        assert!(
            !text.contains("NaN") && !text.contains("inf") && !text.contains("circle"),
            "{text}"
        );
        let text = Drawn(group(vec![lane(1.2, 1.1, 1.3)])).to_string();
        assert!(
            text.contains("1.20 <span>(1.10 to 1.30)</span>") && text.contains("band"),
            "{text}"
        );
    }
}
