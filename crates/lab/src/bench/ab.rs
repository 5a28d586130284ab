//! Two servers, compared run by run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tidewire_load::abba::{self, Comparison, RunFailed, Sample, Schedule};
use tidewire_load::stats::Bootstrap;
use tidewire_load::trust::{Kind, Trust};
use tidewire_load::workload::{self, Arrivals, Extent, Outcome, Plan, Workload};

use super::against::Against;
use super::arrivals;
use super::comparison::{Args, Stand};
use super::counted::Pair;
use super::loads::Loads;
use super::page;
use super::page::ab::Spread;
use super::side::Server;
use super::watch::Watcher;
use super::{duet, output, runs};
use tidewire_command::exit::{Failure, UNTRUSTWORTHY};

/// Why a comparison ended early.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Load(#[from] workload::Failure),
    #[error("interrupted")]
    Interrupted,
    #[error("no message was answered in a run: take a longer --round-time")]
    Nothing,
}

/// The result for machines.
#[derive(Serialize)]
struct Shown<'a> {
    workload_a: &'a Workload,
    workload_b: &'a Workload,
    arrivals: Arrivals,
    connections: usize,
    round_time: Duration,
    warm_up: Duration,
    engine_a: Option<&'a str>,
    engine_b: Option<&'a str>,
    /// The generator of the load, and where it ran.
    generator: String,
    /// Why the figures should not be believed.
    doubts: &'a [String],
    /// What ended it before its time.
    failure: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<&'a Pair>,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

/// What makes a figure of a run doubtful, and is counted for each side. Of the others the comparison has its own.
const NOTED: [Kind; 10] = [
    Kind::NotWritten,
    Kind::ServerElsewhere,
    Kind::ServerUnknown,
    Kind::Neighbours,
    Kind::Gap,
    Kind::Misses,
    Kind::Reconnects,
    Kind::Clipped,
    Kind::Unsent,
    Kind::Slip,
];

/// Runs it and shows what came out.
pub(crate) fn run(args: &Loads<Args>) -> Result<(), Failure> {
    let mut watcher = Watcher::new()?;
    args.generator.in_one_process("bench ab")?;
    if args.load.url().is_some() {
        return Err(Failure::usage(
            "a URL is of one server: name two with --a and --b, and what they are asked for with --path",
        ));
    }
    let base = args.load.load()?.endless();
    let counted = args.counted(&mut watcher)?;
    if let (Some(counted), true) = (&counted, args.count.is_only()) {
        return counted.show_alone(args.json.as_deref());
    }
    let a = args.stand(&args.a, &base)?;
    let b = args.stand(&args.b, &base)?;
    let mut schedule = Schedule::new(args.rounds as usize);
    let control = if args.no_control {
        schedule = schedule.without_control();
        None
    } else {
        Some(args.stand(&args.a, &base)?)
    };
    if args.duet {
        let beside = control.as_ref().unwrap_or(&a);
        duet::run(args, &a, &b, beside, &mut watcher)?;
        for stand in [Some(a), Some(b), control].into_iter().flatten() {
            stand.server.stop()?;
        }
        return Ok(());
    }
    let comparable = Comparable::of(&a, &b);
    let mut number = 0;
    let mut interrupted = false;
    let mut against = Against::default();
    let mut spreads: BTreeMap<abba::Side, Vec<Spread>> = BTreeMap::new();
    let recorded = abba::run(&schedule, |turn| {
        number += 1;
        watcher.show(&format!("run {number} of {}", schedule.runs()));
        let stand = match turn.side {
            abba::Side::A => &a,
            abba::Side::B => &b,
            abba::Side::Control => control.as_ref().unwrap_or(&a),
        };
        let (outcome, trust) = args.one(stand, &mut watcher)?;
        if !turn.warm_up {
            against.take(turn.side, &outcome, &trust);
        }
        if args.html.is_some() && !turn.warm_up && comparable.latencies {
            spreads
                .entry(turn.side)
                .or_default()
                .push(Spread::of(&outcome));
        }
        let kinds = trust.reasons.iter().map(|reason| reason.kind);
        let noted = kinds.filter(|kind| NOTED.contains(kind));
        let sample = comparable.sample(outcome);
        Ok(noted.fold(sample, |sample, kind| sample.note(&kind.to_string())))
    });
    watcher.done();
    // The rounds that are whole are shown, whatever ended it.
    let (recorded, failure) = match recorded {
        Ok(recorded) => (recorded, None),
        Err(mut e) => {
            let so_far = e.so_far.take();
            interrupted = matches!(e.source, RunError::Interrupted);
            let failure = failed(e, &a, &b, control.as_ref());
            match so_far {
                Some(so_far) => (so_far, (!interrupted).then_some(failure)),
                None => return Err(failure),
            }
        }
    };
    let doubts = against.doubts(recorded.runs_of(abba::Side::A).len());
    let comparison = recorded
        .compare(&args.a.name, &args.b.name, &Bootstrap::default())
        .map_err(|e| Failure::failed(format!("the runs cannot be compared: {e}")))?;
    let environment = output::environment();
    show!("{environment}");
    show_line!("load                {}", args.generator.described());
    for (side, stand) in [("A", &a), ("B", &b)] {
        let engine = stand
            .server
            .engine()
            .unwrap_or("an engine it does not name");
        show_line!(
            "{side:<19} {}{}, on {engine}",
            stand.load.workload.described(),
            arrivals::described(&stand.arrivals),
        );
    }
    let headlines = match doubts.is_empty() {
        true => comparison.headlines(),
        false => doubts.clone(),
    };
    for sentence in &headlines {
        show_line!("{sentence}");
    }
    match doubts.is_empty() {
        true => show!("{comparison}"),
        false => show!("{}", abba::Figures(&comparison)),
    }
    if let Some(counted) = &counted {
        show!(
            "{}",
            counted.beside(&comparison, !against.other_work().is_empty())
        );
    }
    let mut remarks = Vec::new();
    if let Some(failure) = &failure {
        remarks.push(format!(
            "ended by a fault, this is of the whole rounds before it: {}",
            failure.message
        ));
    }
    if interrupted {
        remarks.push("interrupted: this is of the whole rounds that there were".to_owned());
    }
    if let Some(name) = args.generator.congestion() {
        for (side, of) in [("A", &args.a), ("B", &args.b)] {
            if !matches!(of.server, Server::Own(_)) {
                remarks.push(format!(
                    "{side} itself does not send by {name}: only servers started by this command can be told to"
                ));
            }
        }
    }
    if control.is_some() && matches!(args.a.server, Server::There { .. }) {
        remarks.push(
            "the control is A itself, not a second server: it shows less than it should".to_owned(),
        );
    }
    for remark in &remarks {
        show_line!("{remark}");
    }
    if args.json.is_some() || args.html.is_some() {
        let shown = Shown {
            workload_a: &a.load.workload,
            workload_b: &b.load.workload,
            arrivals: a.arrivals,
            connections: args.generator.connections(),
            round_time: args.round_time.0,
            warm_up: args.warmup.0,
            engine_a: a.server.engine(),
            engine_b: b.server.engine(),
            generator: args.generator.described(),
            doubts: &doubts,
            failure: failure.as_ref().map(|failure| &*failure.message),
            counted: counted.as_ref(),
            comparison: &comparison,
        };
        if let Some(path) = &args.html {
            let of = |side: abba::Side| spreads.get(&side).map_or(&[][..], Vec::as_slice);
            let mut sides = vec![
                (abba::Side::A, format!("A: {}", args.a.name)),
                (abba::Side::B, format!("B: {}", args.b.name)),
            ];
            if control.is_some() {
                sides.push((abba::Side::Control, "A again, the control".to_owned()));
            }
            let sides: Vec<_> = sides
                .into_iter()
                .map(|(side, label)| page::ab::Shown {
                    side,
                    label,
                    spreads: of(side),
                })
                .collect();
            let title = a.load.workload.described() + &arrivals::described(&a.arrivals);
            let data = output::carried("bench ab", &environment, &shown);
            let said = page::ab::Said {
                verdict: headlines,
                is_kept_back: !doubts.is_empty(),
                remarks,
            };
            let page = page::ab::page(title, &comparison, &sides, said, data, &environment);
            page::write(path, &page)?;
        }
        if let Some(path) = &args.json {
            output::write(path, "bench ab", environment, shown)?;
        }
    }
    for (side, stand) in [("A", Some(a)), ("B", Some(b)), ("the control", control)] {
        let limit = stand.map(|stand| stand.server.stop()).transpose()?;
        if let Some(limit) = limit.flatten() {
            show_line!("{side}: {limit}");
        }
    }
    match (failure, doubts.first()) {
        (Some(failure), _) => Err(failure),
        (None, Some(doubt)) => Err(Failure {
            status: UNTRUSTWORTHY,
            message: doubt.clone(),
        }),
        (None, None) => Ok(()),
    }
}

