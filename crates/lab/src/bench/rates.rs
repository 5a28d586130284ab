//! What runs at many rates have come to: as sentences, as rows, and for machines.

use std::net::SocketAddr;

use serde::Serialize;
use tidewire_load::search::{Held, Objective};
use tidewire_load::trust::Kind;
use tidewire_load::workload::Workload;

use tidewire_load::numbers::{grouped, micros};

/// The purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// Messages are sent as fast as replies come.
    Capacity,
    Sweep,
    Search,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) phase: Phase,
    /// Messages a second; what was answered, where there was no rate.
    pub(super) offered: f64,
    pub(super) achieved: f64,
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
    pub(super) p99_9_ns: Option<u64>,
    pub(super) server_cpu_ns_per_request: Option<f64>,
    /// All objectives, if there are any.
    pub(super) holds: Option<bool>,
    /// The reasons to doubt the result.
    pub(super) doubts: Vec<Kind>,
    /// Quantiles and latencies.
    pub(super) spectrum: Vec<(f64, u64)>,
}

/// The result.
#[derive(Debug, Serialize)]
pub(super) struct RatesFound<'a> {
    pub(super) workload: &'a Workload,
    pub(super) connections: usize,
    pub(super) server: SocketAddr,
    pub(super) server_engine: Option<&'a str>,
    /// The first objective.
    pub(super) objective: Option<Objective>,
    /// All of them.
    pub(super) objectives: &'a [Objective],
    pub(super) held: Option<&'a Held>,
    /// Answered a second without a rate.
    pub(super) capacity: Option<f64>,
    pub(super) knee: Option<f64>,
    pub(super) interrupted: bool,
    pub(super) points: &'a [Point],
}

impl RatesFound<'_> {
    /// The results in sentences.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        let objectives = self.objectives.iter().map(Objective::to_string);
        let objectives = objectives.collect::<Vec<_>>().join(" and ");
        match (self.objective, self.held) {
            (Some(_), Some(held)) => {
                let rate = grouped(held.rate);
                let (low, high) = (held.between.low, held.between.high);
                all.push(format!(
                    "{objectives} is held at {rate} a second, in every one of the runs that confirmed it; {} searches \
                     came to {} a second, 95 % interval {} to {}.",
                    held.found.len(),
                    grouped(held.between.value),
                    grouped(low),
                    grouped(high)
                ));
                if held.at_most {
                    all.push("That is as far as was looked: it may hold at more.".into());
                }
            }
            (Some(_), None) if !self.interrupted => {
                all.push(format!(
                    "{objectives} is held at no rate that could be confirmed."
                ));
            }
            _ => {}
        }
        match self.knee {
            Some(rate) => all.push(format!(
                "The knee is at {} a second: beyond it, latency rises faster than the rate.",
                grouped(rate)
            )),
            None if self.points.iter().any(|point| point.phase == Phase::Sweep) => {
                all.push("No knee: rate by latency still rises at the last rate.".into());
            }
            None => {}
        }
        if let Some(capacity) = self.capacity {
            all.push(format!(
                "Without a rate, {} a second were answered.",
                grouped(capacity)
            ));
        }
        if self.interrupted {
            all.push("Interrupted: this is what there was.".into());
        }
        all
    }

    /// What speaks against runs, and how many.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut counts = std::collections::BTreeMap::<String, usize>::new();
        // A search looks for rates that a server cannot keep, so these are no doubts.
        let kinds = self.points.iter().flat_map(|point| &point.doubts);
        for kind in kinds.filter(|kind| !matches!(kind, Kind::Unsent | Kind::ServerIdle)) {
            *counts.entry(kind.to_string()).or_default() += 1;
        }
        let all = self.points.len();
        let counts = counts.into_iter();
        counts
            .map(|(kind, runs)| format!("{kind} ({runs} of {all} runs)"))
            .collect()
    }

    /// The sweep and the confirmed rate as rows.
    pub(super) fn table(&self) -> Vec<Vec<String>> {
        let head = [
            "offered", "answered", "p50", "p99", "p99.9", "us CPU", "held",
        ];
        let time = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| micros(ns as f64 / 1e3));
        let rows = self.points.iter().filter(|point| match self.held {
            // A search gives the runs of the rate that it found.
            Some(held) if point.phase == Phase::Search => point.offered == held.rate,
            _ => point.phase == Phase::Sweep || self.held.is_none(),
        });
        let rows = rows.map(|point| {
            let cpu = point.server_cpu_ns_per_request;
            vec![
                grouped(point.offered),
                grouped(point.achieved),
                time(point.p50_ns),
                time(point.p99_ns),
                time(point.p99_9_ns),
                cpu.map_or("-".to_owned(), |ns| format!("{:.2}", ns / 1e3)),
                point
                    .holds
                    .map_or("-", |holds| if holds { "yes" } else { "no" })
                    .to_owned(),
            ]
        });
        std::iter::once(head.map(str::to_owned).to_vec())
            .chain(rows)
            .collect()
    }
}
