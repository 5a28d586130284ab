//! A matrix as a page.

use tidewire_load::abba::Verdict;
use tidewire_load::page::{Bar, Cell, Chart, Difference, Dots, Group, Lane, Line, Page, Section};
use tidewire_load::report::Report;

use crate::bench::{grouped, stacked};

use super::beside::{self, Judged};
use super::result::{CPU, Column, Matrix, Row, figure};

/// The page of a result.
pub(super) fn page(report: &Report<Matrix>) -> Page {
    let matrix = &report.result;
    let mut commands = vec![report.command_line()];
    for column in matrix.workloads.iter().flat_map(|row| &row.servers) {
        let line = format!("{}: {}", column.name, column.command);
        if !commands.contains(&line) {
            commands.push(line);
        }
    }
    let by = Judged::of(matrix);
    Page {
        title: matrix.title.clone(),
        about: about(report),
        verdict: beside::verdict(matrix),
        picture: picture(matrix, by),
        reading: reading(matrix),
        sections: overview(matrix)
            .into_iter()
            .chain(matrix.workloads.iter().map(section))
            .collect(),
        facts: report.environment.facts(),
        commands,
        data: serde_json::to_string(report).unwrap_or_default(),
    }
}

/// What was measured, where and when, in a line.
fn about(report: &Report<Matrix>) -> String {
    let (matrix, facts) = (&report.result, &report.environment);
    let count = |n: usize, of: &str| match n {
        1 => format!("1 {of}"),
        n => format!("{n} {of}s"),
    };
    let blocks = matrix.workloads.iter().map(|row| row.rounds).min();
    let machine = [
        facts.cpu_model.clone(),
        facts.cores.map(|cores| count(cores, "core")),
        facts
            .kernel
            .clone()
            .map(|kernel| format!("kernel {kernel}")),
    ];
    let machine: Vec<String> = machine.into_iter().flatten().collect();
    format!(
        "{} under {}; {} of runs of {} ms; {}; {}. The load generator ran on the machine that the servers ran on. {}",
        count(names(matrix).len(), "server"),
        count(matrix.workloads.len(), "load"),
        count(blocks.unwrap_or(0), "block"),
        matrix.times.run_ms,
        machine.join(", "),
        facts.date,
        own(matrix)
    )
}

/// Which of the servers are Tidewire's.
fn own(matrix: &Matrix) -> String {
    let columns = matrix.workloads.iter().flat_map(|row| &row.servers);
    let mut own: Vec<&str> = Vec::new();
    for column in columns.filter(|column| column.command.starts_with("tidewire serve")) {
        if !own.contains(&&*column.name) {
            own.push(&column.name);
        }
    }
    match own.len() {
        0 => "None of the servers is Tidewire's.".to_owned(),
        n if n == names(matrix).len() => {
            "All servers are Tidewire's, with other settings.".to_owned()
        }
        1 => format!("Tidewire's server is {}.", own.concat()),
        _ => format!("Tidewire's servers are {}.", own.join("; ")),
    }
}

