//! Whether the figures of a run may be believed, and if not, why not.
//!
//! The idea: a reason says which figures it spoils. A generator at its limit spoils the rate and leaves CPU per
//! request alone; a hypervisor that takes the cores away spoils everything.

mod server;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::histogram::{LatencySummary, Mode};
use crate::meter::{SATURATED, STEAL_MAX};
use crate::workload::{Outcome, Plan};

/// A core from which the hypervisor took more than this share makes the run worthless.
const STEAL_GRAVE: f64 = 0.10;
/// The generator's own lateness may be this share of the tail latency,
const SLIP_MAX: f64 = 0.10;
/// A slip beyond this share means that the generator itself was measured,
const SLIP_GRAVE: f64 = 0.50;
/// unless the slip is less than this time.
const SLIP_NOTED: Duration = Duration::from_micros(50);
/// From this share of the generator's ceiling on, it is noted.
const NEAR_CEILING: f64 = 0.8;
/// Messages that have to lie beyond a percentile for it to mean something.
const BEYOND: u64 = 10;
/// A rate is kept where at most this share of what was due has found no room by the end: one message may always be due in
/// the last moment.
const UNSENT_MAX: f64 = 0.01;
/// One segment sent again of so many TCP segments is noted.
const RETRANSMITS: u64 = 1000;

/// How far a run may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// No reason to doubt the run was found.
    Trustworthy,
    /// Some figures are spoilt, the others are valid.
    Reservations,
    /// No figure of the run should be passed on.
    NotTrustworthy,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Trustworthy => "trustworthy",
            Standing::Reservations => "trustworthy with reservations",
            Standing::NotTrustworthy => "not trustworthy",
        })
    }
}

/// The kinds of reasons to doubt a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The load generator had no more to give.
    GeneratorSaturated,
    /// The generator could have done little more against any server.
    NearCeiling,
    /// The server was not busy, and nothing says that it should not have been.
    ServerIdle,
    /// The hypervisor ran another guest.
    Steal,
    /// The generator sent later than it could have.
    Slip,
    /// The server did not take what was offered.
    Unsent,
    /// There are too few messages for the percentiles, or none.
    TooFewSamples,
    /// There are two kinds of replies, so one median says little.
    Bimodal,
    /// Segments were sent again.
    Retransmits,
    /// An accept queue was full.
    ListenOverflow,
    /// Threads of the server have ended, and their CPU time is missing.
    InexactCpu,
    /// Latencies were longer than are told apart.
    Clipped,
    /// Processes that are not measured hold the server's ends of connections.
    ServerElsewhere,
    /// The process that serves is unknown.
    ServerUnknown,
    /// Other processes ran on the cores of server and generator.
    Neighbours,
    /// Nothing was answered for a part of the run.
    Gap,
    /// Reads found nothing.
    Misses,
    /// The server wrote nothing of what it acknowledged as durable.
    NotWritten,
    /// Connections were made again, and what they owed was sent again, or lost.
    Reconnects,
    /// The run was ended before its time.
    Interrupted,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::GeneratorSaturated => "the generator was the bottleneck",
            Kind::NearCeiling => "the generator was near its ceiling",
            Kind::ServerIdle => "neither side was busy",
            Kind::Steal => "the hypervisor took a core away",
            Kind::Slip => "the generator itself was late",
            Kind::Unsent => "the server did not keep the rate",
            Kind::TooFewSamples => "too few latencies for p99",
            Kind::Bimodal => "two kinds of replies",
            Kind::Retransmits => "segments were sent again",
            Kind::ListenOverflow => "an accept queue was full",
            Kind::InexactCpu => "threads of the server ended",
            Kind::Clipped => "latencies of more than a day",
            Kind::ServerElsewhere => "another process serves than the one that is measured",
            Kind::ServerUnknown => "which process serves cannot be told",
            Kind::Neighbours => "other processes ran on these cores",
            Kind::Gap => "nothing was answered for a while",
            Kind::Misses => "reads found nothing",
            Kind::NotWritten => "what was acknowledged as durable was not written",
            Kind::Reconnects => "connections were closed with requests in flight",
            Kind::Interrupted => "interrupted",
        })
    }
}

