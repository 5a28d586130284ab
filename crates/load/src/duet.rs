//! Two servers under load at once, with equal noise.
//!
//! The idea: a disturbance on a shared machine hits both servers at the same moment. So time is cut into slices, both
//! servers are read at the end of each, and only the ratio within a slice is used. A run of some seconds, the median of
//! its slices, is one observation: slices of one run are not independent of each other. A duet compares two servers under
//! contention with each other; runs in turns ([`abba`](crate::abba)) compare them in isolation.
//!
//! Runs of A beside B and of A beside a second A alternate. A duet in which two equal servers
//! differ has measured something else, such as the order of their starts: its result is not to be
//! published.

use std::time::Duration;

use serde::Serialize;

use crate::abba::Verdict;
use crate::stats::{Bootstrap, Estimate, ROUNDS_MIN, Samples};

/// How long a slice is.
pub const SLICE: Duration = Duration::from_millis(100);
/// A run with fewer slices of both is no observation.
pub const SLICES_MIN: usize = 3;

/// The work of a server up to the end of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    slice: u64,
    requests: u64,
    cpu_ns: u64,
}

/// The readings of one server in one run.
#[derive(Debug, Clone, Default)]
pub struct Track {
    readings: Vec<Reading>,
}

/// The work of a server within one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Slice {
    /// Counted on a clock that both servers' tracks share.
    pub slice: u64,
    /// Messages answered.
    pub requests: u64,
    /// CPU time of the server, in ns.
    pub cpu_ns: u64,
}

impl Slice {
    fn cost(&self) -> Option<f64> {
        let both = self.requests > 0 && self.cpu_ns > 0;
        both.then(|| self.cpu_ns as f64 / self.requests as f64)
    }
}

impl Track {
    /// Notes the work up to the time `now_ns` of a clock that all tracks share; call this at the
    /// end of each slice, or a little later. Both counts may begin at any time.
    pub fn note(&mut self, now_ns: u64, requests: u64, cpu_ns: u64) {
        let slice = now_ns / SLICE.as_nanos() as u64;
        // A second reading within a slice would end it early.
        if self.readings.last().is_none_or(|last| last.slice < slice) {
            self.readings.push(Reading {
                slice,
                requests,
                cpu_ns,
            });
        }
    }

    /// The slices of which both ends were read.
    pub fn slices(&self) -> Vec<Slice> {
        let pairs = self.readings.windows(2);
        let whole = pairs.filter(|pair| pair[0].slice + 1 == pair[1].slice);
        whole
            .map(|pair| Slice {
                slice: pair[1].slice,
                requests: pair[1].requests.saturating_sub(pair[0].requests),
                cpu_ns: pair[1].cpu_ns.saturating_sub(pair[0].cpu_ns),
            })
            .collect()
    }
}

/// A run of A beside another server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Round {
    /// A, in the slices that both have.
    pub a: Vec<Slice>,
    /// The other server, slice by slice.
    pub other: Vec<Slice>,
    /// The median over slices of the other server's CPU per request, divided by A's.
    pub ratio: f64,
}

impl Round {
    /// Pairs two tracks; `None` if they have fewer than [`SLICES_MIN`] common slices in which both servers
    /// answered.
    pub fn of(a: &Track, other: &Track) -> Option<Round> {
        let others = other.slices();
        let both = a.slices().into_iter().filter_map(|a| {
            let other = others.iter().find(|other| other.slice == a.slice)?;
            let ratio = other.cost()? / a.cost()?;
            Some((a, *other, ratio.ln()))
        });
        let both: Vec<(Slice, Slice, f64)> = both.collect();
        if both.len() < SLICES_MIN {
            return None;
        }
        let median = Samples::new(both.iter().map(|(.., log)| *log))
            .ok()?
            .median();
        Some(Round {
            a: both.iter().map(|(a, ..)| *a).collect(),
            other: both.iter().map(|(_, other, _)| *other).collect(),
            ratio: median.exp(),
        })
    }

    /// Messages that both answered a second.
    pub fn rates(&self) -> (f64, f64) {
        let rate = |of: &[Slice]| {
            let sum: u64 = of.iter().map(|slice| slice.requests).sum();
            sum as f64 / (of.len().max(1) as f64 * SLICE.as_secs_f64())
        };
        (rate(&self.a), rate(&self.other))
    }
}

/// The results of the duets so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Duet {
    /// B's CPU per request by A's, over the runs; absent without one, and where the control does not agree: then it
    /// would say something of the machine.
    pub ratio: Option<Estimate>,
    /// The ratio for a second A.
    pub control_ratio: Option<Estimate>,
    /// The conclusion.
    pub verdict: Verdict,
    /// Whether two equal servers show no difference. If they do, nothing can be concluded about B.
    pub control_agrees: bool,
    /// Runs of A beside B.
    pub rounds: Vec<Round>,
    /// Runs of A beside a second A.
    pub control: Vec<Round>,
}

impl Duet {
    /// Compares.
    pub fn of(rounds: Vec<Round>, control: Vec<Round>, bootstrap: &Bootstrap) -> Duet {
        let ratio = |of: &[Round]| {
            let ratios: Vec<f64> = of.iter().map(|round| round.ratio).collect();
            bootstrap.ratios(&ratios).ok()
        };
        let (of_b, of_control) = (ratio(&rounds), ratio(&control));
        let enough = control.len() >= ROUNDS_MIN;
        let control_agrees = enough && of_control.is_some_and(|ratio| ratio.contains(1.0));
        let fewest = rounds.len().min(control.len());
        Duet {
            ratio: of_b.filter(|_| control_agrees),
            control_ratio: of_control,
            verdict: match control_agrees || fewest < ROUNDS_MIN {
                true => Verdict::of(fewest, of_b, of_control, true),
                false => Verdict::NoRatio,
            },
            control_agrees,
            rounds,
            control,
        }
    }