/// Every server of every workload beside the base, on one axis.
fn picture(matrix: &Matrix, by: Judged) -> Option<Chart> {
    let is_doubtful = matrix.doubt().is_some();
    let base = base_of(matrix);
    let group = |row: &Row| {
        let others = row
            .servers
            .iter()
            .filter(|column| !column.control && column.name != row.base);
        let lanes: Vec<Lane> = others
            .map(|column| {
                let beside = by.beside(column);
                let difference = beside
                    .filter(|_| !is_doubtful)
                    .map(|beside| beside.difference());
                Lane {
                    label: column.name.clone(),
                    ratio: beside.map(|beside| beside.ratio),
                    equal: beside.and_then(|beside| beside.equal),
                    difference: difference.unwrap_or(Difference::NotShown),
                }
            })
            .collect();
        let base = row
            .base()
            .and_then(|base| base.median(CPU))
            .filter(|_| by == Judged::Cpu);
        let base = base.map(|ns| format!("{} needs {} us", row.base, figure(ns / 1e3)));
        (!lanes.is_empty()).then(|| Group {
            label: row.name.clone(),
            remark: base.unwrap_or_default(),
            lanes,
        })
    };
    let groups: Vec<Group> = matrix.workloads.iter().filter_map(group).collect();
    let (what, less, more) = match by {
        Judged::Cpu => (
            "CPU time that a server needs for a request",
            format!("needs less CPU than {base}"),
            "needs more CPU",
        ),
        Judged::Rate => (
            "Time that a server needs for its answers (one divided by its throughput)",
            format!("is faster than {base}"),
            "is slower",
        ),
    };
    (!groups.is_empty()).then(|| Chart::Ratios {
        title: format!("{what}, divided by that of {base}"),
        unit: format!(
            "Dot: median of the blocks of runs. Line: its 95 % interval. Grey: how far a second, equal {base} differed. Full \
             dot: a difference is shown (orange: more than {base}, blue: less). Hollow dot: none is shown."
        ),
        less,
        more: more.into(),
        groups,
    })
}

/// How the verdict is to be read.
fn reading(matrix: &Matrix) -> Vec<String> {
    if matrix.doubt().is_some() {
        return Vec::new();
    }
    let base = base_of(matrix);
    vec![format!(
        "A block is one run of each server, started anew, in an order drawn by chance, and one run more of {base}: how far \
         its two runs differ is the grey band. Ahead (less CPU) and behind (more): the line does not reach 1, and the dot \
         lies outside the grey band. Level: the whole line lies in the grey band, or within 1.05x. Not decided: the line is \
         too long for either. Where loads are named behind a server, no difference is shown under its other loads. What \
         the servers are stands below, under \u{201c}How it was made\u{201d}."
    )]
}

/// The name of the server that the others are compared with.
fn base_of(matrix: &Matrix) -> &str {
    let mut bases: Vec<&str> = matrix.workloads.iter().map(|row| &*row.base).collect();
    bases.dedup();
    match bases[..] {
        [base] => base,
        _ => "the base of each load",
    }
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

/// A server's runs of a workload, without runs of the control.
fn of<'a>(row: &'a Row, name: &str) -> Option<&'a Column> {
    let mut plain = row.servers.iter().filter(|column| !column.control);
    plain.find(|column| column.name == name)
}

/// All workloads and servers as one grid, and over connections where workloads differ in nothing else.
fn overview(matrix: &Matrix) -> Option<Section> {
    if matrix.workloads.len() < 2 {
        return None;
    }
    let names = names(matrix);
    let grids = [
        (
            "CPU of the server for each request",
            "microseconds",
            CPU,
            1e3,
            false,
        ),
        ("Throughput", "a second", "requests_per_second", 1.0, true),
        ("p99", "microseconds", "latency_p99_ns", 1e3, false),
    ];
    // The longer side goes down, so that the table is as narrow as it can be.
    let is_turned = names.len() > matrix.workloads.len();
    let grids = grids.map(|(title, unit, metric, scale, more_is_better)| {
        let cell = |row: &Row, name: &str| {
            let column = of(row, name)?;
            let value = column.median(metric)?;
            let compared = column.comparison(metric);
            // The median of the blocks' ratios, as in every other place of the page; the base has none.
            let times = match compared.and_then(|compared| compared.ratio) {
                Some(ratio) => ratio.value,
                None => value / row.base()?.median(metric)?,
            };
            // A tint says better or worse, so it takes a difference beyond that of the control.
            let shown = compared.map(|compared| compared.verdict) == Some(Verdict::Different);
            Some(cell(value / scale, times, more_is_better, shown))
        };
        let rows = matrix.workloads.iter();
        Chart::Grid {
            title: title.into(),
            unit: format!(
                "{unit}, medians of the runs; in brackets, the median of the ratios to the base; blue is better, orange is worse, where \
                 the difference is larger than that of two equal servers"
            ),
            columns: match is_turned {
                true => rows.clone().map(|row| row.name.clone()).collect(),
                false => names.iter().map(|name| (*name).to_owned()).collect(),
            },
            rows: match is_turned {
                true => names
                    .iter()
                    .map(|name| ((*name).to_owned(), rows.clone().map(|row| cell(row, name)).collect()))
                    .collect(),
                false => rows
                    .map(|row| (row.name.clone(), names.iter().map(|name| cell(row, name)).collect()))
                    .collect(),
            },
        }
    });
    Some(Section {
        heading: "At a glance".into(),
        charts: grids
            .into_iter()
            .chain(over_connections(matrix, &names))
            .collect(),
        ..Section::default()
    })
}

