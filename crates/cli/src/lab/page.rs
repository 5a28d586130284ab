//! A matrix as a page.

use tidewire_load::environment::Environment;
use tidewire_load::page::{Bar, Chart, Dots, Line, Page, Section};

use crate::bench::{command, stacked};

use super::result::{CPU, Column, HEADS, Matrix, Row};

/// The page.
pub(super) fn page(matrix: &Matrix, facts: &Environment) -> Page {
    let mut commands = vec![command()];
    for column in matrix.workloads.iter().flat_map(|row| &row.servers) {
        let line = format!("{}: {}", column.name, column.command);
        if !commands.contains(&line) {
            commands.push(line);
        }
    }
    Page {
        title: matrix.title.clone(),
        verdict: verdict(matrix),
        sections: overview(matrix)
            .into_iter()
            .chain(matrix.workloads.iter().map(section))
            .collect(),
        facts: facts.facts(),
        commands,
        data: serde_json::to_string(matrix).unwrap_or_default(),
    }
}

/// Of how many workloads what can be said.
fn verdict(matrix: &Matrix) -> Vec<String> {
    if let Some(doubt) = matrix.doubt() {
        return vec![doubt];
    }
    let mut names: Vec<&str> = Vec::new();
    for column in matrix.workloads.iter().flat_map(|row| &row.servers) {
        if !column.comparisons.is_empty() && !names.contains(&&*column.name) {
            names.push(&column.name);
        }
    }
    let of = |name: &str| {
        let (mut less, mut more, mut same) = (0, 0, 0);
        for row in &matrix.workloads {
            let mut mine = row.servers.iter().filter(|column| column.name == name);
            let Some(cpu) = mine.find_map(|column| column.comparison(CPU)) else {
                continue;
            };
            match (cpu.verdict.is_shown(), cpu.ratio) {
                (true, Some(ratio)) if ratio.value < 1.0 => less += 1,
                (true, Some(_)) => more += 1,
                _ => same += 1,
            }
        }
        format!(
            "{name}, beside the base of each workload: less CPU per request in {less}, more in {more}, no \
             difference shown in {same}."
        )
    };
    names.into_iter().map(of).collect()
}

/// Plain names of servers, each once, in the order of their first workload.
fn names(matrix: &Matrix) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for column in matrix.workloads.iter().flat_map(|row| &row.servers) {
        if !names.contains(&&*column.name) {
            names.push(&column.name);
        }
    }
    names
}

/// A server's runs of a workload, those of the control left out.
fn of<'a>(row: &'a Row, name: &str) -> Option<&'a Column> {
    let mut plain = row.servers.iter().filter(|column| !column.control);
    plain.find(|column| column.name == name)
}

/// All workloads and servers as one grid, and over connections where workloads differ in those.
fn overview(matrix: &Matrix) -> Option<Section> {
    if matrix.workloads.len() < 2 {
        return None;
    }
    let names = names(matrix);
    let head = std::iter::once("us CPU per request").chain(names.iter().copied());
    let rows = matrix.workloads.iter().map(|row| {
        let cells = names.iter().map(|name| {
            let us = of(row, name).and_then(|column| column.median(CPU));
            us.map_or("-".to_owned(), |ns| format!("{:.2}", ns / 1e3))
        });
        std::iter::once(row.name.clone()).chain(cells).collect()
    });
    Some(Section {
        heading: "At a glance".into(),
        sentences: vec!["Medians of server CPU for each request, in microseconds.".into()],
        table: std::iter::once(head.map(str::to_owned).collect())
            .chain(rows)
            .collect(),
        charts: over_connections(matrix, &names),
        ..Section::default()
    })
}

