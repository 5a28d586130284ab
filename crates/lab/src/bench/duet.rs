//! Two servers under load at once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;
use tidewire_load::abba;
use tidewire_load::duet::{Duet, Round, SLICE, Track};
use tidewire_load::stats::Bootstrap;
use tidewire_load::trust::Trust;
use tidewire_load::workload::{
    self, Arrivals, Extent, Generator, Outcome, Plan, Progress, Target, Workload,
};

use super::against::Against;
use super::comparison::{Args, Stand};
use super::loads::Loads;
use super::page;
use super::watch::Watcher;
use super::{arrivals, output, runs};
use tidewire_command::exit::{Failure, UNTRUSTWORTHY};

/// The result for machines.
#[derive(Serialize)]
struct Shown<'a> {
    question: &'a str,
    workload_a: &'a Workload,
    workload_b: &'a Workload,
    arrivals: Arrivals,
    connections: usize,
    round_time: Duration,
    warm_up: Duration,
    slice: Duration,
    a: &'a str,
    b: &'a str,
    interrupted: bool,
    #[serde(flatten)]
    duet: &'a Duet,
}

/// Runs it and shows what came out. Runs of A beside B and of A beside the control alternate, and
/// so does the side that begins.
pub(super) fn run(
    args: &Loads<Args>,
    a: &Stand,
    b: &Stand,
    control: &Stand,
    watcher: &mut Watcher,
) -> Result<(), Failure> {
    if [a, b, control]
        .iter()
        .any(|stand| stand.server.target().process.is_none())
    {
        return Err(Failure::usage(
            "--duet compares CPU: name the process of a server that runs already with pid=",
        ));
    }
    let (mut of_b, mut of_control) = (Vec::new(), Vec::new());
    let (mut dropped, mut elsewhere) = (0, 0);
    // One more round of each kind, which warms up both servers and is discarded.
    let all = 2 * (args.rounds + 1);
    let mut interrupted = false;
    let mut against = Against::default();
    for number in 0..all {
        watcher.show(&format!("run {} of {all}", number + 1));
        let is_control = (number % 2 == 1) != (number % 4 >= 2);
        let other = if is_control { control } else { b };
        let Some(round) = args.both(a, other, number % 4 >= 2, watcher)? else {
            interrupted = true;
            break;
        };
        let Both { round, halves } = round;
        let is_elsewhere = halves.iter().any(|half| half.outcome.serving.elsewhere > 0);
        elsewhere += u32::from(is_elsewhere && number >= 2);
        if !is_control && number >= 2 {
            for (side, half) in [abba::Side::A, abba::Side::B].into_iter().zip(&halves) {
                against.take(side, &half.outcome, &half.trust);
            }
        }
        match (number < 2, round) {
            (true, _) => {}
            (false, None) => dropped += 1,
            (false, Some(round)) if is_control => of_control.push(round),
            (false, Some(round)) => of_b.push(round),
        }
    }
    watcher.done();
    let duet = Duet::of(of_b, of_control, &Bootstrap::default());
    let other_work = against.other_work();
    let mut remarks = other_work.clone();
    if interrupted {
        remarks.push("interrupted: this is of the runs that there were".to_owned());
    }
    if elsewhere > 0 {
        remarks.push(format!(
            "not trustworthy: in {elsewhere} runs, another process served than the one that is measured"
        ));
    }
    if dropped > 0 {
        remarks.push(format!(
            "{dropped} runs had too few slices of {} ms in which both servers answered: take a longer --round-time",
            SLICE.as_millis()
        ));
    }
    let environment = output::environment();
    show!("{environment}");
    show_line!("load                {}", args.generator.described());
    let title = a.load.workload.described() + &arrivals::described(&a.arrivals);
    show_line!("each                {title}");
    // Nothing is said of servers that do not do the same work.
    let sentences = match other_work.is_empty() {
        true => duet.sentences(&args.a.name, &args.b.name),
        false => Vec::new(),
    };
    for line in sentences.iter().chain(&remarks) {
        show_line!("{line}");
    }
    let shown = Shown {
        question: "under contention",
        workload_a: &a.load.workload,
        workload_b: &b.load.workload,
        arrivals: a.arrivals,
        connections: args.generator.connections(),
        round_time: args.round_time.0,
        warm_up: args.warmup.0,
        slice: SLICE,
        a: &args.a.name,
        b: &args.b.name,
        interrupted,
        duet: &duet,
    };
    if let Some(path) = &args.html {
        let data = output::carried("bench duet", &environment, &shown);
        let names = [&*args.a.name, &*args.b.name];
        let said = [sentences.clone(), remarks];
        let page = page::duet::page(title, &duet, names, said, data, &environment);
        page::write(path, &page)?;
    }
    if let Some(path) = &args.json {
        output::write(path, "bench duet", environment, &shown)?;
    }
    let doubt = match (elsewhere, duet.control_agrees) {
        (0, _) if !other_work.is_empty() => other_work.join("\n"),
        (0, true) => return Ok(()),
        (0, false) => sentences.first().cloned().unwrap_or_default(),
        _ => "not trustworthy: another process served than the one that is measured".to_owned(),
    };
    Err(Failure {
        status: UNTRUSTWORTHY,
        message: doubt,
    })
}

