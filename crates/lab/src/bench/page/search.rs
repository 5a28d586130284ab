//! Latency over rate, and what rate holds an objective, as a page.

use tidewire_load::environment::Environment;
use tidewire_load::page::{Chart, Column, Dots, Line, Page, Section};

use super::command;
use crate::bench::rates::{Phase, Point, RatesFound};

/// The page; `data` is all of it as JSON.
pub(in crate::bench) fn page(
    title: String,
    shown: &RatesFound<'_>,
    table: Vec<Vec<String>>,
    data: String,
    facts: &Environment,
) -> Page {
    Page {
        title,
        verdict: shown.sentences(),
        sections: vec![Section {
            heading: "What came out".into(),
            sentences: vec![
                "Latencies count from when a message was due, however long it waited to be sent."
                    .into(),
            ],
            doubts: shown.doubts(),
            table,
            charts: charts(shown),
        }],
        facts: facts.facts(),
        commands: vec![command()],
        data,
        ..Page::default()
    }
}

fn charts(shown: &RatesFound<'_>) -> Vec<Chart> {
    let of = |phase: Phase| {
        shown
            .points
            .iter()
            .filter(move |point| point.phase == phase)
    };
    let mut charts = Vec::new();
    let mut sweep: Vec<&Point> = of(Phase::Sweep).collect();
    sweep.sort_by(|a, b| a.offered.total_cmp(&b.offered));
    if !sweep.is_empty() {
        let line = |label: &str, latency: fn(&Point) -> Option<u64>| Line {
            label: label.into(),
            points: sweep
                .iter()
                .filter_map(|point| Some((point.offered, latency(point)? as f64)))
                .collect(),
        };
        let marks = [
            ("the knee", shown.knee),
            ("held", shown.held.map(|held| held.rate)),
        ];
        charts.push(Chart::Curve {
            title: "Latency over the rate offered".into(),
            across: "messages a second".into(),
            lines: vec![
                line("p50", |point| point.p50_ns),
                line("p99", |point| point.p99_ns),
                line("p99.9", |point| point.p99_9_ns),
            ],
            marks: marks
                .into_iter()
                .filter_map(|(name, at)| Some((name.to_owned(), at?)))
                .collect(),
        });
        charts.push(Chart::Heat {
            title: "How latencies are spread".into(),
            across: "messages a second".into(),
            columns: sweep
                .iter()
                .map(|point| Column {
                    at: point.offered,
                    spectrum: point
                        .spectrum
                        .iter()
                        .map(|(quantile, ns)| (*quantile, *ns as f64))
                        .collect(),
                })
                .collect(),
        });
        charts.push(Chart::Lines {
            title: "Answered of what was offered".into(),
            across: "offered a second".into(),
            up: "answered a second".into(),
            lines: vec![Line {
                label: "answered".into(),
                points: sweep
                    .iter()
                    .map(|point| (point.offered, point.achieved))
                    .collect(),
            }],
        });
        if sweep
            .iter()
            .any(|point| point.server_cpu_ns_per_request.is_some())
        {
            charts.push(Chart::Lines {
                title: "Server CPU for each request".into(),
                across: "offered a second".into(),
                up: "microseconds".into(),
                lines: vec![Line {
                    label: "server".into(),
                    points: sweep
                        .iter()
                        .filter_map(|point| {
                            Some((point.offered, point.server_cpu_ns_per_request? / 1e3))
                        })
                        .collect(),
                }],
            });
        }
    }
    if shown.objective.is_some() {
        let rates = |phase: Phase, holds: bool| {
            let points = of(phase).filter(move |point| point.holds == Some(holds));
            points.map(|point| point.offered).collect::<Vec<f64>>()
        };
        charts.push(Chart::Dots {
            title: "Every run of the search".into(),
            unit: "messages a second; the stroke and the figure are the median".into(),
            rows: vec![
                Dots {
                    label: "held".into(),
                    values: rates(Phase::Search, true),
                },
                Dots {
                    label: "missed".into(),
                    values: rates(Phase::Search, false),
                },
            ],
        });
    }
    charts
}
