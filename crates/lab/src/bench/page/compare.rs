//! Two results on disk, as a page.

use tidewire_load::environment::Environment;
use tidewire_load::page::{Bar, Chart, Dots, Group, Lane, Line, Page, Section};
use tidewire_load::stats::Samples;

use super::{command, stacked};

/// A row that both results have, with its data for charts.
pub(in crate::bench) struct Pair {
    pub(in crate::bench) name: String,
    pub(in crate::bench) sentence: String,
    /// After by before, as the picture has it.
    pub(in crate::bench) lane: Lane,
    pub(in crate::bench) before: Runs,
    pub(in crate::bench) after: Runs,
}

/// The runs of one result.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::bench) struct Runs {
    /// Values of the metric that is compared.
    pub(in crate::bench) compared: Vec<f64>,
    pub(in crate::bench) cpu: Vec<f64>,
    pub(in crate::bench) user: Vec<f64>,
    pub(in crate::bench) system: Vec<f64>,
    pub(in crate::bench) rate: Vec<f64>,
    /// Quantiles and latencies in ns of the run in the middle, where the file has them.
    pub(in crate::bench) spectrum: Vec<(f64, f64)>,
}

/// The page; `data` is all of it as JSON.
pub(in crate::bench) fn page(
    verdict: &str,
    metric: &str,
    table: Vec<Vec<String>>,
    pairs: &[Pair],
    data: String,
    facts: &Environment,
) -> Page {
    let overview = Section {
        heading: "What has changed".into(),
        sentences: vec![format!(
            "{metric}, after by before, medians with 95 % intervals. The two were not measured in turns: what \
             changed on the machine between them is in it."
        )],
        table,
        ..Section::default()
    };
    let each = pairs.iter().map(|pair| Section {
        heading: pair.name.clone(),
        sentences: vec![pair.sentence.clone()],
        charts: charts(pair, metric),
        ..Section::default()
    });
    Page {
        title: "Two results compared".into(),
        verdict: vec![verdict.to_owned()],
        picture: picture(metric, pairs),
        sections: std::iter::once(overview).chain(each).collect(),
        facts: facts.facts(),
        commands: vec![command()],
        data,
        ..Page::default()
    }
}

/// Every pair on one axis.
fn picture(metric: &str, pairs: &[Pair]) -> Option<Chart> {
    (!pairs.is_empty()).then(|| Chart::Ratios {
        title: format!("{metric}, after divided by before"),
        unit: "Dot: ratio of the medians. Line: its 95 % interval. Grey: how far two equal servers differed. Full dot: a \
               change is shown (blue: better, orange: worse). Hollow dot: none is shown."
            .into(),
        less: "lower after".into(),
        more: "higher after".into(),
        groups: vec![Group {
            label: String::new(),
            remark: String::new(),
            lanes: pairs.iter().map(|pair| pair.lane.clone()).collect(),
        }],
    })
}

fn charts(pair: &Pair, metric: &str) -> Vec<Chart> {
    let both = [("before", &pair.before), ("after", &pair.after)];
    let median = |of: &[f64]| Samples::new(of.iter().copied()).ok().map(|of| of.median());
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
    let mut charts = Vec::new();
    if both.iter().any(|(_, runs)| !runs.cpu.is_empty()) {
        let bars = both.iter().filter_map(|(label, runs)| {
            Some(Bar {
                label: (*label).into(),
                values: stacked(median(&runs.cpu)?, mean(&runs.user), mean(&runs.system)),
            })
        });
        charts.push(Chart::Bars {
            title: "Server CPU for each request".into(),
            unit: "microseconds, median of the runs".into(),
            parts: vec!["user".into(), "system".into()],
            bars: bars.collect(),
        });
    }
    if both.iter().any(|(_, runs)| !runs.rate.is_empty()) {
        let bars = both.iter().map(|(label, runs)| Bar {
            label: (*label).into(),
            values: median(&runs.rate).into_iter().collect(),
        });
        charts.push(Chart::Bars {
            title: "Throughput".into(),
            unit: "a second, median of the runs".into(),
            parts: vec!["rate".into()],
            bars: bars.collect(),
        });
    }
    charts.push(Chart::Dots {
        title: "Every run".into(),
        unit: format!("{metric}; the stroke is the median"),
        rows: both
            .iter()
            .map(|(label, runs)| Dots {
                label: (*label).into(),
                values: runs.compared.clone(),
            })
            .collect(),
    });
    charts.push(Chart::Lines {
        title: "Course of the runs".into(),
        across: "rounds".into(),
        up: metric.into(),
        lines: both
            .iter()
            .map(|(label, runs)| Line {
                label: (*label).into(),
                points: (1u32..)
                    .zip(&runs.compared)
                    .map(|(round, of)| (f64::from(round), *of))
                    .collect(),
            })
            .collect(),
    });
    if both.iter().any(|(_, runs)| !runs.spectrum.is_empty()) {
        charts.push(Chart::Spectrum {
            title: "Latency, the middle run of each".into(),
            lines: both
                .iter()
                .map(|(label, runs)| Line {
                    label: (*label).into(),
                    points: runs.spectrum.clone(),
                })
                .collect(),
        });
    }
    charts
}
