//! From runs to what may be said about them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use tidewire_load::abba::{MetricComparison, Recording, Sample};
use tidewire_load::stats::{Bootstrap, ROUNDS_MIN, Samples};

use super::record::Run;
use super::suite::Suite;
use crate::bench::grouped;
use crate::exit::Failure;

/// What a comparison is about first.
pub(super) const CPU: &str = "server_cpu_ns_per_request";

/// All that is shown.
#[derive(Debug, Serialize)]
pub(super) struct Matrix {
    pub(super) title: String,
    pub(super) workloads: Vec<Row>,
}

/// A workload on its servers.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) load: String,
    /// How many connections it has.
    pub(super) connections: usize,
    /// What the others are compared with.
    pub(super) base: String,
    /// Blocks of which every run is there.
    pub(super) rounds: usize,
    pub(super) servers: Vec<Column>,
}

/// A server under one workload.
#[derive(Debug, Serialize)]
pub(super) struct Column {
    pub(super) name: String,
    /// What is run.
    pub(super) command: String,
    /// The run is the second one of the base.
    pub(super) control: bool,
    /// Medians of all metrics.
    pub(super) medians: BTreeMap<String, f64>,
    /// Compared with the base; the base itself is compared with nothing.
    pub(super) comparisons: Vec<MetricComparison>,
    pub(super) runs: Vec<Run>,
}

impl Matrix {
    pub(super) fn of(suite: &Suite, runs: &[Run]) -> Result<Matrix, Failure> {
        let workloads = suite.workloads.iter().map(|work| {
            let mut row = Row {
                name: work.name.clone(),
                load: work.load.clone(),
                connections: work.cell().map_or(0, |cell| cell.connections()),
                base: suite.base_of(work).to_owned(),
                rounds: 0,
                servers: Vec::new(),
            };
            let hosts = suite.servers_of(work);
            let sides = hosts.iter().map(|host| (*host, false));
            let control = hosts.iter().filter(|host| host.name == row.base);
            let sides: Vec<_> = sides.chain(control.map(|host| (*host, true))).collect();
            let mine: Vec<&Run> = runs
                .iter()
                .filter(|run| run.place.workload == work.name)
                .collect();
            let rounds = whole_rounds(&mine, sides.len());
            row.rounds = rounds.len();
            for (host, control) in sides {
                let of_side = |run: &&&Run| {
                    let place = &run.place;
                    place.server == host.name
                        && place.control == control
                        && rounds.contains(&place.round)
                };
                let mut runs: Vec<Run> = mine
                    .iter()
                    .filter(of_side)
                    .map(|run| (*run).clone())
                    .collect();
                runs.sort_by_key(|run| run.place.round);
                row.servers.push(Column {
                    name: host.name.clone(),
                    command: host.shown(),
                    control,
                    medians: medians(&runs),
                    comparisons: Vec::new(),
                    runs,
                });
            }
            row.compare()?;
            Ok(row)
        });
        Ok(Matrix {
            title: suite.title.clone(),
            workloads: workloads.collect::<Result<_, Failure>>()?,
        })
    }

    /// What speaks against all of it.
    pub(super) fn doubt(&self) -> Option<String> {
        let fewest = self.workloads.iter().map(|row| row.rounds).min()?;
        (fewest < ROUNDS_MIN).then(|| {
            format!(
                "not trustworthy: {fewest} whole blocks of runs, and no interval can be had from \
                 fewer than {ROUNDS_MIN}"
            )
        })
    }
}

/// The blocks of which all runs are there.
fn whole_rounds(runs: &[&Run], sides: usize) -> BTreeSet<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for run in runs {
        *counts.entry(run.place.round).or_default() += 1;
    }
    let whole = counts.into_iter().filter(|(_, runs)| *runs == sides);
    whole.map(|(round, _)| round).collect()
}

fn medians(runs: &[Run]) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
    for (name, value) in runs.iter().flat_map(|run| &run.metrics) {
        all.entry(name).or_default().push(*value);
    }
    let median = |values| Samples::new(values).ok().map(|samples| samples.median());
    all.into_iter()
        .filter_map(|(name, values)| Some((name.clone(), median(values)?)))
        .collect()
}

impl Row {
    pub(super) fn base(&self) -> Option<&Column> {
        let mut plain = self.servers.iter().filter(|column| !column.control);
        plain.find(|column| column.name == self.base)
    }