    /// The results in sentences.
    pub fn sentences(&self, a: &str, b: &str) -> Vec<String> {
        let question =
            "Both servers were under load at once: this is how they compare under contention."
                .to_owned();
        let nothing =
            || vec!["No run had enough slices in which both servers answered.".to_owned()];
        let (false, Some(control)) = (self.rounds.is_empty(), self.control_ratio) else {
            return nothing();
        };
        if self.rounds.len().min(self.control.len()) < ROUNDS_MIN {
            return vec![
                format!("Fewer than {ROUNDS_MIN} runs of a kind: means nothing."),
                question,
            ];
        }
        if !self.control_agrees {
            let said = format!(
                "Not to be published: two equal servers differ, {:.3}x with a 95 % interval of {:.3} to {:.3}.",
                control.value, control.low, control.high
            );
            return vec![said, question];
        }
        let Some(ratio) = self.ratio else {
            return nothing();
        };
        let reach = control.high.max(1.0 / control.low);
        let shown = match self.verdict {
            Verdict::Different | Verdict::DifferentUncontrolled => "shown",
            Verdict::WithinControl => "means nothing",
            Verdict::NoDifference => "no difference shown",
            Verdict::TooFewRounds | Verdict::NoRatio => "too few runs to mean anything",
        };
        let said = format!(
            "{b} needs {:.3}x the CPU of {a} per request; 95 % interval {:.3} to {:.3}; two equal servers differ by up \
             to {reach:.3}: {shown}.",
            ratio.value, ratio.low, ratio.high
        );
        vec![said, question]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    const MS: u64 = 1_000_000;

    /// A server at `cost` ns for each of 1,000 requests a slice, times what the machine does in that slice.
    fn track(cost: f64, noise: &[f64], own: &mut SplitMix64) -> Track {
        let mut track = Track::default();
        let (mut requests, mut cpu) = (77, 5_000.0);
        track.note(1_000 * MS, requests, cpu as u64);
        for (n, noise) in (1u64..).zip(noise) {
            requests += 1_000;
            cpu += 1_000.0 * cost * noise * (1.0 + 0.01 * (own.uniform() - 0.5));
            track.note((1_000 + n * 100) * MS + n % 7, requests, cpu as u64);
        }
        track
    }

    fn rounds(count: u64, factor: f64, own: u64) -> Vec<Round> {
        (0..count)
            .map(|round| {
                let mut machine = SplitMix64::new(round + 1);
                // From slice to slice the machine is up to three times as slow.
                let noise: Vec<f64> = (0..30).map(|_| 1.0 + 2.0 * machine.uniform()).collect();
                let mut random = SplitMix64::new(round * 31 + own);
                let a = track(5_000.0, &noise, &mut random);
                Round::of(&a, &track(5_000.0 * factor, &noise, &mut random)).unwrap()
            })
            .collect()
    }

    #[test]
    fn noise_that_both_share_hides_nothing() {
        let duet = Duet::of(
            rounds(12, 1.02, 1),
            rounds(12, 1.0, 2),
            &Bootstrap::default(),
        );
        let ratio = duet.ratio.unwrap();
        assert!((ratio.value - 1.02).abs() < 0.005, "{ratio:?}");
        assert_eq!(duet.verdict, Verdict::Different, "{:?}", duet.control_ratio);
        assert!(duet.control_agrees && duet.sentences("a", "b")[0].contains("b needs 1.02"));
    }

    #[test]
    fn a_control_that_differs_keeps_all_of_it_back() {
        let duet = Duet::of(
            rounds(12, 1.2, 1),
            rounds(12, 1.1, 2),
            &Bootstrap::default(),
        );
        assert!(!duet.control_agrees);
        assert_eq!((duet.ratio, duet.verdict), (None, Verdict::NoRatio));
        let shown = serde_json::to_value(&duet).unwrap();
        assert!(shown["ratio"].is_null() && shown["control_ratio"].is_object());
        let said = duet.sentences("a", "b").concat();
        assert!(
            said.starts_with("Not to be published") && !said.contains("1.2"),
            "{said}"
        );
        let few = Duet::of(rounds(3, 1.2, 1), rounds(3, 1.0, 2), &Bootstrap::default());
        assert_eq!(few.verdict, Verdict::TooFewRounds);
        assert!(!few.control_agrees);
        let none = Duet::of(vec![], vec![], &Bootstrap::default());
        assert_eq!((none.ratio, none.verdict), (None, Verdict::NoRatio));
    }

    #[test]
    fn only_slices_of_which_both_ends_were_read_count() {
        let mut track = Track::default();
        for (ms, requests) in [
            (100, 1),
            (150, 2),
            (205, 10),
            (400, 30),
            (500, 33),
            (600, 33),
        ] {
            track.note(ms * MS, requests, requests * 10);
        }
        let found: Vec<(u64, u64)> = track
            .slices()
            .iter()
            .map(|at| (at.slice, at.requests))
            .collect();
        // 150 ms lies within a slice that has been read, and 300 ms was missed.
        assert_eq!(found, [(2, 9), (5, 3), (6, 0)]);
        assert_eq!(
            Round::of(&track, &track),
            None,
            "two slices with an answer are too few"
        );
    }
}