/// One reason, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The kind of the reservation.
    pub kind: Kind,
    /// The gravity of the reason: the verdict on the run if this were its only reason.
    pub standing: Standing,
    /// The finding, and the figures that it spoils.
    pub text: String,
}

/// The verdict on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trust {
    /// The worst of the reasons'.
    pub standing: Standing,
    /// The reasons to doubt the result.
    pub reasons: Vec<Reason>,
}

impl Trust {
    /// The verdict on what a plan has come to.
    pub fn of(plan: &Plan, outcome: &Outcome) -> Trust {
        let mut trust = Trust {
            standing: Standing::Trustworthy,
            reasons: Vec::new(),
        };
        trust.busy(plan, outcome);
        trust.machine(outcome);
        trust.network(outcome);
        trust.server(plan, outcome);
        trust.schedule(outcome);
        trust.samples(plan, outcome);
        if let [low, high] = outcome.modes[..] {
            trust.bimodal(low, high);
        }
        if outcome.interrupted {
            trust.reserve(
                Kind::Interrupted,
                "it was interrupted: figures are of what there was",
            );
        }
        trust
    }

    /// Holds a rate against what the generator reached with nothing to wait for.
    pub fn beside_ceiling(&mut self, per_second: f64, ceiling: f64) {
        let share = per_second / ceiling.max(f64::MIN_POSITIVE);
        if share >= NEAR_CEILING {
            let text = format!(
                "{:.0} % of what the generator can do at all: the rate and latencies are the generator's too",
                share * 100.0
            );
            self.reserve(Kind::NearCeiling, text);
        }
    }

    fn add(&mut self, kind: Kind, standing: Standing, text: impl Into<String>) {
        self.standing = self.standing.max(standing);
        self.reasons.push(Reason {
            kind,
            standing,
            text: text.into(),
        });
    }

    fn reserve(&mut self, kind: Kind, text: impl Into<String>) {
        self.add(kind, Standing::Reservations, text);
    }

    /// Which side was at its limit, if the load needs one to be at its limit.
    fn busy(&mut self, plan: &Plan, outcome: &Outcome) {
        let Some(metered) = &outcome.metered else {
            return;
        };
        if plan.arrivals.rate().is_some() || plan.workload.is_held() {
            return;
        }
        let server = metered.server_busy(outcome.server_cores);
        if server >= SATURATED || plan.is_lock_step() {
            return;
        }
        let elapsed = metered.elapsed.as_nanos().max(1) as f64;
        let generator = metered.generator.total_ns as f64 / elapsed;
        let server = server * 100.0;
        if generator >= SATURATED * outcome.generator_cores as f64 {
            self.reserve(
                Kind::GeneratorSaturated,
                format!(
                    "the generator is the bottleneck, the server was busy for {server:.0} % only: \
                     the rate says nothing about the server"
                ),
            );
        } else {
            self.reserve(
                Kind::ServerIdle,
                format!(
                    "neither side was busy (server {server:.0} %, generator {:.0} %): they waited \
                     for each other, or other processes took their cores; the rate says nothing \
                     about the server",
                    generator * 100.0
                ),
            );
        }
    }

    fn machine(&mut self, outcome: &Outcome) {
        let Some(metered) = &outcome.metered else {
            return;
        };
        let steal = metered.cores.iter().map(|core| core.steal);
        let steal = steal.fold(0.0, f64::max);
        if steal > STEAL_MAX {
            let standing = match steal > STEAL_GRAVE {
                true => Standing::NotTrustworthy,
                false => Standing::Reservations,
            };
            let share = steal * 100.0;
            let text = format!("the hypervisor took {share:.0} % of a core: latencies, the rate");
            self.add(Kind::Steal, standing, text);
        }
        if !metered.server.exact {
            let text = "threads of the server ended: its CPU is right to two ticks only";
            self.reserve(Kind::InexactCpu, text);
        }
    }

