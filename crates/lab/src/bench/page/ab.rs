//! Two servers in turns, as a page.

use tidewire_load::abba::{Better, Comparison, MetricComparison, Sample, Side};
use tidewire_load::environment::Environment;
use tidewire_load::page::{Bar, Chart, Difference, Dots, Group, Lane, Line, Page, Section};
use tidewire_load::stats::{Estimate, Samples};
use tidewire_load::workload::Outcome;

use super::{command, stacked};
use tidewire_load::numbers::grouped;

const CPU: &str = "server_cpu_ns_per_request";

/// A page's data of a run, beside its figures.
pub(in crate::bench) struct Spread {
    sent: Vec<(f64, f64)>,
    intended: Option<Vec<(f64, f64)>>,
    p99_ns: u64,
}

impl Spread {
    pub(in crate::bench) fn of(outcome: &Outcome) -> Spread {
        let points = |of: &tidewire_load::histogram::Latencies| {
            let spectrum = of.spectrum();
            let points = spectrum.iter().map(|at| (at.quantile, at.ns as f64));
            points.collect::<Vec<_>>()
        };
        let histograms = &outcome.histograms;
        Spread {
            sent: points(&histograms.sent),
            intended: histograms.intended.as_ref().map(points),
            p99_ns: histograms.felt().quantile_ns(0.99),
        }
    }
}

/// A side with its runs' distributions.
pub(in crate::bench) struct Shown<'a> {
    pub(in crate::bench) side: Side,
    /// The label of the series.
    pub(in crate::bench) label: String,
    pub(in crate::bench) spreads: &'a [Spread],
}

/// The sentences about a comparison.
pub(in crate::bench) struct Said {
    pub(in crate::bench) verdict: Vec<String>,
    /// Nothing is said of single figures.
    pub(in crate::bench) is_kept_back: bool,
    pub(in crate::bench) remarks: Vec<String>,
}

