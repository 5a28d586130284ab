//! The highest rate at which a server still holds an objective, and where its latency begins to rise.
//!
//! The idea: a single bisection finds a rate, but one disturbed run in the middle makes it a wrong
//! rate. So the search is made several times, each from a bracket of its own; the result is their
//! median with an interval. Then the lower end of the interval is run again, several times: a rate
//! counts as held only if all of these runs hold it.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::stats::{Bootstrap, Estimate, ROUNDS_MIN, Samples};

/// A rate counts as kept if this share of it was answered.
const KEPT: f64 = 0.98;
/// A bracket is narrow enough when its ends differ by this factor.
const NARROW: f64 = 1.02;
/// By how much a first bracket grows.
const GROWTH: f64 = 2.0;
/// How far around the known rate a later search begins.
const AROUND: f64 = 1.15;
/// By how much a rate is lowered that was not confirmed.
const LOWERED: f64 = 0.97;
/// How many times the lower bound is lowered.
const LOWERED_MAX: u32 = 10;

/// An objective: a percentile of the latency from when messages were due, below a bound.
///
/// ```
/// use tidewire_load::search::Objective;
/// let slo: Objective = "p99.9<1.5ms".parse()?;
/// assert_eq!((slo.quantile, slo.below_ns), (0.999, 1_500_000));
/// assert_eq!(slo.to_string(), "p99.9<1.5ms");
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Objective {
    /// The quantile, more than 0 and less than 1.
    pub quantile: f64,
    /// The latency that the rate must stay below, in ns.
    pub below_ns: u64,
}

impl FromStr for Objective {
    type Err = String;

    /// `pNN<TIME`, such as `p99<1ms`; times have a unit: ns, us, ms or s.
    fn from_str(text: &str) -> Result<Objective, String> {
        let wrong = || format!("{text:?} is no objective such as p99<1ms");
        let compact: String = text.split_whitespace().collect();
        let (percent, time) = compact
            .strip_prefix('p')
            .and_then(|rest| rest.split_once('<'))
            .ok_or_else(wrong)?;
        let percent: f64 = percent.parse().map_err(|_| wrong())?;
        if !(percent > 0.0 && percent < 100.0) {
            return Err(format!("{text:?}: a percentile is between 0 and 100"));
        }
        let digits = time.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &time[digits.len()..] {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(format!("{text:?}: a time has a unit: us, ms or s")),
        };
        let ns = digits.parse::<f64>().map_err(|_| wrong())? * unit;
        if !(1.0..=1e12).contains(&ns) {
            return Err(format!("{text:?}: a time is from 1 ns to 1000 s"));
        }
        Ok(Objective {
            // As decimals are read: 99.9 is 0.999.
            quantile: (percent * 1e7).round() / 1e9,
            below_ns: ns.round() as u64,
        })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (self.quantile * 1e9).round() / 1e7;
        let ns = self.below_ns as f64;
        let (time, unit) = match ns {
            ns if ns >= 1e9 => (ns / 1e9, "s"),
            ns if ns >= 1e6 => (ns / 1e6, "ms"),
            ns if ns >= 1e3 => (ns / 1e3, "us"),
            ns => (ns, "ns"),
        };
        write!(f, "p{percent}<{time}{unit}")
    }
}

/// The result of a run at one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// Messages answered a second.
    pub achieved: f64,
    /// The latency at the objective's quantile, from when messages were due; absent if none was answered.
    pub latency_ns: Option<u64>,
}

impl Probe {
    /// Whether the run holds an objective at an offered rate.
    pub fn holds(&self, objective: &Objective, offered: f64) -> bool {
        let in_time = self.latency_ns.is_some_and(|ns| ns < objective.below_ns);
        in_time && self.achieved >= offered * KEPT
    }
}

/// How a search is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// The objective of the search.
    pub objective: Objective,
    /// The first rate that is tried.
    pub from: f64,
    /// No rate below this is tried.
    pub least: f64,
    /// No rate beyond this is tried.
    pub most: f64,
    /// Searches; an interval needs [`ROUNDS_MIN`].
    pub searches: usize,
    /// Runs of the rate that is reported, all of which have to hold.
    pub confirmations: usize,
}

