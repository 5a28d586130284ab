//! Reasons to doubt a run: which processes served, which other processes ran beside them, whether
//! all of the work was done.

use std::time::Duration;

use super::{Kind, Standing, Trust};
use crate::workload::{Outcome, Plan};

/// Other processes may have this share of the cores of server and generator,
const OTHERS_MAX: f64 = 0.05;
/// Beyond this share the other processes were measured too.
const OTHERS_GRAVE: f64 = 0.25;
/// A time without an answer is noted from this share of the run on,
const GAP_SHARE: f64 = 0.1;
/// if the gap is at least this long,
const GAP_NOTED: Duration = Duration::from_millis(50);
/// and this many times as long as a reply commonly takes.
const GAP_MEDIANS: f64 = 10.0;
/// Bytes acknowledged as durable from which on it is looked whether they were written,
const ACKNOWLEDGED_MIN: u64 = 64 << 10;
/// at least this part of them, for a log may be compressed.
const WRITTEN_PART: u64 = 64;
/// Most ids of processes that are named.
const NAMED_MAX: usize = 5;

impl Trust {
    pub(super) fn server(&mut self, plan: &Plan, outcome: &Outcome) {
        self.who_served(outcome);
        self.beside_others(outcome);
        self.gap(outcome);
        self.reads(plan, outcome);
        self.durable(plan, outcome);
        self.reconnects(outcome);
    }

    fn who_served(&mut self, outcome: &Outcome) {
        let Some(metered) = &outcome.metered else {
            return;
        };
        let serving = &outcome.serving;
        if serving.elsewhere > 0 {
            let ids = serving.others.iter().take(NAMED_MAX).map(u32::to_string);
            let mut ids = ids.collect::<Vec<_>>().join(", ");
            if serving.others.len() > NAMED_MAX {
                ids += ", ...";
            }
            let text = format!(
                "{} of {} connections are held by processes that are not measured ({ids}): the server's CPU is not all of \
                 it (leave --pid out, or name the process that serves)",
                serving.elsewhere, serving.connections
            );
            self.add(Kind::ServerElsewhere, Standing::NotTrustworthy, text);
        } else if outcome.requests > 0 && metered.server.total_ns == 0 {
            let text = "the process that is measured used no CPU at all, so it is not the one that answered";
            self.add(Kind::ServerElsewhere, Standing::NotTrustworthy, text);
        } else if serving.unknown {
            let text = "which process serves cannot be told by its connections, which no process is seen to hold: the \
                        server's CPU is that of the process that was named, started, or listens";
            self.reserve(Kind::ServerUnknown, text);
        }
    }

    fn beside_others(&mut self, outcome: &Outcome) {
        let Some(metered) = &outcome.metered else {
            return;
        };
        let share = metered.others_share();
        if share <= OTHERS_MAX {
            return;
        }
        let standing = match share > OTHERS_GRAVE {
            true => Standing::NotTrustworthy,
            false => Standing::Reservations,
        };
        let text = format!(
            "other processes had {:.0} % of the {} cores of server and generator: latencies and the rate, and CPU too where \
             a server does its work in another process",
            share * 100.0,
            metered.others.cores
        );
        self.add(Kind::Neighbours, standing, text);
    }

    /// In a closed loop, a server that stops for seconds causes one slow reply on each connection, which no percentile
    /// shows.
    fn gap(&mut self, outcome: &Outcome) {
        let Some(gap) = outcome.longest_gap else {
            return;
        };
        let median_ns = outcome.latency.map_or(0, |latency| latency.p50_ns);
        let noted = gap >= GAP_NOTED
            && gap >= outcome.elapsed.mul_f64(GAP_SHARE)
            && gap.as_nanos() as f64 >= median_ns as f64 * GAP_MEDIANS;
        if noted {
            let text = format!(
                "nothing was answered for {:.2} of {:.2} s in one go: without a rate that is one slow reply on each \
                 connection, and percentiles do not show it (see --rate)",
                gap.as_secs_f64(),
                outcome.elapsed.as_secs_f64()
            );
            self.reserve(Kind::Gap, text);
        }
    }

