//! How loops end, for threads that wait for that: a loop that is gone must not go unnoticed.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::contained::dispose;
use crate::reach::stop::StopClock;
use crate::reach::sync::{Condvar, Mutex, lock};

/// A loop that ended though it was not stopped. The connections that it carried are cut.
///
/// ```
/// use tidewire::LoopFailed;
///
/// /// What a server says before it exits; its supervisor starts another.
/// fn last_words(failed: &LoopFailed) -> String {
///     format!("{} failed: {}", failed.name(), failed.reason())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the loop {name} {what}: {reason}")]
pub struct LoopFailed {
    name: String,
    what: &'static str,
    reason: String,
}

impl LoopFailed {
    /// The name of the loop, which is its thread's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The error or the panic that ended the loop.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// Waits for the end of loops, apart from their [`Running`](crate::Running), on any thread. Cheap to
/// clone.
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Builder, EngineChoice};
///
/// let running = Builder::new().engine(EngineChoice::Epoll).start()?;
/// let waiter = running.waiter();
/// assert!(waiter.wait_for(Duration::ZERO).is_none(), "it runs");
/// let watching = std::thread::spawn(move || waiter.wait());
/// running.stop(Duration::from_secs(1));
/// assert!(watching.join().unwrap().is_ok(), "it was stopped, and has not failed");
/// # Ok::<(), tidewire::StartError>(())
/// ```
#[derive(Clone, Default)]
pub struct Waiter(Arc<Board>);

#[derive(Default)]
struct Board {
    standing: Mutex<Standing>,
    changed: Condvar,
    /// Clock of these loops. `None` in some tests.
    clock: Option<Arc<StopClock>>,
}

#[derive(Default)]
struct Standing {
    running: usize,
    /// The first failed loop.
    failed: Option<LoopFailed>,
}

impl Standing {
    fn ended(&self) -> Option<Result<(), LoopFailed>> {
        match &self.failed {
            Some(failed) => Some(Err(failed.clone())),
            None => (self.running == 0).then_some(Ok(())),
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiter({} loops run)", lock(&self.0.standing).running)
    }
}

impl Waiter {
    /// A waiter for the loops of this clock.
    pub(crate) fn of(clock: Arc<StopClock>) -> Waiter {
        Waiter(Arc::new(Board {
            clock: Some(clock),
            ..Board::default()
        }))
    }

    /// Whether this is a callback of one of the loops.
    fn is_inside(&self) -> bool {
        self.0.clock.as_ref().is_some_and(StopClock::is_here)
    }

    /// Blocks until all loops have ended because they were stopped, or one has failed. If one loop
    /// has failed, the other loops go on, without the connections and listeners of the failed loop;
    /// stop them.
    ///
    /// # Errors
    /// The first loop that failed, and why. In a callback of one of the loops, that this would wait for ever.
    pub fn wait(&self) -> Result<(), LoopFailed> {
        let mut standing = lock(&self.0.standing);
        loop {
            if let Some(ended) = standing.ended() {
                return ended;
            }
            if self.is_inside() {
                return Err(LoopFailed {
                    name: std::thread::current().name().unwrap_or("?").to_owned(),
                    what: "cannot be waited for",
                    reason: "this is one of its own callbacks".to_owned(),
                });
            }
            let changed = self.0.changed.wait(standing);
            standing = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Like [`wait`](Waiter::wait), for at most `most`; `None` if the time has passed first. With a
    /// time of zero, and in a callback of one of the loops, the call returns at once: that loop
    /// cannot end before the callback returns.
    pub fn wait_for(&self, most: Duration) -> Option<Result<(), LoopFailed>> {
        let began = Instant::now();
        let mut standing = lock(&self.0.standing);
        loop {
            let left = most.saturating_sub(began.elapsed());
            if let ended @ Some(_) = standing.ended() {
                return ended;
            }
            if left.is_zero() || self.is_inside() {
                return None;
            }
            let changed = self.0.changed.wait_timeout(standing, left);
            standing = changed.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until no loop runs any more, whether loops failed or not, for at most `most`; returns whether all
    /// have ended.
    pub(crate) fn all_ended(&self, most: Duration) -> bool {
        let began = Instant::now();
        let mut standing = lock(&self.0.standing);
        loop {
            let left = most.saturating_sub(began.elapsed());
            if standing.running == 0 || left.is_zero() || self.is_inside() {
                return standing.running == 0;
            }
            let changed = self.0.changed.wait_timeout(standing, left);
            standing = changed.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A loop is about to be started.
    pub(crate) fn begin(&self) {
        lock(&self.0.standing).running += 1;
    }

    /// Runs a loop that has [begun](Waiter::begin) and says how it ended.
    pub(crate) fn run(&self, name: &str, run: impl FnOnce() -> io::Result<()>) {
        let reason = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some(e.to_string()),
            Err(panic) => {
                let reason = format!("it panicked: {}", said(&*panic));
                dispose(panic);
                Some(reason)
            }
        };
        let mut standing = lock(&self.0.standing);
        standing.running -= 1;
        if let Some(reason) = reason {
            tracing::error!(name, reason, "a loop has ended; its connections are cut");
            let name = name.to_owned();
            let what = "has ended";
            standing
                .failed
                .get_or_insert(LoopFailed { name, what, reason });
        }
        self.0.changed.notify_all();
    }
}

/// The message of a panic.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or(panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message")
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_told_and_a_stop_is_not_one() {
        let waiter = Waiter::default();
        for _ in 0..3 {
            waiter.begin();
        }
        waiter.run("a", || Ok(()));
        assert_eq!(waiter.wait_for(Duration::ZERO), None);
        let theirs = waiter.clone();
        let waits = std::thread::spawn(move || theirs.wait());
        waiter.run("b", || Err(io::Error::other("out of order")));
        let failed = waits.join().unwrap().unwrap_err();
        assert_eq!((failed.name(), failed.reason()), ("b", "out of order"));
        waiter.run("c", || std::panic::resume_unwind(Box::new("later")));
        assert_eq!(waiter.wait(), Err(failed));
    }

    #[test]
    fn an_orderly_end_of_all_is_waited_for() {
        let waiter = Waiter::default();
        waiter.begin();
        let theirs = waiter.clone();
        let waits = std::thread::spawn(move || theirs.wait());
        waiter.run("a", || Ok(()));
        assert_eq!(waits.join().unwrap(), Ok(()));
    }
}