fn failed(error: RunFailed<RunError>, a: &Stand, b: &Stand, control: Option<&Stand>) -> Failure {
    let stand = match error.side {
        abba::Side::A => a,
        abba::Side::B => b,
        abba::Side::Control => control.unwrap_or(a),
    };
    let at = error.to_string();
    let Failure { status, message } = match error.source {
        RunError::Load(e) => runs::failed(&e, &stand.server),
        e @ (RunError::Interrupted | RunError::Nothing) => Failure::failed(e.to_string()),
    };
    Failure {
        status,
        message: format!("{at}: {message}"),
    }
}

impl Loads<Args> {
    fn one(&self, stand: &Stand, watcher: &mut Watcher) -> Result<(Outcome, Trust), RunError> {
        let extent = Extent::Time {
            warm_up: self.warmup.0,
            measured: self.round_time.0,
        };
        let plan = Plan {
            workload: stand.load.workload.clone(),
            connections: self.generator.connections(),
            arrivals: stand.arrivals,
            extent,
        };
        let target = stand.server.target();
        let outcome = workload::run(&plan, &stand.generator, target, &mut |_| {
            !watcher.interrupted()
        });
        // Messages that a shortened run did not reach are no fault of the server.
        let outcome = match outcome {
            Err(_) if watcher.interrupted() => return Err(RunError::Interrupted),
            outcome => outcome?,
        };
        if outcome.interrupted || watcher.interrupted() {
            return Err(RunError::Interrupted);
        }
        if outcome.requests == 0 && !plan.workload.is_held() {
            return Err(RunError::Nothing);
        }
        let trust = Trust::of(&plan, &outcome);
        Ok((outcome, trust))
    }
}

/// What both sides can tell.
struct Comparable {
    latencies: bool,
    cpu: bool,
}

impl Comparable {
    fn of(a: &Stand, b: &Stand) -> Comparable {
        let both = |is: &dyn Fn(&Stand) -> bool| is(a) && is(b);
        Comparable {
            latencies: both(&|stand| stand.load.workload.is_answered()),
            cpu: both(&|stand| stand.server.target().process.is_some()),
        }
    }

    fn sample(&self, mut outcome: Outcome) -> Sample {
        outcome.latency = outcome.latency.filter(|_| self.latencies);
        outcome.metered = outcome.metered.filter(|_| self.cpu);
        outcome.sample()
    }
}