impl Search {
    /// From 1,000 a second, between 1 and 10^8; seven searches and three confirmations.
    pub fn new(objective: Objective) -> Search {
        Search {
            objective,
            from: 1e3,
            least: 1.0,
            most: 1e8,
            searches: ROUNDS_MIN + 1,
            confirmations: 3,
        }
    }

    /// Makes the search. `probe` makes a run at a rate.
    ///
    /// # Errors
    /// The first that `probe` has; `None` is an answer, that not even the least rate was held.
    pub fn run<E>(
        &self,
        mut probe: impl FnMut(f64) -> Result<Probe, E>,
    ) -> Result<Option<Held>, E> {
        self.run_by(|rate| Ok(probe(rate)?.holds(&self.objective, rate)))
    }

    /// Like `run`, for other conditions, for example several objectives: `holds` makes a run at a
    /// rate, and returns whether it held.
    ///
    /// # Errors
    /// As [`Search::run`].
    pub fn run_by<E>(
        &self,
        mut holds: impl FnMut(f64) -> Result<bool, E>,
    ) -> Result<Option<Held>, E> {
        let mut found: Vec<f64> = Vec::new();
        for _ in 0..self.searches.max(1) {
            // A search begins near the result of the previous ones, but takes no result from them.
            let begin = found.last().map_or(self.from, |rate| rate / AROUND);
            let step = if found.is_empty() {
                GROWTH
            } else {
                AROUND * AROUND
            };
            match self.once(begin, step, &mut holds)? {
                Some(rate) => found.push(rate),
                None if found.is_empty() => return Ok(None),
                None => found.push(self.least),
            }
        }
        // Rates are finite: brackets have ends.
        let Ok(samples) = Samples::new(found.iter().copied()) else {
            return Ok(None);
        };
        let between = Bootstrap::default().median(&samples);
        let mut rate = between.low;
        for _ in 0..LOWERED_MAX {
            let mut all = true;
            for _ in 0..self.confirmations {
                all = all && holds(rate)?;
            }
            if all {
                return Ok(Some(Held {
                    rate,
                    between,
                    found,
                    at_most: rate >= self.most / NARROW,
                }));
            }
            rate *= LOWERED;
        }
        Ok(None)
    }