    fn network(&mut self, outcome: &Outcome) {
        // The meter's figures during the measurement, if known: the cost of connecting is in no
        // latency.
        let metered = outcome.metered.as_ref().map(|metered| metered.tcp);
        if let Some(tcp) = metered.or(outcome.kernel.map(|kernel| kernel.tcp)) {
            let (again, sent) = (tcp.retransmitted, tcp.sent);
            if again > sent / RETRANSMITS {
                let text = format!("{again} of {sent} TCP segments were sent again: latencies");
                self.reserve(Kind::Retransmits, text);
            }
        }
        let overflows = outcome.kernel.map_or(0, |kernel| kernel.listen.overflows);
        if overflows > 0 {
            let text = format!(
                "an accept queue of this network namespace was full {overflows} times: clients that connected waited for a second or more; latencies, connections a second (a longer backlog, more that accept)"
            );
            self.reserve(Kind::ListenOverflow, text);
        }
    }

    fn schedule(&mut self, outcome: &Outcome) {
        let Some(schedule) = &outcome.schedule else {
            return;
        };
        if let (Some(slip), Some(latency)) = (&schedule.slip, &schedule.latency) {
            self.slip(slip, latency);
        }
        let due = outcome.requests.saturating_add(schedule.unsent);
        if schedule.unsent > 1 && schedule.unsent as f64 > due as f64 * UNSENT_MAX {
            let text = format!(
                "{} messages were due and had found no room at the end: the server does not keep \
                 this rate, and latencies grow with the length of the run",
                schedule.unsent
            );
            self.reserve(Kind::Unsent, text);
        }
    }

    fn slip(&mut self, slip: &LatencySummary, latency: &LatencySummary) {
        let share = slip.p99_ns as f64 / latency.p99_ns.max(1) as f64;
        if share <= SLIP_MAX || u128::from(slip.p99_ns) < SLIP_NOTED.as_nanos() {
            return;
        }
        let standing = match share > SLIP_GRAVE {
            true => Standing::NotTrustworthy,
            false => Standing::Reservations,
        };
        let text = format!(
            "the generator itself was late, {:.0} us at p99, {:.0} % of the latency there: \
             latencies say that much about the generator",
            slip.p99_ns as f64 / 1e3,
            share * 100.0
        );
        self.add(Kind::Slip, standing, text);
    }

    fn samples(&mut self, plan: &Plan, outcome: &Outcome) {
        let nothing_asked = plan.workload.active_of(plan.connections) == 0;
        if outcome.requests == 0 && !nothing_asked {
            let text = "nothing was answered: there are no figures";
            return self.add(Kind::TooFewSamples, Standing::NotTrustworthy, text);
        }
        let Some(latency) = &outcome.latency else {
            return;
        };
        let scheduled = outcome.schedule.as_ref().and_then(|by| by.latency);
        let clipped = latency.saturated + scheduled.map_or(0, |felt| felt.saturated);
        if clipped > 0 {
            let text = format!("{clipped} latencies were longer than a day, and count as that");
            self.reserve(Kind::Clipped, text);
        }
        if latency.count < BEYOND * 100 {
            let text = format!(
                "{} latencies are too few for p99, which needs {}",
                latency.count,
                BEYOND * 100
            );
            self.reserve(Kind::TooFewSamples, text);
        }
    }

