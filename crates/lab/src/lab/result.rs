//! From runs to what may be said about them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tidewire_load::abba::{MetricComparison, Recording, Sample};
use tidewire_load::stats::{Bootstrap, ROUNDS_MIN, Samples};
use tidewire_load::trust::Kind;

use super::cost::Cost;
use super::faults::Faults;
use super::record::{BODY_BYTES, Run};
use super::suite::{Host, Suite};
use crate::bench::{MISSES_APART, grouped, lengths_differ};
use tidewire_command::exit::Failure;

/// The first metric of a comparison.
pub(super) const CPU: &str = "server_cpu_ns_per_request";

/// All that is shown.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Matrix {
    pub(super) title: String,
    #[serde(flatten)]
    pub(super) times: Times,
    pub(super) workloads: Vec<Row>,
}

/// How long each run is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) run_ms: u64,
    pub(super) warm_up_ms: u64,
}

/// A workload on its servers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) load: String,
    /// How many connections it has.
    pub(super) connections: usize,
    /// The server that the others are compared with.
    pub(super) base: String,
    /// Blocks of which every run is there.
    pub(super) rounds: usize,
    pub(super) servers: Vec<Column>,
}

/// A server under one workload.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Column {
    pub(super) name: String,
    /// The command of the server.
    pub(super) command: String,
    /// The run is the second one of the base.
    pub(super) control: bool,
    /// What went wrong: then there are no runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fault: Option<String>,
    /// Medians of all metrics.
    pub(super) medians: BTreeMap<String, f64>,
    /// Compared with the base; the base itself is compared with nothing. A file's comparisons are made anew from its
    /// runs.
    #[serde(skip_deserializing)]
    pub(super) comparisons: Vec<MetricComparison>,
    /// What a message costs it, where that was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) counted: Option<Cost>,
    /// Why it was not counted, though that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) not_counted: Option<String>,
    pub(super) runs: Vec<Run>,
}

impl Matrix {
    pub(super) fn of(
        suite: &Suite,
        runs: &[Run],
        times: Times,
        faults: &Faults,
    ) -> Result<Matrix, Failure> {
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
                .filter(|run| run.place.workload == work.name && faults.of(&run.place).is_none())
                .collect();
            let fault = |host: &Host| faults.at(&work.name, &host.name);
            let sound = sides.iter().filter(|(host, _)| fault(host).is_none());
            let rounds = whole_rounds(&mine, sound.count());
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
                    fault: fault(host).map(str::to_owned),
                    medians: medians(&runs),
                    comparisons: Vec::new(),
                    counted: None,
                    not_counted: None,
                    runs,
                });
            }
            row.compare()?;
            Ok(row)
        });
        Ok(Matrix {
            title: suite.title.clone(),
            times,
            workloads: workloads.collect::<Result<_, Failure>>()?,
        })
    }

    /// Judges a result that was read from a file by its runs.
    pub(super) fn compare(&mut self) -> Result<(), Failure> {
        for row in &mut self.workloads {
            for column in &mut row.servers {
                column.medians = medians(&column.runs);
            }
            row.compare()?;
        }
        Ok(())
    }

    /// What speaks against all of it.
    pub(super) fn doubt(&self) -> Option<String> {
        let fewest = self.workloads.iter().map(|row| row.rounds).min()?;
        if fewest < ROUNDS_MIN {
            return Some(format!(
                "not trustworthy: {fewest} whole blocks of runs, and no interval can be had from \
                 fewer than {ROUNDS_MIN}"
            ));
        }
        let elsewhere = Kind::ServerElsewhere.to_string();
        self.workloads.iter().find_map(|row| {
            let served = |column: &&Column| {
                let of = column.runs.iter();
                let elsewhere = of.filter(|run| run.reasons.iter().any(|it| it.kind == elsewhere));
                elsewhere.count() * 2 > column.runs.len()
            };
            let name = &row.name;
            if let Some(column) = row.servers.iter().find(served) {
                let server = column.label();
                return Some(format!("not trustworthy: {name}, {server}: {elsewhere}"));
            }
            if let Some(doubt) = row.not_written().or_else(|| row.bodies_differ()) {
                return Some(format!("not trustworthy: {name}: {doubt}"));
            }
            let misses = row.servers.iter();
            let misses: Vec<f64> = misses.filter_map(|it| it.median("read_miss_share")).collect();
            let least = misses.iter().copied().fold(f64::INFINITY, f64::min);
            let most = misses.iter().copied().fold(0.0, f64::max);
            (most - least > MISSES_APART).then(|| {
                format!(
                    "not trustworthy: {name}: {:.1} % of the reads of one server found nothing, and {:.1} % of those of \
                     another: they do not do the same work",
                    least * 100.0,
                    most * 100.0
                )
            })
        })
    }
}