    /// One search: finds a bracket, and then halves it until it is narrow.
    fn once<E>(
        &self,
        begin: f64,
        step: f64,
        holds: &mut impl FnMut(f64) -> Result<bool, E>,
    ) -> Result<Option<f64>, E> {
        let mut low = begin.clamp(self.least, self.most);
        let mut high = None;
        while !holds(low)? {
            if low <= self.least {
                return Ok(None);
            }
            high = Some(low);
            low = (low / step).max(self.least);
        }
        let mut high = match high {
            Some(high) => high,
            None => loop {
                if low >= self.most {
                    return Ok(Some(low));
                }
                let next = (low * step).min(self.most);
                if !holds(next)? {
                    break next;
                }
                low = next;
            },
        };
        while high / low > NARROW {
            let middle = (low * high).sqrt();
            match holds(middle)? {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(Some(low))
    }
}

/// The highest rate that was held.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Held {
    /// Messages a second at which every confirmation held.
    pub rate: f64,
    /// The result of the searches: their median, with its interval.
    pub between: Estimate,
    /// The result of each search.
    pub found: Vec<f64>,
    /// The rate is the highest that was to be tried; the server may hold more.
    pub at_most: bool,
}

/// The place in a curve of rates and latencies where rate by latency (Kleinrock's power) is largest: below it latency is
/// given away for nothing, above it a little more rate costs much. Points without a latency are left out; fewer than
/// three have none, nor has a curve that still rises at its end.
///
/// ```
/// use tidewire_load::search::knee;
/// // A single queue whose replies take 1 / (10 - rate) on average: at half its capacity.
/// let curve = (1..100).map(|n| n as f64 / 10.0).map(|rate| (rate, 1.0 / (10.0 - rate)));
/// assert_eq!(knee(&curve.collect::<Vec<_>>()), Some(5.0));
/// ```
pub fn knee(curve: &[(f64, f64)]) -> Option<f64> {
    let good = |&(rate, latency): &(f64, f64)| rate > 0.0 && latency > 0.0 && latency.is_finite();
    let mut points: Vec<(f64, f64)> = curve.iter().copied().filter(good).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let power = |(rate, latency): (f64, f64)| rate / latency;
    let best = (0..points.len()).max_by(|a, b| power(points[*a]).total_cmp(&power(points[*b])))?;
    (points.len() >= 3 && best + 1 < points.len()).then(|| points[best].0)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::random::SplitMix64;

    fn objective() -> Objective {
        "p99<1ms".parse().unwrap()
    }

    /// A server that is fast up to a rate.
    fn up_to(capacity: f64) -> impl Fn(f64) -> Result<Probe, Infallible> {
        move |rate| {
            Ok(Probe {
                achieved: rate.min(capacity),
                latency_ns: Some(if rate <= capacity { 500_000 } else { 5_000_000 }),
            })
        }
    }

    #[test]
    fn objectives_are_read_and_nonsense_is_refused() {
        for (text, quantile, ns) in [
            ("p99<1ms", 0.99, 1_000_000),
            (" p50 < 2 s ", 0.5, 2_000_000_000),
            ("p99.99<250us", 0.9999, 250_000),
        ] {
            let read: Objective = text.parse().unwrap();
            assert_eq!((read.quantile, read.below_ns), (quantile, ns), "{text}");
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for text in [
            "",
            "p99",
            "99<1ms",
            "p99<1",
            "p0<1ms",
            "p100<1ms",
            "p99<-1ms",
            "pnan<1ms",
            "p99<nanms",
            "p99<0ms",
            "p99>1ms",
            "p99<1e99s",
            "p99<ms",
        ] {
            assert!(text.parse::<Objective>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_capacity_is_found_wherever_it_is() {
        for capacity in [1.5, 700.0, 1_000.0, 54_321.0, 9e7] {
            let held = Search::new(objective()).run(up_to(capacity));
            let held = held.unwrap().unwrap();
            let off = held.rate / capacity;
            assert!(
                (1.0 / NARROW / NARROW..=1.0).contains(&off),
                "{capacity}: {held:?}"
            );
            assert!(!held.at_most);
        }
    }

    #[test]
    fn what_never_holds_and_what_always_does_have_names() {
        let search = Search::new(objective());
        assert_eq!(search.run(up_to(0.5)), Ok(None));
        let held = search.run(up_to(f64::MAX)).unwrap().unwrap();
        assert!(held.at_most && held.rate == search.most, "{held:?}");
        let silent = |_| {
            Ok::<_, Infallible>(Probe {
                achieved: 0.0,
                latency_ns: None,
            })
        };
        assert_eq!(search.run(silent), Ok(None));
        assert_eq!(search.run(|_| Err("gone")), Err("gone"));
    }

    #[test]
    fn fast_replies_to_a_part_of_what_was_offered_hold_nothing() {
        let drops = |rate: f64| {
            let latency_ns = Some(1);
            Ok::<_, Infallible>(Probe {
                achieved: rate.min(2_000.0),
                latency_ns,
            })
        };
        let held = Search::new(objective()).run(drops).unwrap().unwrap();
        assert!((1_950.0..2_050.0).contains(&held.rate), "{held:?}");
    }

    #[test]
    fn disturbed_runs_widen_the_interval_and_do_not_decide() {
        let mut random = SplitMix64::new(7);
        // One run in ten misses for no reason of the server's.
        let noisy = move |rate: f64| {
            let missed = random.uniform() < 0.1 || rate > 20_000.0;
            let latency_ns = Some(if missed { 2_000_000 } else { 500_000 });
            Ok::<_, Infallible>(Probe {
                achieved: rate,
                latency_ns,
            })
        };
        let held = Search::new(objective()).run(noisy).unwrap().unwrap();
        assert!(held.between.low < held.between.high, "{held:?}");
        assert!(
            (0.9..=1.0).contains(&(held.between.high / 20_000.0)),
            "{held:?}"
        );
        assert!((0.7..=1.0).contains(&(held.rate / 20_000.0)), "{held:?}");
    }

    #[test]
    fn curves_without_a_knee_have_none() {
        assert_eq!(knee(&[]), None);
        assert_eq!(
            knee(&[(1.0, 1.0), (2.0, 1.0), (3.0, 1.0)]),
            None,
            "it still rises"
        );
        assert_eq!(knee(&[(1.0, f64::NAN), (2.0, 0.0), (3.0, 1.0)]), None);
        assert_eq!(knee(&[(3.0, 9.0), (1.0, 1.0), (2.0, 1.0)]), Some(2.0));
    }
}