fn cell(value: f64, times: f64, more_is_better: bool, is_shown: bool) -> Cell {
    let shown = match value {
        1000.0.. => grouped(value),
        value => figure(value),
    };
    // Where the base had no value, there is no ratio.
    let times = Some(times).filter(|times| times.is_finite() && *times > 0.0);
    let beside = times.map_or_else(String::new, |times| format!(" ({times:.2}x)"));
    Cell {
        text: shown + &beside,
        worse: times
            .filter(|_| is_shown)
            .map(|times| if more_is_better { 1.0 / times } else { times }),
    }
}

/// The words of a load without its number of connections and their sources.
fn besides_connections(load: &str) -> String {
    let mut words = load.split_ascii_whitespace();
    let mut rest = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "-c" | "--connections" | "--sources" | "--processes" => drop(words.next()),
            word if word.starts_with("--connections=") => {}
            word => rest.push(word),
        }
    }
    rest.join(" ")
}

/// Rate, latency and memory over connections, where at least three workloads differ in nothing else.
fn over_connections(matrix: &Matrix, names: &[&str]) -> Vec<Chart> {
    let mut loads: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in &matrix.workloads {
        let load = besides_connections(&row.load);
        match loads.iter_mut().find(|(known, _)| *known == load) {
            Some((_, rows)) => rows.push(row),
            None => loads.push((load, vec![row])),
        }
    }
    let charts = loads.into_iter().flat_map(|(load, mut rows)| {
        rows.sort_by_key(|row| row.connections);
        rows.dedup_by_key(|row| row.connections);
        match rows.len() {
            0..3 => Vec::new(),
            _ => of_connections(&load, &rows, names),
        }
    });
    charts.collect()
}

fn of_connections(load: &str, rows: &[&Row], names: &[&str]) -> Vec<Chart> {
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
            title: format!("{title}, over connections: {load}"),
            across: "connections".into(),
            up: up.into(),
            lines,
        })
        .collect()
}

fn section(row: &Row) -> Section {
    Section {
        heading: row.name.clone(),
        sentences: vec![format!(
            "tidewire bench {}; {} blocks of runs",
            row.load, row.rounds
        )],
        doubts: row
            .faults()
            .map(str::to_owned)
            .chain(row.not_counted().map(|why| format!("not counted: {why}")))
            .chain(row.doubts())
            .collect(),
        table: row.table(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_say_nothing_beside_nothing() {
        let text = |value, times| cell(value, times, true, true).text;
        assert_eq!(text(1234.4, 0.5), "1,234 (0.50x)");
        assert_eq!(text(0.0, f64::NAN), "0");
        assert_eq!(text(5.0, f64::INFINITY), "5.00");
        assert_eq!(cell(2.0, 4.0, true, true).worse, Some(0.25));
        assert_eq!(cell(2.0, 4.0, false, true).worse, Some(4.0));
        assert_eq!(cell(2.0, 4.0, false, false).worse, None, "not shown");
    }

    #[test]
    fn loads_that_differ_in_connections_only_are_one() {
        let same = |load| besides_connections(load) == "echo --size 64";
        assert!(same("echo --size 64 -c 2k") && same("echo  -c 8k --size 64 --processes 2"));
        assert!(same("echo --connections=5 --size 64") && same("echo --size 64"));
        assert!(!same("echo --size 64 --pipeline 64 -c 10"));
    }
}
