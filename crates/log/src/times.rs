//! How long groups took to be committed.
//!
//! The one idea: the thread that drives the writer looks at the clock once more for each commit;
//! appending threads never do.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the parts in which [`CommitTimes`] are counted.
pub const COMMIT_BOUNDS: [Duration; 12] = [
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_secs(1),
];
const PARTS: usize = COMMIT_BOUNDS.len() + 1;

/// How long commits took: see [`EmbeddedLog::commit_times`](crate::EmbeddedLog::commit_times).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitTimes {
    /// How many were within each of [`COMMIT_BOUNDS`] and not within the one before; the last is beyond all.
    pub parts: [u64; PARTS],
    /// The sum of all durations.
    pub sum: Duration,
}

/// The times, which the writer's thread alone counts.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    parts: [AtomicU64; PARTS],
    sum_ns: AtomicU64,
}

impl Counted {
    pub(crate) fn add(&self, took: Duration) {
        let part = COMMIT_BOUNDS.iter().position(|bound| took <= *bound);
        self.parts[part.unwrap_or(PARTS - 1)].fetch_add(1, Relaxed);
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    pub(crate) fn read(&self) -> CommitTimes {
        CommitTimes {
            parts: std::array::from_fn(|part| self.parts[part].load(Relaxed)),
            sum: Duration::from_nanos(self.sum_ns.load(Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{append, small};
    use crate::{EmbeddedLog, Log, Policy, ProducerId};

    #[test]
    fn a_time_is_counted_in_the_first_part_that_holds_it() {
        let counted = Counted::default();
        for us in [0, 50, 51, 1_000_000, 1_000_001, 90_000_000] {
            counted.add(Duration::from_micros(us));
        }
        let read = counted.read();
        assert_eq!(read.parts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(read.sum, Duration::from_micros(92_000_102));
    }

    #[test]
    fn each_commit_is_counted_once() {
        for policy in [
            Policy::Sync,
            Policy::Os,
            Policy::Interval(Duration::from_millis(1)),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let settings = crate::Settings { policy, ..small() };
            let (log, _) = EmbeddedLog::start(directory.path(), settings).expect("the log");
            let stream = log.stream("s").expect("room");
            let mut appended = 1;
            for id in 1..=200 {
                if append(&log, stream, ProducerId::ANONYMOUS, id..=id).is_err() {
                    continue;
                }
                appended += 1;
                // One after the other, so that each is a commit of its own.
                let last = log.usage().appended;
                while log.progress().committed < last {
                    std::thread::yield_now();
                }
            }
            log.close();
            let counted: u64 = log.commit_times().parts.iter().sum();
            let groups = log.progress().groups;
            assert!(appended > 100, "{policy:?}: {appended}");
            assert!(counted > 100, "{policy:?}: {counted}");
            assert!(counted <= groups, "{policy:?}: {counted} of {groups}");
        }
    }
}