    fn reads(&mut self, plan: &Plan, outcome: &Outcome) {
        let Some(reads) = outcome.reads else {
            return;
        };
        let is_filled = plan.workload.is_filled();
        let all = reads.hits + reads.misses;
        let share = reads.misses as f64 / all.max(1) as f64 * 100.0;
        if is_filled && reads.hits == 0 && reads.misses > 0 {
            let text = format!(
                "none of {all} reads found its key, though every key was set before: the server keeps nothing"
            );
            self.add(Kind::Misses, Standing::NotTrustworthy, text);
        } else if is_filled && reads.misses > 0 {
            let text = format!(
                "{} of {all} reads ({share:.1} %) found nothing, though every key was set before: the server forgets, and \
                 a miss is less work than a hit",
                reads.misses
            );
            self.reserve(Kind::Misses, text);
        } else if reads.misses > reads.hits {
            let text = format!(
                "{share:.1} % of the reads found nothing, or of the replies to pushes and increments did not rise: that \
                     is less work"
            );
            self.reserve(Kind::Misses, text);
        }
    }

    /// What is acknowledged as durable has been written by then.
    fn durable(&mut self, plan: &Plan, outcome: &Outcome) {
        let written = outcome
            .metered
            .as_ref()
            .and_then(|metered| metered.server_written_bytes);
        let Some(written) = written.filter(|_| plan.workload.is_durable()) else {
            return;
        };
        if outcome.bytes >= ACKNOWLEDGED_MIN && written < outcome.bytes / WRITTEN_PART {
            let text = format!(
                "{} bytes were acknowledged as durable, while the server wrote {written} to disks: its log is on a file \
                 system in memory, another process writes it, or the acknowledgements mean less",
                outcome.bytes
            );
            self.reserve(Kind::NotWritten, text);
        }
    }