/// The page; `data` is all of it as JSON.
pub(in crate::bench) fn page(
    title: String,
    comparison: &Comparison,
    sides: &[Shown<'_>],
    said: Said,
    data: String,
    facts: &Environment,
) -> Page {
    let notes = comparison.notes.iter();
    let notes = notes.map(|note| format!("{}: {} ({} runs)", note.side, note.text, note.runs));
    Page {
        title,
        verdict: said.verdict,
        picture: picture(comparison, said.is_kept_back),
        sections: vec![Section {
            heading: "What came out".into(),
            sentences: vec![format!(
                "A is {}, B is {}. Runs of both were made in turns, in isolation: while one was under load, the \
                 other was not. The control is a second server like A.",
                comparison.a, comparison.b
            )],
            doubts: said.remarks.into_iter().chain(notes).collect(),
            table: table(comparison, said.is_kept_back),
            charts: charts(comparison, sides),
        }],
        facts: facts.facts(),
        commands: vec![command()],
        data,
        ..Page::default()
    }
}

/// Every figure of B beside that of A.
fn picture(comparison: &Comparison, is_kept_back: bool) -> Option<Chart> {
    let lane = |metric: &MetricComparison| {
        let ratio = metric.ratio?;
        let is_higher = ratio.value > 1.0;
        let difference = match (metric.better, is_higher) {
            _ if is_kept_back || !metric.verdict.is_shown() => Difference::NotShown,
            (Better::Neither, _) => Difference::Other,
            (Better::Higher, true) | (Better::Lower, false) => Difference::Better,
            (Better::Higher, false) | (Better::Lower, true) => Difference::Worse,
        };
        let (label, _) = label(&metric.name);
        Some(Lane {
            label: label.split(", ").next().unwrap_or_default().to_owned(),
            ratio: Some(ratio),
            equal: metric.control_reach(),
            difference,
        })
    };
    let lanes: Vec<Lane> = comparison.metrics.iter().filter_map(lane).collect();
    (!lanes.is_empty()).then(|| Chart::Ratios {
        title: format!("{} divided by {}, figure by figure", comparison.b, comparison.a),
        unit: format!(
            "Dot: median of the rounds. Line: its 95 % interval. Grey: how far a second server like {} differed from it. Full \
             dot: a difference is shown (blue: {} is better, orange: it is worse). Hollow dot: none is shown.",
            comparison.a, comparison.b
        ),
        less: format!("lower than {}", comparison.a),
        more: "higher".into(),
        groups: vec![Group {
            label: String::new(),
            remark: String::new(),
            lanes,
        }],
    })
}

fn table(comparison: &Comparison, is_kept_back: bool) -> Vec<Vec<String>> {
    let head = [
        "figure",
        "A",
        "B",
        "B/A",
        "interval",
        "A/A",
        "what it means",
    ];
    let of = |ratio: Option<Estimate>| {
        ratio.map_or(["-".to_owned(), "-".to_owned()], |ratio| {
            let interval = format!("{:.3}..{:.3}", ratio.low, ratio.high);
            [format!("{:.3}", ratio.value), interval]
        })
    };
    let rows = comparison.metrics.iter().map(|metric| {
        let [ratio, interval] = of(metric.ratio);
        let [_, control] = of(metric.control_ratio);
        let (label, scale) = label(&metric.name);
        let figure = |value: f64| match value * scale {
            value if value.abs() >= 1_000.0 => grouped(value),
            value if value.abs() >= 100.0 => format!("{value:.0}"),
            value => format!("{value:.2}"),
        };
        vec![
            label,
            figure(metric.a.median),
            figure(metric.b.median),
            ratio,
            interval,
            control,
            match is_kept_back {
                true => "kept back".to_owned(),
                false => metric.sentence(),
            },
        ]
    });
    std::iter::once(head.map(str::to_owned).to_vec())
        .chain(rows)
        .collect()
}

/// A metric's name for people, and by how much its values are scaled for them: times in microseconds, shares in percent.
fn label(name: &str) -> (String, f64) {
    let (label, scale) = match (name.split_once("_ns"), name.strip_suffix("_share")) {
        (Some((of, per)), _) => (format!("{of}{per}, us"), 1e-3),
        (None, Some(of)) => (format!("{of}, %"), 100.0),
        (None, None) => (name.to_owned(), 1.0),
    };
    let words = label.replace("p99_9", "p99.9").replace('_', " ");
    let words = words
        .replace(" cpu ", " CPU ")
        .replace("mib ", "MiB ")
        .replace(" kib", " KiB");
    (words, scale)
}

fn charts(comparison: &Comparison, sides: &[Shown<'_>]) -> Vec<Chart> {
    let runs = |shown: &Shown<'_>, metric: &str| -> Vec<f64> {
        let runs = comparison.recording.runs_of(shown.side).iter();
        runs.filter_map(|run: &Sample| run.value(metric)).collect()
    };
    let middle = |shown: &Shown<'_>, metric: &str| {
        Samples::new(runs(shown, metric)).ok().map(|of| of.median())
    };
    let mean = |shown: &Shown<'_>, metric: &str| {
        let values = runs(shown, metric);
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    let mut charts = Vec::new();
    if comparison.metric(CPU).is_some() {
        let bars = sides.iter().filter_map(|side| {
            let [user, system] = ["server_user_ns_per_request", "server_system_ns_per_request"]
                .map(|of| mean(side, of));
            Some(Bar {
                label: side.label.clone(),
                values: stacked(middle(side, CPU)?, user, system),
            })
        });
        charts.push(Chart::Bars {
            title: "Server CPU for each request".into(),
            unit: "microseconds, median of the runs".into(),
            parts: vec!["user".into(), "system".into()],
            bars: bars.collect(),
        });
    }
    let bars = sides.iter().map(|side| Bar {
        label: side.label.clone(),
        values: middle(side, "requests_per_second").into_iter().collect(),
    });
    charts.push(Chart::Bars {
        title: "Throughput".into(),
        unit: "a second, median of the runs".into(),
        parts: vec!["rate".into()],
        bars: bars.collect(),
    });
    let first = match comparison.metric(CPU) {
        Some(_) => (CPU, 1e3, "microseconds of server CPU for each request"),
        None => ("requests_per_second", 1.0, "answered a second"),
    };
    let (metric, scale, unit) = first;
    charts.push(Chart::Dots {
        title: "Every run".into(),
        unit: format!("{unit}; the stroke is the median"),
        rows: sides
            .iter()
            .map(|side| Dots {
                label: side.label.clone(),
                values: runs(side, metric).iter().map(|of| of / scale).collect(),
            })
            .collect(),
    });
    charts.push(Chart::Lines {
        title: "Course of the comparison".into(),
        across: "rounds".into(),
        up: unit.into(),
        lines: sides
            .iter()
            .map(|side| Line {
                label: side.label.clone(),
                points: (1u32..)
                    .zip(runs(side, metric))
                    .map(|(round, of)| (f64::from(round), of / scale))
                    .collect(),
            })
            .collect(),
    });
    let spectra: Vec<Line> = sides.iter().flat_map(spectra).collect();
    if !spectra.is_empty() {
        charts.push(Chart::Spectrum {
            title: "Latency, the middle run of each".into(),
            lines: spectra,
        });
    }
    charts
}

/// The run in the middle by its p99: percentiles of several runs are never averaged.
fn spectra(shown: &Shown<'_>) -> Vec<Line> {
    let mut order: Vec<&Spread> = shown.spreads.iter().collect();
    order.sort_by_key(|spread| spread.p99_ns);
    let Some(spread) = order.get(order.len() / 2) else {
        return Vec::new();
    };
    let line = |of: &[(f64, f64)], how: &str| {
        (!of.is_empty()).then(|| Line {
            label: format!("{}{how}", shown.label),
            points: of.to_vec(),
        })
    };
    match &spread.intended {
        None => line(&spread.sent, "").into_iter().collect(),
        Some(intended) => [
            line(intended, ", from when it was due"),
            line(&spread.sent, ", from the send"),
        ]
        .into_iter()
        .flatten()
        .collect(),
    }
}
