//! Rates: the highest that holds an objective, and how latency rises with them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tidewire_load::search::{Held, Objective, Probe, Search, knee};
use tidewire_load::trust::{Kind, Trust};
use tidewire_load::workload::{
    self, Arrivals, Extent, Generator, Outcome, Plan, Rate, Watch, Workload,
};

use super::page;
use super::target::Ready;
use super::watch::Watcher;
use super::{output, single};
use crate::count;
use crate::exit::{Failure, MISSED, UNTRUSTWORTHY};

/// How long a run is if nobody says: there are dozens.
const DURATION: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(200);
/// A sweep ends beyond what was answered without a rate, by this.
const BEYOND: f64 = 1.1;

/// What is looked for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SearchArgs {
    /// An objective for latencies from when messages are due, such as p99<1ms; of several, all have to hold. With --rate:
    /// whether that rate holds them (status 3 if not); without: the highest rate that does
    #[arg(long, value_name = "OBJECTIVE", conflicts_with = "count")]
    slo: Vec<Objective>,
    /// Latency at so many rates up to what the server answers and a tenth beyond, and the knee
    #[arg(
        long,
        value_name = "RATES",
        num_args = 0..=1,
        default_missing_value = "10",
        value_parser = rates,
        conflicts_with_all = ["count", "rate"]
    )]
    sweep: Option<u32>,
}

fn rates(text: &str) -> Result<u32, String> {
    match count::some(text)? {
        n @ 3..=100 => Ok(n),
        _ => Err("from 3 to 100 rates".into()),
    }
}

impl SearchArgs {
    /// Whether there is anything to look for; with a rate, an objective is only held against it.
    pub(super) fn is_wanted(&self, has_rate: bool) -> bool {
        self.sweep.is_some() || (!self.slo.is_empty() && !has_rate)
    }

    /// Whether the run at a given rate has missed the objective.
    pub(super) fn missed(&self, plan: &Plan, outcome: &Outcome) -> Option<String> {
        let rate = plan.arrivals.rate()?;
        let missed = self.slo.iter().filter_map(|objective| {
            let probe = probe(outcome, objective);
            (!probe.holds(objective, rate.per_second)).then(|| {
                let at = probe
                    .latency_ns
                    .map_or("no reply".into(), |ns| output::micros(ns as f64 / 1e3));
                format!(
                    "{objective} is missed at {} a second: {at}, and {} a second were answered",
                    output::grouped(rate.per_second),
                    output::grouped(probe.achieved)
                )
            })
        });
        let missed: Vec<String> = missed.collect();
        (!missed.is_empty()).then(|| missed.join("; "))
    }
}

/// What a run was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// As fast as replies come.
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
    /// What speaks against it.
    pub(super) doubts: Vec<Kind>,
    /// Quantiles and latencies.
    pub(super) spectrum: Vec<(f64, u64)>,
}

/// The result.
#[derive(Debug, Serialize)]
pub(super) struct Shown<'a> {
    workload: &'a Workload,
    connections: usize,
    server: SocketAddr,
    server_engine: Option<&'a str>,
    /// The first of them.
    pub(super) objective: Option<Objective>,
    /// All of them.
    pub(super) objectives: &'a [Objective],
    pub(super) held: Option<&'a Held>,
    /// Answered a second without a rate.
    capacity: Option<f64>,
    pub(super) knee: Option<f64>,
    interrupted: bool,
    pub(super) points: &'a [Point],
}

/// Why no more runs are made.
enum Stop {
    Interrupted,
    Failed(Failure),
}

struct Hunt<'a> {
    plan: Plan,
    rate: Rate,
    generator: &'a Generator,
    server: &'a Ready,
    watcher: &'a mut Watcher,
    objectives: &'a [Objective],
    points: Vec<Point>,
}

/// Where the result goes.
pub(super) struct Out<'a> {
    pub(super) json: Option<&'a Path>,
    pub(super) html: Option<&'a Path>,
}