/// Rate, latency and memory over connections, where at least three workloads differ in those.
fn over_connections(matrix: &Matrix, names: &[&str]) -> Vec<Chart> {
    let mut rows: Vec<&Row> = matrix.workloads.iter().collect();
    rows.sort_by_key(|row| row.connections);
    rows.dedup_by_key(|row| row.connections);
    if rows.len() < 3 {
        return Vec::new();
    }
    let lines = |metric: &str, scale: f64| -> Vec<Line> {
        let line = |name: &&str| Line {
            label: (*name).to_owned(),
            points: rows
                .iter()
                .filter_map(|row| {
                    let value = of(row, name)?.median(metric)?;
                    Some((row.connections as f64, value / scale))
                })
                .collect(),
        };
        let lines = names.iter().map(line);
        lines.filter(|line| line.points.len() > 1).collect()
    };
    let charts = [
        ("Throughput", "a second", "requests_per_second", 1.0),
        ("p99", "microseconds", "latency_p99_ns", 1e3),
        (
            "Memory of a connection",
            "bytes",
            "server_bytes_per_connection",
            1.0,
        ),
    ];
    let charts = charts.map(|(title, up, metric, scale)| (title, up, lines(metric, scale)));
    let there = charts.into_iter().filter(|(.., lines)| !lines.is_empty());
    there
        .map(|(title, up, lines)| Chart::Lines {
            title: format!("{title}, over connections"),
            across: "connections".into(),
            up: up.into(),
            lines,
        })
        .collect()
}

fn section(row: &Row) -> Section {
    let sentences = row
        .servers
        .iter()
        .filter_map(|column| column.sentence(&row.base));
    let heads = HEADS.map(str::to_owned).to_vec();
    let cells = row.servers.iter().map(|column| column.cells().to_vec());
    Section {
        heading: row.name.clone(),
        sentences: std::iter::once(format!("{}; {} blocks of runs", row.load, row.rounds))
            .chain(sentences)
            .collect(),
        doubts: row.servers.iter().flat_map(Column::doubts).collect(),
        table: std::iter::once(heads).chain(cells).collect(),
        charts: vec![cpu(row), rates(row), dots(row), spectrum(row)],
    }
}

fn cpu(row: &Row) -> Chart {
    Chart::Bars {
        title: "Server CPU for each request".into(),
        unit: "microseconds, median of the runs".into(),
        parts: vec!["user".into(), "system".into()],
        bars: row
            .servers
            .iter()
            .map(|column| {
                let [user, system] = ["server_user_ns_per_request", "server_system_ns_per_request"]
                    .map(|metric| column.mean(metric).unwrap_or(0.0));
                Bar {
                    label: column.label(),
                    values: stacked(column.median(CPU).unwrap_or(0.0), user, system),
                }
            })
            .collect(),
    }
}

fn rates(row: &Row) -> Chart {
    Chart::Bars {
        title: "Throughput".into(),
        unit: "a second, median of the runs".into(),
        parts: vec!["rate".into()],
        bars: row
            .servers
            .iter()
            .map(|column| Bar {
                label: column.label(),
                values: column.median("requests_per_second").into_iter().collect(),
            })
            .collect(),
    }
}

fn dots(row: &Row) -> Chart {
    let us = |column: &Column| {
        let values = column.runs.iter().filter_map(|run| run.metrics.get(CPU));
        values.map(|ns| ns / 1e3).collect()
    };
    Chart::Dots {
        title: "Every run".into(),
        unit: "microseconds of server CPU for each request; the stroke is the median".into(),
        rows: row
            .servers
            .iter()
            .map(|column| Dots {
                label: column.label(),
                values: us(column),
            })
            .collect(),
    }
}

/// The run in the middle of each server's, by its p99: percentiles of several runs are never averaged.
fn spectrum(row: &Row) -> Chart {
    let lines = row.servers.iter().filter_map(|column| {
        let p99 = |index: &usize| {
            let run = &column.runs[*index];
            run.metrics
                .get("latency_p99_ns")
                .copied()
                .unwrap_or_default()
        };
        let mut order: Vec<usize> = (0..column.runs.len()).collect();
        order.sort_by(|a, b| p99(a).total_cmp(&p99(b)));
        let run = &column.runs[*order.get(order.len() / 2)?];
        let points = run.spectrum.iter();
        Some(Line {
            label: column.label(),
            points: points
                .map(|(quantile, ns)| (*quantile, *ns as f64))
                .collect(),
        })
    });
    Chart::Spectrum {
        title: "Latency, the middle run of each".into(),
        lines: lines.collect(),
    }
}
