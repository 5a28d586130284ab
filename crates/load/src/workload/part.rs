//! A run that several processes make together: which connections are whose, and what is found is added up.
//!
//! The idea: the connections of the whole run are numbered, and dealt out to the processes in
//! turns. So everything that depends on the number (when it sends, its keys, its address, whether
//! it is active) is as in one process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::findings::{Reads, Reconnects};
use super::outcome::{Histograms, Outcome, Schedule};
use super::stage::{Round, Taken};
use crate::serving::Serving;

/// Which of so many equal parts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    number: usize,
    of: usize,
}

impl Part {
    /// The whole load.
    pub const WHOLE: Part = Part { number: 0, of: 1 };

    /// Part `number`, from 0, of `of`; `None` if `number` is too large.
    pub fn new(number: usize, of: usize) -> Option<Part> {
        (number < of).then_some(Part { number, of })
    }

    /// Place of this part among the parts, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// How many of all connections belong to this part.
    pub fn connections(&self, all: usize) -> usize {
        all.saturating_sub(self.number).div_ceil(self.of)
    }

    /// The number in the whole run of its connection `own`, from 0.
    pub(super) fn connection(&self, own: usize) -> u64 {
        (self.number + own * self.of) as u64
    }
}

/// The point at which one part waits for the other parts.
pub(super) trait Gate {
    /// All connections of this part are there: waits until the load is to begin, or `failed` says that it need not.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] if the part is not to begin at all.
    fn connected(&mut self, failed: &dyn Fn() -> bool) -> Result<(), Failure>;

    /// The measured time is over; replies to sent messages are still awaited.
    fn measured(&mut self);
}

/// The results of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) elapsed: Duration,
    pub(super) interrupted: bool,
    pub(super) client_engine: String,
    pub(super) taken: Taken,
    pub(super) rounds: Vec<Round>,
    /// Bytes of one reply's body to each request of the load together, where all are known.
    #[serde(default)]
    pub(super) body_bytes: Option<u64>,
}

impl Share {
    /// Adds another one's: counts and every bucket of the histograms are sums, and the time is the longest.
    pub(super) fn merge(&mut self, other: Share) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.interrupted |= other.interrupted;
        self.taken.merge(&other.taken);
        self.rounds.extend(other.rounds);
        self.body_bytes = self.body_bytes.or(other.body_bytes);
    }

    /// The figures, without the server's.
    pub(super) fn outcome(self, progress: Vec<(f64, u64)>) -> Outcome {
        let taken = self.taken;
        let findings = taken.findings;
        let schedule = taken.scheduled.as_ref().map(|by| Schedule {
            latency: by.latencies.summary(),
            slip: by.slip.summary(),
            unsent: by.unsent,
        });
        let schedule_is_absent = schedule.is_none();
        let histograms = Histograms {
            sent: taken.latencies,
            intended: taken.scheduled.map(|by| by.latencies),
        };
        Outcome {
            requests: self.requests,
            bytes: self.bytes,
            elapsed: self.elapsed,
            latency: histograms.sent.summary(),
            schedule,
            spectrum: histograms.felt().spectrum(),
            modes: histograms.felt().modes().into_iter().flatten().collect(),
            progress,
            body_bytes: self.body_bytes,
            reads: (findings.reads != Reads::default()).then_some(findings.reads),
            reconnects: (findings.reconnects != Reconnects::default())
                .then_some(findings.reconnects),
            longest_gap: schedule_is_absent.then_some(findings.gap),
            serving: Serving::default(),
            memory: None,
            kernel: None,
            histograms,
            metered: None,
            server_cores: 1,
            rounds: self.rounds,
            interrupted: self.interrupted,
            client_engine: self.client_engine,
            generator_loops: 1,
            generator_processes: 1,
            generator_cores: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::Findings;
    use super::*;
    use crate::histogram::Latencies;
    use crate::workload::stage::Scheduled;

    #[test]
    fn parts_have_every_connection_once() {
        for (all, of) in [(1, 1), (10, 3), (98_304, 6), (5, 8), (0, 2)] {
            let mut seen = vec![0; all];
            for number in 0..of {
                let part = Part::new(number, of).unwrap();
                for own in 0..part.connections(all) {
                    seen[part.connection(own) as usize] += 1;
                }
            }
            assert!(seen.iter().all(|&times| times == 1), "{all} in {of} parts");
        }
        assert_eq!(Part::new(2, 2), None);
    }

    fn share(latency_ns: u64, count: u64, unsent: u64) -> Share {
        let mut latencies = Latencies::new();
        latencies.record_many(latency_ns, count);
        Share {
            requests: count,
            bytes: 10 * count,
            elapsed: Duration::from_millis(count),
            interrupted: unsent > 0,
            client_engine: "epoll".into(),
            taken: Taken {
                latencies: latencies.clone(),
                scheduled: Some(Box::new(Scheduled {
                    slip: latencies.clone(),
                    latencies,
                    unsent,
                })),
                findings: Findings {
                    reads: Reads {
                        hits: count,
                        misses: unsent,
                    },
                    gap: Duration::from_millis(unsent),
                    ..Findings::default()
                },
            },
            rounds: vec![Round {
                connection: unsent,
                messages: count,
                elapsed: Duration::from_secs(1),
            }],
            body_bytes: None,
        }
    }

    #[test]
    fn what_two_processes_have_found_is_added_up_and_nothing_is_lost_on_the_way() {
        let mut sum = share(1_000, 90, 0);
        let text = serde_json::to_string(&share(9_000_000, 10, 7)).unwrap();
        sum.merge(serde_json::from_str(&text).unwrap());
        let outcome = sum.outcome(Vec::new());
        assert_eq!((outcome.requests, outcome.bytes), (100, 1_000));
        assert_eq!(outcome.elapsed, Duration::from_millis(90));
        assert!(outcome.interrupted);
        assert_eq!(outcome.rounds.len(), 2);
        let mut both = Latencies::new();
        both.record_many(1_000, 90);
        both.record_many(9_000_000, 10);
        let schedule = outcome.schedule.unwrap();
        assert_eq!(schedule.unsent, 7);
        assert_eq!(schedule.slip, both.summary());
        assert_eq!(schedule.latency, both.summary());
        assert_eq!(outcome.latency, both.summary());
        let reads = Reads {
            hits: 100,
            misses: 7,
        };
        assert_eq!(outcome.reads, Some(reads));
    }
}
