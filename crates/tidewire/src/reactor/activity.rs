//! The present work of a loop. The loop stores it, at the cost of one store for each callback, so
//! that a watching thread sees that the loop is stuck, and where. The thread also asks now and then
//! how late the loop answers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::reactor::counter::Counter;
use crate::vocabulary::time::Instant;

/// Upper bounds of the parts in which [`Lag`] is counted.
pub const LAG_BOUNDS: [Duration; 12] = [
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_micros(1_000),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(1_000),
];
const PARTS: usize = LAG_BOUNDS.len() + 1;

/// How late a loop has answered: the times from waking it to its looking into its mail.
///
/// ```
/// let lag = tidewire::Lag::default();
/// assert_eq!(lag.parts.len(), tidewire::LAG_BOUNDS.len() + 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lag {
    /// Number of delays within each of [`LAG_BOUNDS`] and beyond the bound before; the last counts delays
    /// beyond all bounds.
    pub parts: [u64; PARTS],
    /// The sum of all delays.
    pub sum: Duration,
}

impl Lag {
    pub(crate) fn merge(&mut self, of: &Lag) {
        for (sum, n) in self.parts.iter_mut().zip(&of.parts) {
            *sum += n;
        }
        self.sum += of.sum;
    }
}

macro_rules! callbacks {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// A callback that a loop may be in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Callback { $($variant),* }

        const NAMES: &[&str] = &[$($name),*];
    };
}

callbacks! {
    // No service: the loop itself, or the kernel.
    None "none",
    Opened "opened",
    Received "received",
    Writable "writable",
    PeerFinished "peer_finished",
    HungUp "hung_up",
    Expired "expired",
    TimerExpired "timer_expired",
    Notified "notified",
    Idle "idle",
    Draining "draining",
    Overdue "overdue",
    Accept "accept",
    Closed "closed",
    Posted "posted",
    Undelivered "undelivered",
    LookAhead "look_ahead",
    DialFailed "dial_failed",
    Woken "woken",
    ServiceExpired "service_expired",
    LoopEnded "loop_ended",
}

/// Written by the loop, read by others.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// The last call of this turn: the service's number in the upper bits, the callback in the lower eight.
    calls: AtomicU32,
    /// When the loop was asked how late it is; nanoseconds, 0 if no watcher asks.
    asked_ns: AtomicU64,
    lag: [Counter; PARTS],
    lag_ns: Counter,
    /// The system's number of the loop's thread; 0 if it is not known.
    thread: AtomicU32,
}

impl Activity {
    /// A callback of a service is about to be called.
    #[inline]
    pub(crate) fn enter(&self, service: u16, callback: Callback) {
        self.calls
            .store(u32::from(service) << 8 | callback as u32, Relaxed);
    }

    /// A turn begins, in which nothing was called yet.
    #[inline]
    pub(crate) fn begin(&self) {
        self.calls.store(Callback::None as u32, Relaxed);
    }

    /// The last call of this turn: a service's number and the callback's name.
    pub(crate) fn last(&self) -> (Option<usize>, &'static str) {
        let calls = self.calls.load(Relaxed);
        let name = NAMES
            .get((calls & 0xff) as usize)
            .copied()
            .unwrap_or("none");
        let service = (calls & 0xff != Callback::None as u32).then_some((calls >> 8) as usize);
        (service, name)
    }

    /// Asks how late the loop is, unless it has not answered yet; whether it is to be woken.
    pub(crate) fn ask(&self, now: Instant) -> bool {
        let ns = now.as_nanos().max(1);
        self.asked_ns
            .compare_exchange(0, ns, Relaxed, Relaxed)
            .is_ok()
    }

    /// The loop looks into its mail.
    #[inline]
    pub(crate) fn answer(&self, now: impl FnOnce() -> Instant) {
        let asked_ns = self.asked_ns.load(Relaxed);
        if asked_ns != 0 {
            let late_ns = now().as_nanos().saturating_sub(asked_ns);
            let within = |bound: &Duration| u128::from(late_ns) <= bound.as_nanos();
            let part = LAG_BOUNDS.iter().position(within).unwrap_or(PARTS - 1);
            self.lag[part].add(1);
            self.lag_ns.add(late_ns);
            self.asked_ns.store(0, Relaxed);
        }
    }

    pub(crate) fn lag(&self) -> Lag {
        Lag {
            parts: std::array::from_fn(|part| self.lag[part].value()),
            sum: Duration::from_nanos(self.lag_ns.value()),
        }
    }

    /// The calling thread is the loop's.
    pub(crate) fn runs_here(&self) {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(id.unsigned_abs(), Relaxed);
    }

    pub(crate) fn thread(&self) -> Option<u32> {
        Some(self.thread.load(Relaxed)).filter(|id| *id != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_called_last_is_told() {
        let activity = Activity::default();
        assert_eq!(activity.last(), (None, "none"));
        activity.enter(0, Callback::Received);
        assert_eq!(activity.last(), (Some(0), "received"));
        activity.enter(u16::MAX, Callback::LoopEnded);
        assert_eq!(activity.last(), (Some(65535), "loop_ended"));
        activity.begin();
        assert_eq!(activity.last(), (None, "none"));
    }

    #[test]
    fn lateness_is_counted_once_for_each_question() {
        let activity = Activity::default();
        let at = |us: u64| Instant::from_nanos(us * 1000);
        activity.answer(|| unreachable!("nobody has asked"));
        for (late_us, part) in [(0, 0), (50, 0), (51, 1), (2_000_000, PARTS - 1)] {
            let before = activity.lag();
            assert!(activity.ask(at(10)));
            assert!(!activity.ask(at(11)), "the first is not answered");
            activity.answer(|| at(10 + late_us));
            let lag = activity.lag();
            assert_eq!(lag.parts[part], before.parts[part] + 1);
            assert_eq!(lag.sum - before.sum, Duration::from_micros(late_us));
        }
    }
}