/// Looks for it, and shows what was found.
pub(super) fn run(
    args: &SearchArgs,
    plan: Plan,
    rate: Rate,
    generator: &Generator,
    server: &Ready,
    watcher: &mut Watcher,
    out: &Out<'_>,
) -> Result<(), Failure> {
    if matches!(plan.workload, Workload::Discard(_) | Workload::Idle(_)) {
        return Err(Failure::usage(
            "--slo and --sweep are about replies to a rate: not for discard and idle",
        ));
    }
    let mut hunt = Hunt {
        plan,
        rate,
        generator,
        server,
        watcher,
        objectives: &args.slo,
        points: Vec::new(),
    };
    let mut held = None;
    let done = hunt.all(args, &mut held);
    hunt.watcher.done();
    let interrupted = match done {
        Ok(()) => false,
        Err(Stop::Interrupted) => true,
        Err(Stop::Failed(failure)) => return Err(failure),
    };
    let points = &hunt.points;
    let swept = points.iter().filter(|point| point.phase == Phase::Sweep);
    let curve = swept.filter_map(|point| Some((point.offered, point.p50_ns? as f64)));
    let shown = Shown {
        workload: &plan.workload,
        connections: plan.connections,
        server: server.target().addr,
        server_engine: server.engine(),
        objective: args.slo.first().copied(),
        objectives: &args.slo,
        held: held.as_ref(),
        capacity: hunt.capacity(),
        knee: knee(&curve.collect::<Vec<_>>()),
        interrupted,
        points,
    };
    for sentence in shown.sentences() {
        show_line!("{sentence}");
    }
    for row in shown.table() {
        let [name, rest @ ..] = &row[..] else {
            continue;
        };
        let cells: Vec<String> = rest.iter().map(|cell| format!("{cell:>10}")).collect();
        show_line!("{name:<9} {}", cells.join(" "));
    }
    for doubt in shown.doubts() {
        show_line!("note: {doubt}");
    }
    if let Some(path) = out.html {
        let title = format!(
            "{}, connections: {}",
            output::described(&plan.workload),
            plan.connections
        );
        let data = serde_json::to_string(&shown).unwrap_or_default();
        let page = page::search::page(title, &shown, shown.table(), data, &output::environment());
        page::write(path, &page)?;
    }
    let status = match (args.slo.is_empty(), shown.held, interrupted) {
        (false, None, true) => Some(UNTRUSTWORTHY),
        (false, None, false) => Some(MISSED),
        _ => None,
    };
    let verdict = shown.sentences().join(" ");
    if let Some(path) = out.json {
        output::write(path, "bench search", output::environment(), &shown)?;
    }
    match status {
        Some(status) => Err(Failure {
            status,
            message: verdict,
        }),
        None => Ok(()),
    }
}

/// How long each run is: what was asked for, or what dozens of runs allow.
pub(super) fn extent(warm_up: Option<Duration>, measured: Option<Duration>) -> Extent {
    Extent::Time {
        warm_up: warm_up.unwrap_or(WARM_UP),
        measured: measured.unwrap_or(DURATION),
    }
}

