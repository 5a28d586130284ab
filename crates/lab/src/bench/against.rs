//! What speaks against a comparison as a whole: servers of which each reply is good, and that do not do the same work.

use std::collections::BTreeMap;

use tidewire_load::abba::Side;
use tidewire_load::stats::ROUNDS_MIN;
use tidewire_load::trust::{Kind, Trust};
use tidewire_load::workload::{Outcome, Reads, Work};

use super::sameness::{MISSES_APART, lengths_differ};

/// What speaks against a whole comparison, gathered from its runs.
#[derive(Default)]
pub(super) struct Against {
    /// Reads and hits of each side.
    reads: BTreeMap<Side, (u64, u64)>,
    /// Bytes of a body to each request together, in the last run of each side.
    bodies: BTreeMap<Side, u64>,
    /// Runs of each side of which another process served, of which nothing was written that was acknowledged as durable,
    /// and all.
    runs: BTreeMap<Side, Runs>,
}

/// Runs of a side, by what speaks against them.
#[derive(Clone, Copy, Default)]
struct Runs {
    elsewhere: u32,
    not_written: u32,
    all: u32,
}

impl Against {
    pub(super) fn take(&mut self, side: Side, outcome: &Outcome, trust: &Trust) {
        self.take_work(side, &outcome.work());
        let has = |kind| u32::from(trust.reasons.iter().any(|reason| reason.kind == kind));
        let runs = self.runs.entry(side).or_default();
        runs.elsewhere += has(Kind::ServerElsewhere);
        runs.not_written += has(Kind::NotWritten);
        runs.all += 1;
    }

    /// Takes what replies say of the work of a side.
    pub(super) fn take_work(&mut self, side: Side, work: &Work) {
        if work.reads != Reads::default() {
            let (hits, misses) = self.reads.entry(side).or_default();
            (*hits, *misses) = (*hits + work.reads.hits, *misses + work.reads.misses);
        }
        if let Some(bytes) = work.body_bytes {
            self.bodies.insert(side, bytes);
        }
    }

    /// Why its figures should not be believed, in sentences.
    pub(super) fn doubts(&self, rounds: usize) -> Vec<String> {
        let mut doubts = Vec::new();
        if rounds < ROUNDS_MIN {
            doubts.push(format!(
                "not trustworthy: {rounds} rounds, and fewer than {ROUNDS_MIN} mean nothing"
            ));
        }
        for (side, Runs { elsewhere, all, .. }) in &self.runs {
            if elsewhere * 2 > *all {
                doubts.push(format!(
                    "not trustworthy: in {elsewhere} of {all} runs of {side}, another process served than the one that is \
                     measured"
                ));
            }
        }
        doubts.extend(self.other_work());
        doubts
    }

    /// What shows that the two do not do the same work, in sentences.
    pub(super) fn other_work(&self) -> Vec<String> {
        let mut found = Vec::new();
        let keeps = |side| {
            let runs = self.runs.get(&side)?;
            Some(runs.not_written * 2 <= runs.all)
        };
        if let Some((a, b)) = both(keeps).filter(|(a, b)| a != b) {
            let (side, other) = if a && !b {
                (Side::B, Side::A)
            } else {
                (Side::A, Side::B)
            };
            found.push(format!(
                "{side} wrote to no disk what it acknowledged as durable, and {other} did"
            ));
        }
        let body = |side| self.bodies.get(&side).copied();
        if let Some((a, b)) = both(body).filter(|(a, b)| lengths_differ(*a, *b)) {
            found.push(format!(
                "the replies of A have {a} bytes of body, and those of B {b}"
            ));
        }
        let share = |side| {
            let (hits, misses) = self.reads.get(&side)?;
            Some(*misses as f64 / (hits + misses).max(1) as f64)
        };
        if let Some((a, b)) = both(share).filter(|(a, b)| (a - b).abs() > MISSES_APART) {
            let [a, b] = [a, b].map(|share| share * 100.0);
            found.push(format!(
                "{a:.1} % of the reads of A found nothing, and {b:.1} % of those of B"
            ));
        }
        let said = |what| format!("not trustworthy: {what}: the two do not do the same work");
        found.into_iter().map(said).collect()
    }
}

/// What is known of both sides.
fn both<T>(of: impl Fn(Side) -> Option<T>) -> Option<(T, T)> {
    Some((of(Side::A)?, of(Side::B)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(not_written: u32) -> Runs {
        Runs {
            elsewhere: 0,
            not_written,
            all: 6,
        }
    }

    #[test]
    fn servers_that_do_other_work_are_told_apart_and_equal_ones_are_not() {
        let mut against = Against {
            runs: [(Side::A, runs(0)), (Side::B, runs(1))].into(),
            bodies: [(Side::A, 1_000), (Side::B, 1_005)].into(),
            reads: [(Side::A, (900, 100)), (Side::B, (1_795, 205))].into(),
        };
        assert_eq!(against.doubts(6), [""; 0]);
        against.runs.insert(Side::B, runs(6));
        against.bodies.insert(Side::B, 13);
        against.reads.insert(Side::B, (0, 100));
        let said = against.doubts(6);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(
            said[0].contains("B wrote to no disk") && said[0].contains("and A did"),
            "{said:?}"
        );
        assert!(
            said[1].contains("1000 bytes of body, and those of B 13"),
            "{said:?}"
        );
        assert!(
            said[2].contains("10.0 % of the reads of A found nothing"),
            "{said:?}"
        );
        // Two that both write nothing do the same work; each run has its own reservation.
        against.runs.insert(Side::A, runs(6));
        assert_eq!(against.other_work().len(), 2);
    }
}