    fn reconnects(&mut self, outcome: &Outcome) {
        let Some(reconnects) = outcome.reconnects else {
            return;
        };
        let (resent, lost) = (reconnects.unannounced, reconnects.lost);
        if resent > 0 {
            let text = format!(
                "the server closed connections without saying so, and {resent} requests in flight were sent again: \
                 latencies"
            );
            self.reserve(Kind::Reconnects, text);
        }
        if lost > 0 {
            let text = format!(
                "{lost} messages were lost with connections that the server closed ({} were made again): latencies do not \
                 have them",
                reconnects.connections
            );
            self.reserve(Kind::Reconnects, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{good, only, plan};
    use super::*;
    use crate::meter::{Metered, Others};
    use crate::serving::Serving;
    use crate::workload::{
        Arrivals, KeyChoice, KvLoad, NativeLoad, Reads, Reconnects, ValueSizes, Wire, Workload,
    };
    use tidewire_ingest::client::Level;

    const CLOSED: Arrivals = Arrivals::Closed;

    #[test]
    fn the_server_that_answers_is_the_measured_one() {
        let serving = |elsewhere, unknown| Outcome {
            serving: Serving {
                connections: 10,
                elsewhere,
                others: (0..elsewhere as u32).collect(),
                unseen: 0,
                unknown,
            },
            ..good(0.97, 0.8)
        };
        let grave = Standing::NotTrustworthy;
        only(CLOSED, &serving(1, false), Kind::ServerElsewhere, grave);
        let unknown = serving(0, true);
        only(
            CLOSED,
            &unknown,
            Kind::ServerUnknown,
            Standing::Reservations,
        );
        // A process that sleeps.
        only(
            Arrivals::Open(crate::workload::Rate::constant(1e3)),
            &good(0.0, 0.8),
            Kind::ServerElsewhere,
            grave,
        );
    }

    #[test]
    fn neighbours_are_said() {
        let beside = |share: f64| {
            let mut outcome = good(0.97, 0.8);
            if let Some(Metered { others, .. }) = &mut outcome.metered {
                *others = Others {
                    busy_ns: (share * 2e9) as u64,
                    cores: 2,
                };
            }
            outcome
        };
        assert!(
            Trust::of(&plan(CLOSED), &beside(0.04)).reasons.is_empty(),
            "samples"
        );
        let some = Standing::Reservations;
        only(CLOSED, &beside(0.1), Kind::Neighbours, some);
        only(
            CLOSED,
            &beside(0.5),
            Kind::Neighbours,
            Standing::NotTrustworthy,
        );
    }

    #[test]
    fn a_server_that_is_dead_for_a_while_is_found_without_a_rate() {
        let dead = |gap_ms| Outcome {
            longest_gap: Some(Duration::from_millis(gap_ms)),
            ..good(0.97, 0.8)
        };
        only(CLOSED, &dead(400), Kind::Gap, Standing::Reservations);
        assert!(Trust::of(&plan(CLOSED), &dead(90)).reasons.is_empty());
        // Each reply takes as long.
        let slow = Outcome {
            latency: {
                let mut all = crate::histogram::Latencies::new();
                all.record_many(300_000_000, 2_000);
                all.summary()
            },
            ..dead(400)
        };
        assert!(Trust::of(&plan(CLOSED), &slow).reasons.is_empty());
    }

    #[test]
    fn a_server_that_forgets_is_found_out() {
        let with = |filled, hits, misses| {
            let plan = Plan {
                workload: Workload::of(KvLoad {
                    wire: Wire::Resp,
                    key_size: 17,
                    keys: 10,
                    size: ValueSizes::Fixed(3),
                    pipeline: 4,
                    reads: 0.5,
                    choice: KeyChoice::Uniform,
                    command: None,
                    filled,
                }),
                ..plan(CLOSED)
            };
            let outcome = Outcome {
                reads: Some(Reads { hits, misses }),
                ..good(0.97, 0.8)
            };
            Trust::of(&plan, &outcome).standing
        };
        assert_eq!(with(true, 100, 0), Standing::Trustworthy);
        assert_eq!(with(true, 99, 1), Standing::Reservations);
        assert_eq!(with(true, 0, 100), Standing::NotTrustworthy);
        assert_eq!(with(false, 60, 40), Standing::Trustworthy);
        assert_eq!(with(false, 1, 99), Standing::Reservations);
    }

    #[test]
    fn what_is_acknowledged_as_durable_is_written() {
        let run = |level, bytes, written| {
            let plan = Plan {
                workload: Workload::of(NativeLoad {
                    level,
                    named: false,
                    payload: 100,
                    batch: 100,
                    window: 0,
                }),
                ..plan(CLOSED)
            };
            let mut outcome = Outcome {
                bytes,
                ..good(0.97, 0.8)
            };
            if let Some(metered) = &mut outcome.metered {
                metered.server_written_bytes = written;
            }
            let trust = Trust::of(&plan, &outcome);
            trust
                .reasons
                .iter()
                .any(|reason| reason.kind == Kind::NotWritten)
        };
        let many = 10 << 20;
        assert!(run(Level::Durable, many, Some(0)) && run(Level::Replicated, many, Some(100)));
        assert!(!run(Level::Durable, many, Some(many)));
        assert!(!run(Level::Durable, many, Some(many / 10)), "compressed");
        assert!(!run(Level::Durable, 1_000, Some(0)), "too little to tell");
        assert!(!run(Level::Durable, many, None), "the kernel does not say");
        assert!(!run(Level::Received, many, Some(0)), "not promised");
    }

    #[test]
    fn connections_that_were_made_again_are_said_where_something_was_in_flight() {
        let run = |unannounced, lost| Outcome {
            reconnects: Some(Reconnects {
                connections: 3,
                resent: 2,
                unannounced,
                lost,
            }),
            ..good(0.97, 0.8)
        };
        assert!(
            Trust::of(&plan(CLOSED), &run(0, 0)).reasons.is_empty(),
            "announced"
        );
        let some = Standing::Reservations;
        only(CLOSED, &run(2, 0), Kind::Reconnects, some);
        only(CLOSED, &run(0, 1), Kind::Reconnects, some);
    }
}
