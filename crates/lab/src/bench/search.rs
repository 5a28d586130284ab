//! Rates: the highest that holds an objective, and how latency rises with them.

use std::path::Path;
use std::time::Duration;

use tidewire_load::search::{Held, Objective, Probe, Search, knee};
use tidewire_load::trust::Trust;
use tidewire_load::workload::{self, Arrivals, Extent, Generator, Outcome, Plan, Rate, Watch};

use super::page;
use super::rates::{Phase, Point, RatesFound};
use super::target::Ready;
use super::watch::Watcher;
use super::{output, runs};
use tidewire_command::count;
use tidewire_command::exit::{Failure, MISSED, UNTRUSTWORTHY};
use tidewire_load::numbers::{grouped, micros};

/// Default length of a run: there are dozens.
const DURATION: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(200);
/// A sweep ends beyond what was answered without a rate, by this.
const BEYOND: f64 = 1.1;

/// The arguments of a search.
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
                    .map_or("no reply".into(), |ns| micros(ns as f64 / 1e3));
                format!(
                    "{objective} is missed at {} a second: {at}, and {} a second were answered",
                    grouped(rate.per_second),
                    grouped(probe.achieved)
                )
            })
        });
        let missed: Vec<String> = missed.collect();
        (!missed.is_empty()).then(|| missed.join("; "))
    }
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

/// The place where the result is written.
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
    if !plan.workload.is_answered() || plan.workload.is_held() {
        return Err(Failure::usage(
            "--slo and --sweep are about replies to a rate: not for discard and idle",
        ));
    }
    let mut hunt = Hunt {
        plan: plan.clone(),
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
    let shown = RatesFound {
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
            plan.workload.described(),
            plan.connections
        );
        let environment = output::environment();
        let data = output::carried("bench search", &environment, &shown);
        let page = page::search::page(title, &shown, shown.table(), data, &environment);
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
            ..self.plan.clone()
        };
        let number = self.points.len() + 1;
        let what = arrivals.rate().map_or("no rate".into(), |rate| {
            format!("{} a second", grouped(rate.per_second))
        });
        self.watcher.show(&format!("run {number}: {what}"));
        let goes_on: Watch<'_> = &mut |_| !self.watcher.interrupted();
        let outcome = workload::run(&plan, self.generator, self.server.target(), goes_on)
            .map_err(|e| Stop::Failed(runs::failed(&e, self.server)))?;
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

/// Whether a run meets an objective.
fn probe(outcome: &Outcome, objective: &Objective) -> Probe {
    let felt = outcome.histograms.felt();
    Probe {
        achieved: outcome.requests_per_second(),
        latency_ns: (felt.count() > 0).then(|| felt.quantile_ns(objective.quantile)),
    }
}
