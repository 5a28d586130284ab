//! How many connections may come in a time: a token bucket, kept as the one instant at which it is
//! full again (the "generic cell rate algorithm": a bucket that needs no refill).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Connections in a time, and how many may come at once.
///
/// | text | means |
/// |---|---|
/// | `100` or `100/s` | a hundred a second, and as many at once |
/// | `30/m` | thirty a minute, one every two seconds; all thirty may come at once |
/// | `100/s:20` | a hundred a second, and not more than twenty at once |
///
/// ```
/// use std::time::Duration;
/// use tidewire::admission::Rate;
///
/// let rate: Rate = "600/m:10".parse()?;
/// assert_eq!(rate, Rate::new(600, Duration::from_secs(60)).burst(10));
/// assert!("0/s".parse::<Rate>().is_err());
/// # Ok::<(), tidewire::admission::RateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    per: Duration,
    burst: u32,
}

/// Text that is no [`Rate`].
///
/// ```
/// use tidewire::admission::{Rate, RateError};
///
/// let error: RateError = "100/fortnight".parse::<Rate>().unwrap_err();
/// assert!(error.to_string().contains("write it like 100 (a second)"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no rate: write it like 100 (a second), 30/m, 1000/h, or 100/s:20 for at most 20 at once"
)]
pub struct RateError(String);

impl Rate {
    /// `count` in each `per`, and as many at once. At least one, at most one a nanosecond and one in a day.
    #[must_use]
    pub fn new(count: u32, per: Duration) -> Rate {
        let count = count.max(1);
        Rate {
            count,
            per: per.clamp(
                Duration::from_nanos(count.into()),
                Duration::from_secs(86_400),
            ),
            burst: count,
        }
    }

    /// Sets how many may come at once, at least one.
    #[must_use]
    pub fn burst(mut self, at_once: u32) -> Rate {
        self.burst = at_once.max(1);
        self
    }

    /// Nanoseconds between two.
    fn interval_ns(self) -> u64 {
        let ns = self.per.as_nanos() / u128::from(self.count);
        u64::try_from(ns).unwrap_or(u64::MAX).max(1)
    }

    /// Nanoseconds after which an empty bucket is full.
    pub(super) fn window_ns(self) -> u64 {
        self.interval_ns().saturating_mul(self.burst.into())
    }

    /// If the bucket has a token at `now_ns`, takes the token and returns the time at which the bucket is
    /// full again. Both times are in nanoseconds; a bucket that was never used is full since time 0.
    pub(super) fn take(self, full_at_ns: u64, now_ns: u64) -> Option<u64> {
        let after = full_at_ns.max(now_ns).saturating_add(self.interval_ns());
        (after - now_ns <= self.window_ns()).then_some(after)
    }

    /// The bucket with one put back that was taken for nothing.
    pub(super) fn put_back(self, full_at_ns: u64) -> u64 {
        full_at_ns.saturating_sub(self.interval_ns())
    }
}

/// Written in the form in which it is parsed.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            60 => "m",
            3600 => "h",
            _ => "s",
        };
        write!(f, "{}/{unit}", self.count)?;
        if self.burst != self.count {
            write!(f, ":{}", self.burst)?;
        }
        Ok(())
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Rate, RateError> {
        let wrong = || RateError(text.to_owned());
        let number = |text: &str| match text.parse::<u32>() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(wrong()),
        };
        let (rate, burst) = match text.split_once(':') {
            Some((rate, burst)) => (rate, Some(number(burst)?)),
            None => (text, None),
        };
        let (count, unit) = rate.split_once('/').unwrap_or((rate, "s"));
        let per = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return Err(wrong()),
        };
        let rate = Rate::new(number(count)?, Duration::from_secs(per));
        Ok(burst.map_or(rate, |burst| rate.burst(burst)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written() {
        for text in ["100/s", "30/m", "1000/h", "100/s:20", "4000000000/s:1"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        assert_eq!("7".parse::<Rate>().unwrap().to_string(), "7/s");
        for wrong in [
            "",
            "0",
            "-1",
            "1/d",
            "1/s:0",
            "1/s:",
            "/s",
            "1.5",
            "5000000000",
        ] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