impl Hunt<'_> {
    fn all(&mut self, args: &SearchArgs, held: &mut Option<Held>) -> Result<(), Stop> {
        self.one(Phase::Capacity, Arrivals::Closed)?;
        let most = self.capacity().unwrap_or_default();
        if let Some(steps) = args.sweep {
            for step in 1..=steps {
                let rate = most * BEYOND * f64::from(step) / f64::from(steps);
                self.at(Phase::Sweep, rate)?;
            }
        }
        if let Some(objective) = args.slo.first() {
            let search = Search {
                // From below: a run far beyond what a server can do says little and leaves much behind.
                from: (most / 4.0).max(1.0),
                most: most.max(1.0) * 2.0,
                ..Search::new(*objective)
            };
            *held = search.run_by(|rate| self.at(Phase::Search, rate))?;
        }
        Ok(())
    }

    /// Makes a run at a rate: whether all objectives hold.
    fn at(&mut self, phase: Phase, per_second: f64) -> Result<bool, Stop> {
        let rate = Rate {
            per_second,
            ..self.rate
        };
        self.one(phase, Arrivals::Open(rate))
    }

    fn one(&mut self, phase: Phase, arrivals: Arrivals) -> Result<bool, Stop> {
        let plan = Plan {
            arrivals,
            ..self.plan
        };
        let number = self.points.len() + 1;
        let what = arrivals.rate().map_or("no rate".into(), |rate| {
            format!("{} a second", output::grouped(rate.per_second))
        });
        self.watcher.show(&format!("run {number}: {what}"));
        let goes_on: Watch<'_> = &mut |_| !self.watcher.interrupted();
        let outcome = workload::run(&plan, self.generator, self.server.target(), goes_on)
            .map_err(|e| Stop::Failed(single::failed(&e, self.server)))?;
        if outcome.interrupted || self.watcher.interrupted() {
            return Err(Stop::Interrupted);
        }
        let felt = outcome.histograms.felt();
        let at = |quantile| (felt.count() > 0).then(|| felt.quantile_ns(quantile));
        let achieved = outcome.requests_per_second();
        let offered = arrivals.rate().map_or(achieved, |rate| rate.per_second);
        let mut all = self.objectives.iter();
        let holds = all.all(|objective| probe(&outcome, objective).holds(objective, offered));
        let asked = phase != Phase::Capacity && !self.objectives.is_empty();
        let cpu = outcome.metered.as_ref().filter(|_| outcome.requests > 0);
        self.points.push(Point {
            phase,
            offered,
            achieved,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            server_cpu_ns_per_request: cpu
                .map(|metered| metered.server.total_ns as f64 / outcome.requests as f64),
            holds: asked.then_some(holds),
            doubts: Trust::of(&plan, &outcome)
                .reasons
                .iter()
                .map(|reason| reason.kind)
                .collect(),
            spectrum: outcome
                .spectrum
                .iter()
                .map(|at| (at.quantile, at.ns))
                .collect(),
        });
        Ok(holds)
    }

    fn capacity(&self) -> Option<f64> {
        let mut of = self
            .points
            .iter()
            .filter(|point| point.phase == Phase::Capacity);
        of.next().map(|point| point.achieved)
    }
}

/// What a run says about an objective.
fn probe(outcome: &Outcome, objective: &Objective) -> Probe {
    let felt = outcome.histograms.felt();
    Probe {
        achieved: outcome.requests_per_second(),
        latency_ns: (felt.count() > 0).then(|| felt.quantile_ns(objective.quantile)),
    }
}

impl Shown<'_> {
    /// What came out, in words.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        let objectives = self.objectives.iter().map(Objective::to_string);
        let objectives = objectives.collect::<Vec<_>>().join(" and ");
        match (self.objective, self.held) {
            (Some(_), Some(held)) => {
                let rate = output::grouped(held.rate);
                let (low, high) = (held.between.low, held.between.high);
                all.push(format!(
                    "{objectives} is held at {rate} a second, in every one of the runs that confirmed it; {} searches \
                     came to {} a second, 95 % interval {} to {}.",
                    held.found.len(),
                    output::grouped(held.between.value),
                    output::grouped(low),
                    output::grouped(high)
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
                output::grouped(rate)
            )),
            None if self.points.iter().any(|point| point.phase == Phase::Sweep) => {
                all.push("No knee: rate by latency still rises at the last rate.".into());
            }
            None => {}
        }
        if let Some(capacity) = self.capacity {
            all.push(format!(
                "Without a rate, {} a second were answered.",
                output::grouped(capacity)
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
        // That a server does not keep a rate beyond what it can is what is looked for.
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
        let time =
            |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| output::micros(ns as f64 / 1e3));
        let rows = self.points.iter().filter(|point| match self.held {
            // Of a search, the runs of the rate that it came to.
            Some(held) if point.phase == Phase::Search => point.offered == held.rate,
            _ => point.phase == Phase::Sweep || self.held.is_none(),
        });
        let rows = rows.map(|point| {
            let cpu = point.server_cpu_ns_per_request;
            vec![
                output::grouped(point.offered),
                output::grouped(point.achieved),
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