impl Row {
    /// A server that writes nothing of what it acknowledges as durable, beside one that does.
    fn not_written(&self) -> Option<String> {
        let kind = Kind::NotWritten.to_string();
        let is_noted = |column: &Column| {
            let noted = column
                .runs
                .iter()
                .filter(|run| run.reasons.iter().any(|it| it.kind == kind));
            noted.count() * 2 > column.runs.len()
        };
        let sound = || self.servers.iter().filter(|column| !column.runs.is_empty());
        let noted = sound().find(|column| is_noted(column))?;
        sound().any(|column| !is_noted(column)).then(|| {
            let server = noted.label();
            format!("{server} wrote to no disk what it acknowledged as durable, and others did: they do not do the same work")
        })
    }

    /// Servers whose replies have bodies of other lengths than those of the first.
    fn bodies_differ(&self) -> Option<String> {
        let length = |column: &Column| Some(column.median(BODY_BYTES)? as u64);
        let first = self
            .servers
            .iter()
            .find_map(|column| Some((column, length(column)?)));
        let (first, len) = first?;
        self.servers.iter().find_map(|column| {
            let other = length(column).filter(|other| lengths_differ(len, *other))?;
            let (first, server) = (first.label(), column.label());
            Some(format!(
                "the replies of {first} have {len} bytes of body, and those of {server} {other}: they do not do the same work"
            ))
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
            if column.control || column.name == name || column.fault.is_some() {
                continue;
            }
            let other = samples(column);
            // A value that one of the two does not have is not compared.
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
    /// What went wrong, once for each server.
    pub(super) fn faults(&self) -> impl Iterator<Item = &str> {
        let plain = self.servers.iter().filter(|column| !column.control);
        plain.filter_map(|column| column.fault.as_deref())
    }

    /// The table: heads and a line for each server. Counts are a column of it where any server was counted.
    pub(super) fn table(&self) -> Vec<Vec<String>> {
        let is_counted = self.servers.iter().any(|column| column.counted.is_some());
        let heads = HEADS.map(str::to_owned).to_vec();
        let cells = self.servers.iter().map(|column| column.cells().to_vec());
        let mut table: Vec<Vec<String>> = std::iter::once(heads).chain(cells).collect();
        if is_counted {
            let counts = self.servers.iter().map(|column| match &column.counted {
                Some(cost) => grouped(cost.instructions.round()),
                None => "-".to_owned(),
            });
            let heads = std::iter::once(COUNTED.to_owned());
            for (cells, count) in table.iter_mut().zip(heads.chain(counts)) {
                cells.push(count);
            }
        }
        table
    }

    /// Why servers were not counted.
    pub(super) fn not_counted(&self) -> impl Iterator<Item = &str> {
        let all = self.servers.iter();
        all.filter_map(|column| column.not_counted.as_deref())
    }

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
            let sound = self.servers.iter().filter(|column| column.fault.is_none());
            match all && of.len() == sound.count() {
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

    /// Name of the column in a table.
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

/// The head of the column of instructions of user code for each message.
const COUNTED: &str = "instr.";

/// The heads of such a table.
const HEADS: [&str; 6] = [
    "server",
    "us CPU",
    "x base",
    "interval",
    "per second",
    "p99 us",
];