    fn bimodal(&mut self, low: Mode, high: Mode) {
        let text = format!(
            "two kinds of replies, {:.0} % near {:.0} us and {:.0} % near {:.0} us: the median says \
             little",
            low.share * 100.0,
            low.ns as f64 / 1e3,
            high.share * 100.0,
            high.ns as f64 / 1e3,
        );
        self.reserve(Kind::Bimodal, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::meter::Metered;
    use crate::procfs::{ContextSwitches, CoreShare, CpuSpent, ListenQueues, TcpSegments};
    use crate::workload::{
        Arrivals, EchoLoad, Extent, Histograms, IdleLoad, Kernel, Rate, Schedule, Workload,
    };

    fn latencies(us: u64, count: u64) -> Option<LatencySummary> {
        let mut all = Latencies::new();
        all.record_many(us * 1_000, count);
        all.summary()
    }

    fn spent(share: f64) -> CpuSpent {
        CpuSpent {
            total_ns: (share * 1e9) as u64,
            user_ns: 0,
            system_ns: 0,
            exact: true,
        }
    }

    #[test]
    fn a_rate_is_kept_though_a_few_messages_were_due_in_the_last_moment() {
        let open = Arrivals::Open(Rate::constant(100_000.0));
        let run = |requests, unsent| Outcome {
            requests,
            schedule: Some(Schedule {
                latency: latencies(100, 100_000),
                slip: latencies(1, 100_000),
                unsent,
            }),
            ..good(0.5, 0.5)
        };
        for (requests, unsent) in [(100_000, 1), (100_000, 900), (2, 1)] {
            let trust = Trust::of(&plan(open), &run(requests, unsent));
            assert!(trust.reasons.is_empty(), "{unsent} of {requests}");
        }
        for (requests, unsent) in [(100_000, 1_100), (20, 2)] {
            only(
                open,
                &run(requests, unsent),
                Kind::Unsent,
                Standing::Reservations,
            );
        }
    }

    /// A second on ten connections, of which nothing bad is known.
    pub(super) fn good(server: f64, generator: f64) -> Outcome {
        Outcome {
            requests: 100_000,
            bytes: 0,
            elapsed: Duration::from_secs(1),
            latency: latencies(100, 100_000),
            schedule: None,
            spectrum: Vec::new(),
            modes: Vec::new(),
            progress: Vec::new(),
            body_bytes: None,
            reads: None,
            reconnects: None,
            longest_gap: None,
            serving: crate::serving::Serving::default(),
            memory: None,
            histograms: Histograms::default(),
            metered: Some(Metered {
                elapsed: Duration::from_secs(1),
                server: spent(server),
                generator: spent(generator),
                server_switches: ContextSwitches {
                    voluntary: 0,
                    involuntary: 0,
                },
                tcp: TcpSegments {
                    received: 0,
                    sent: 200_000,
                    retransmitted: 0,
                },
                cores: vec![CoreShare {
                    core: 0,
                    busy: 1.0,
                    steal: 0.0,
                }],
                others: crate::meter::Others {
                    busy_ns: 0,
                    cores: 1,
                },
                server_written_bytes: None,
            }),
            kernel: None,
            server_cores: 1,
            rounds: Vec::new(),
            interrupted: false,
            client_engine: String::new(),
            generator_loops: 1,
            generator_processes: 1,
            generator_cores: 1,
        }
    }

    pub(super) fn plan(arrivals: Arrivals) -> Plan {
        Plan {
            workload: Workload::of(EchoLoad {
                size: 64,
                pipeline: 1,
                batch: 0,
            }),
            connections: 10,
            arrivals,
            extent: Extent::Count(100_000),
        }
    }

    /// Checks that this is the only reservation, and how grave it is.
    #[track_caller]
    pub(super) fn only(arrivals: Arrivals, outcome: &Outcome, kind: Kind, standing: Standing) {
        let trust = Trust::of(&plan(arrivals), outcome);
        let kinds: Vec<Kind> = trust.reasons.iter().map(|reason| reason.kind).collect();
        assert_eq!((kinds, trust.standing), (vec![kind], standing), "{trust:?}");
    }

    #[test]
    fn a_busy_server_and_nothing_else_is_trustworthy() {
        let trust = Trust::of(&plan(Arrivals::Closed), &good(0.97, 0.8));
        assert_eq!(
            (trust.standing, trust.reasons.len()),
            (Standing::Trustworthy, 0)
        );
    }

    #[test]
    fn the_bottleneck_is_named() {
        let closed = Arrivals::Closed;
        only(
            closed,
            &good(0.5, 0.97),
            Kind::GeneratorSaturated,
            Standing::Reservations,
        );
        only(
            closed,
            &good(0.5, 0.5),
            Kind::ServerIdle,
            Standing::Reservations,
        );
        let open = Arrivals::Open(Rate::constant(1000.0));
        assert!(
            Trust::of(&plan(open), &good(0.1, 0.1)).reasons.is_empty(),
            "as it should be"
        );
    }

    #[test]
    fn what_comes_near_the_ceiling_is_said() {
        let near = |rate| {
            let mut trust = Trust::of(&plan(Arrivals::Closed), &good(0.97, 0.8));
            trust.beside_ceiling(rate, 100_000.0);
            trust.standing
        };
        assert_eq!(near(79_000.0), Standing::Trustworthy);
        assert_eq!(near(81_000.0), Standing::Reservations);
    }

    #[test]
    fn a_machine_that_was_elsewhere_spoils_all() {
        let mut outcome = good(0.97, 0.8);
        let steal = |outcome: &mut Outcome, share| {
            outcome.metered.as_mut().unwrap().cores[0].steal = share;
        };
        steal(&mut outcome, 0.05);
        only(
            Arrivals::Closed,
            &outcome,
            Kind::Steal,
            Standing::Reservations,
        );
        steal(&mut outcome, 0.2);
        only(
            Arrivals::Closed,
            &outcome,
            Kind::Steal,
            Standing::NotTrustworthy,
        );
        steal(&mut outcome, 0.0);
        outcome.metered.as_mut().unwrap().tcp.retransmitted = 1_000;
        only(
            Arrivals::Closed,
            &outcome,
            Kind::Retransmits,
            Standing::Reservations,
        );
    }

    #[test]
    fn an_accept_queue_that_was_full_is_said() {
        let run = |overflows, retransmitted| Outcome {
            kernel: Some(Kernel {
                tcp: TcpSegments {
                    received: 0,
                    sent: 1_000,
                    retransmitted,
                },
                listen: ListenQueues {
                    overflows,
                    drops: 5,
                },
            }),
            ..good(0.97, 0.8)
        };
        let (closed, standing) = (Arrivals::Closed, Standing::Reservations);
        only(closed, &run(1, 0), Kind::ListenOverflow, standing);
        let quiet = Trust::of(&plan(closed), &run(0, 100));
        assert!(quiet.reasons.is_empty(), "sent again while connecting");
        // A server whose process is not known is judged by the whole run.
        let unknown = Outcome {
            metered: None,
            ..run(0, 100)
        };
        only(closed, &unknown, Kind::Retransmits, standing);
    }

    #[test]
    fn a_late_generator_is_told_from_a_slow_server() {
        let open = Arrivals::Open(Rate::constant(100_000.0));
        let run = |slip_us, latency_us, unsent| Outcome {
            schedule: Some(Schedule {
                latency: latencies(latency_us, 100_000),
                slip: latencies(slip_us, 100_000),
                unsent,
            }),
            ..good(0.5, 0.5)
        };
        assert!(
            Trust::of(&plan(open), &run(40, 100, 0)).reasons.is_empty(),
            "a timer's tick"
        );
        assert!(
            Trust::of(&plan(open), &run(500, 10_000, 0))
                .reasons
                .is_empty(),
            "a twentieth"
        );
        only(
            open,
            &run(300, 1_000, 0),
            Kind::Slip,
            Standing::Reservations,
        );
        only(
            open,
            &run(800, 1_000, 0),
            Kind::Slip,
            Standing::NotTrustworthy,
        );
        only(
            open,
            &run(1, 1_000, 7_000),
            Kind::Unsent,
            Standing::Reservations,
        );
    }

    #[test]
    fn too_few_two_kinds_and_cut_short_are_said() {
        let closed = Arrivals::Closed;
        let few = Outcome {
            latency: latencies(100, 999),
            ..good(0.97, 0.8)
        };
        only(closed, &few, Kind::TooFewSamples, Standing::Reservations);
        let none = Outcome {
            requests: 0,
            latency: None,
            ..good(0.97, 0.8)
        };
        only(closed, &none, Kind::TooFewSamples, Standing::NotTrustworthy);
        let idle = Plan {
            workload: Workload::of(IdleLoad {
                size: 1,
                active: 0.0,
            }),
            ..plan(closed)
        };
        assert!(
            Trust::of(&idle, &none).reasons.is_empty(),
            "nothing was asked"
        );
        let mode = |ns, share| Mode { ns, share };
        let two = Outcome {
            modes: vec![mode(1_000, 0.9), mode(9_000, 0.1)],
            ..good(0.97, 0.8)
        };
        only(closed, &two, Kind::Bimodal, Standing::Reservations);
        let cut = Outcome {
            interrupted: true,
            ..good(0.97, 0.8)
        };
        only(closed, &cut, Kind::Interrupted, Standing::Reservations);
    }
}
