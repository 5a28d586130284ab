//! How much a connection may send: a rate of messages and of bytes.
//!
//! A rate is kept as the time at which what was taken is paid for. A batch is taken if that time
//! has come, and may overdraw; so a message of any size gets through, and waits afterwards.

use std::time::Duration;

use tidewire::Instant;

/// How much one connection may send in a second. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Messages.
    pub messages: Option<u64>,
    /// Bytes of messages, with their headers.
    pub bytes: Option<u64>,
}

/// The most quota that a silent connection saves up.
const BURST: Duration = Duration::from_secs(1);

/// The rates of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter {
    messages: Option<Rate>,
    bytes: Option<Rate>,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    per_second: u64,
    paid_at: Instant,
}

impl Quota {
    /// A connection's meter; `None` if the producer has no quota.
    pub(super) fn meter(&self) -> Option<Box<Meter>> {
        let rate = |per_second: Option<u64>| {
            per_second.map(|n| Rate {
                per_second: n.max(1),
                paid_at: Instant::default(),
            })
        };
        let meter = Meter {
            messages: rate(self.messages),
            bytes: rate(self.bytes),
        };
        (meter.messages.is_some() || meter.bytes.is_some()).then(|| Box::new(meter))
    }
}

impl Meter {
    /// How long to wait before more may be taken; `None`: it may be now.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let owed = |rate: &Option<Rate>| {
            rate.map_or(0, |r| r.paid_at.as_nanos().saturating_sub(now.as_nanos()))
        };
        let ns = owed(&self.messages).max(owed(&self.bytes));
        (ns > 0).then(|| Duration::from_nanos(ns))
    }

    /// Notes the messages and bytes that were taken.
    pub(super) fn take(&mut self, messages: u64, bytes: u64, now: Instant) {
        for (rate, n) in [(&mut self.messages, messages), (&mut self.bytes, bytes)] {
            if let Some(rate) = rate {
                let burst = u64::try_from(BURST.as_nanos()).unwrap_or(u64::MAX);
                let from = now.as_nanos().saturating_sub(burst);
                let cost = u128::from(n) * 1_000_000_000 / u128::from(rate.per_second);
                let cost = u64::try_from(cost).unwrap_or(u64::MAX);
                let paid_at = rate.paid_at.as_nanos().max(from).saturating_add(cost);
                rate.paid_at = Instant::from_nanos(paid_at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_holds_over_time() {
        let at = |ms: u64| Instant::from_nanos(10_000_000_000 + ms * 1_000_000);
        let quota = Quota {
            messages: Some(100),
            bytes: None,
        };
        let mut meter = quota.meter().unwrap();
        let mut taken = 0;
        for ms in 0..10_000 {
            while meter.wait(at(ms)).is_none() {
                meter.take(5, 1_000_000, at(ms));
                taken += 5;
            }
        }
        // 10 s and the burst.
        assert_eq!(taken, 1100);
        let wait = meter.wait(at(9_999)).unwrap();
        assert!(wait <= Duration::from_millis(50), "{wait:?}");
    }

    #[test]
    fn bytes_count_too_and_nothing_is_no_meter() {
        let quota = Quota {
            messages: Some(u64::MAX),
            bytes: Some(1000),
        };
        let mut meter = quota.meter().unwrap();
        let now = Instant::from_nanos(0);
        meter.take(1, 3000, now);
        assert_eq!(meter.wait(now), Some(Duration::from_secs(3)));
        meter.take(1, u64::MAX, now);
        assert!(meter.wait(now).is_some());
        assert!(Quota::default().meter().is_none());
    }
}