/// Two servers under load at once.
struct Both {
    /// The observation, if there were enough slices.
    round: Option<Round>,
    /// What came of A, and of the other one.
    halves: [Ran; 2],
}

/// What came of a server.
struct Ran {
    track: Track,
    outcome: Outcome,
    trust: Trust,
}

/// A server under load, as one of two.
struct Half {
    target: Target,
    plan: Plan,
    generator: Generator,
}

impl Loads<Args> {
    fn half(&self, stand: &Stand) -> Half {
        Half {
            target: stand.server.target().clone(),
            plan: Plan {
                workload: stand.load.workload.clone(),
                connections: self.generator.connections(),
                arrivals: stand.arrivals,
                extent: Extent::Time {
                    warm_up: self.warmup.0,
                    measured: self.round_time.0,
                },
            },
            generator: Generator {
                progress: SLICE,
                ..stand.generator.clone()
            },
        }
    }

    /// Loads A and another one at once. `None`: it was interrupted.
    fn both(
        &self,
        a: &Stand,
        other: &Stand,
        other_first: bool,
        watcher: &Watcher,
    ) -> Result<Option<Both>, Failure> {
        let (half_a, half_other) = (self.half(a), self.half(other));
        let failed = AtomicBool::new(false);
        let goes_on = || !watcher.interrupted() && !failed.load(Relaxed);
        let load = |half: &Half| {
            let result = half.load(&goes_on);
            if result.is_err() {
                // The run of the other server is useless without this one.
                failed.store(true, Relaxed);
            }
            result
        };
        let (first, second) = if other_first {
            (&half_other, &half_a)
        } else {
            (&half_a, &half_other)
        };
        let (one, two) = std::thread::scope(|scope| {
            let one = scope.spawn(|| load(first));
            let two = load(second);
            (one.join(), two)
        });
        let one = one.map_err(|_| Failure::failed("the load of one server ended in a panic"))?;
        let (of_a, of_other) = if other_first { (two, one) } else { (one, two) };
        let of_a = of_a.map_err(|e| runs::failed(&e, &a.server))?;
        let of_other = of_other.map_err(|e| runs::failed(&e, &other.server))?;
        if watcher.interrupted() {
            return Ok(None);
        }
        Ok(Some(Both {
            round: Round::of(&of_a.track, &of_other.track),
            halves: [of_a, of_other],
        }))
    }
}

impl Half {
    /// The course of a run, and what came of it.
    fn load(&self, goes_on: &dyn Fn() -> bool) -> Result<Ran, workload::Failure> {
        let mut track = Track::default();
        let warm_up = match self.plan.extent {
            Extent::Time { warm_up, .. } => warm_up,
            Extent::Count(_) | Extent::Rounds => Duration::ZERO,
        };
        let mut look = |at: Progress| {
            // Before anything is measured, servers still settle. What cannot be read is of no slice.
            let cpu = at.server.and_then(|process| process.cpu().ok());
            if let Some(cpu) = cpu.filter(|_| at.elapsed >= warm_up) {
                track.note(at.now_ns, at.requests, cpu.total().total_ns);
            }
            goes_on()
        };
        let outcome = workload::run(&self.plan, &self.generator, &self.target, &mut look)?;
        let trust = Trust::of(&self.plan, &outcome);
        Ok(Ran {
            track,
            outcome,
            trust,
        })
    }
}