    fn compare(&mut self) -> Result<(), Failure> {
        let samples =
            |column: &Column| -> Vec<Sample> { column.runs.iter().map(Run::sample).collect() };
        let Some(base) = self.base().map(samples) else {
            return Ok(());
        };
        let control = self.servers.iter().find(|column| column.control);
        let control = control.map(samples).unwrap_or_default();
        if base.is_empty() {
            return Ok(());
        }
        let name = self.base.clone();
        for column in &mut self.servers {
            if column.control || column.name == name {
                continue;
            }
            let other = samples(column);
            // What one of them cannot tell is compared with nothing.
            let recording = Recording::of(base.clone(), other, control.clone()).common();
            let compared = recording.compare(&name, &column.name, &Bootstrap::default());
            let compared =
                compared.map_err(|e| Failure::failed(format!("{}: {e}", column.name)))?;
            column.comparisons = compared.metrics;
        }
        Ok(())
    }
}

impl Row {
    /// What spoils runs, and how many of which server.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut kinds: BTreeMap<&str, Vec<(String, usize)>> = BTreeMap::new();
        for column in &self.servers {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for doubt in column.runs.iter().flat_map(|run| &run.reasons) {
                *counts.entry(&doubt.kind).or_default() += 1;
            }
            for (kind, runs) in counts {
                kinds.entry(kind).or_default().push((column.label(), runs));
            }
        }
        let shown = |(kind, of): (&str, Vec<(String, usize)>)| {
            let all = of.iter().all(|(_, runs)| *runs == self.rounds);
            match all && of.len() == self.servers.len() {
                true => format!("{kind}: every run"),
                false => {
                    let each = of.iter().map(|(name, runs)| format!("{name} {runs}"));
                    let each: Vec<String> = each.collect();
                    format!("{kind}: {} of {} runs", each.join(", "), self.rounds)
                }
            }
        };
        kinds.into_iter().map(shown).collect()
    }
}

impl Column {
    pub(super) fn comparison(&self, metric: &str) -> Option<&MetricComparison> {
        self.comparisons
            .iter()
            .find(|compared| compared.name == metric)
    }

    /// What may be said of it beside the base.
    pub(super) fn sentence(&self, base: &str) -> Option<String> {
        self.comparison(CPU)?.needs(base, &self.name)
    }

    /// The mean of all runs: for what the kernel samples in ticks, which is nothing in many a run.
    pub(super) fn mean(&self, metric: &str) -> Option<f64> {
        let values = self.runs.iter().map(|run| run.metrics.get(metric).copied());
        let sum = values.sum::<Option<f64>>()?;
        (!self.runs.is_empty()).then(|| sum / self.runs.len() as f64)
    }

    /// A median, if it was measured.
    pub(super) fn median(&self, metric: &str) -> Option<f64> {
        self.medians.get(metric).copied()
    }

    /// Its name in a table.
    pub(super) fn label(&self) -> String {
        match self.control {
            true => format!("{} again", self.name),
            false => self.name.clone(),
        }
    }

    /// The cells of a table.
    pub(super) fn cells(&self) -> [String; 6] {
        let dash = || "-".to_owned();
        let us = |metric| self.median(metric).map_or_else(dash, |ns| figure(ns / 1e3));
        let cpu = self.comparison(CPU).and_then(|compared| compared.ratio);
        [
            self.label(),
            us(CPU),
            cpu.map_or_else(dash, |ratio| format!("{:.2}", ratio.value)),
            cpu.map_or_else(dash, |ratio| format!("{:.2}..{:.2}", ratio.low, ratio.high)),
            self.median("requests_per_second")
                .map_or_else(dash, grouped),
            us("latency_p99_ns"),
        ]
    }
}

/// A figure to three digits, or to its whole.
pub(super) fn figure(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        0.0 => 0,
        0.1.. => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// The heads of such a table.
pub(super) const HEADS: [&str; 6] = [
    "server",
    "us CPU",
    "x base",
    "interval",
    "per second",
    "p99 us",
];

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.workloads {
            writeln!(f, "\n{}  ({}; {} blocks)", row.name, row.load, row.rounds)?;
            for sentence in row
                .servers
                .iter()
                .filter_map(|column| column.sentence(&row.base))
            {
                writeln!(f, "{sentence}")?;
            }
            let heads = HEADS.map(str::to_owned);
            for cells in [heads]
                .into_iter()
                .chain(row.servers.iter().map(Column::cells))
            {
                let [name, rest @ ..] = cells;
                let name: String = name.chars().take(24).collect();
                write!(f, "{name:<24}")?;
                for (cell, width) in rest.iter().zip([9, 7, 13, 12, 10]) {
                    write!(f, " {cell:>width$}")?;
                }
                writeln!(f)?;
            }
            for doubt in row.doubts() {
                writeln!(f, "note: {doubt}")?;
            }
        }
        Ok(())
    }
}
