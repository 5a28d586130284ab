//! The loop's clock: real time on the engines, virtual time in the simulator.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tidewire::Instant;

use crate::shared::Shared;

/// The loop's clock, and timers by it. In the simulator it is the virtual clock.
#[derive(Clone)]
pub struct Clock {
    shared: Shared,
    /// What the loop's time 0 is on the standard library's clock, for hyper.
    #[cfg(feature = "hyper")]
    pub(crate) zero: std::time::Instant,
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.now())
    }
}

impl Clock {
    pub(crate) fn new(shared: Shared) -> Clock {
        Clock {
            #[cfg(feature = "hyper")]
            zero: crate::hyper_rt::zero(),
            shared,
        }
    }

    /// The time of this turn of the loop.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.lock().now
    }

    /// Resolves `after` from now.
    pub fn sleep(&self, after: Duration) -> Sleep {
        self.sleep_until(self.now() + after)
    }

    /// Resolves at `at`, or at once if that has passed.
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep {
            shared: self.shared.clone(),
            at,
            id: None,
        }
    }
}

/// A timer: [`Clock::sleep`].
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    shared: Shared,
    at: Instant,
    /// Among those that the connection wakes.
    id: Option<u64>,
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sleep({:?})", self.at)
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Sleep { shared, at, id } = &mut *self;
        let mut shared = shared.lock();
        if *at <= shared.now {
            return Poll::Ready(());
        }
        *id = Some(shared.sleep(*id, *at, cx.waker()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.shared.lock().wake_not(id);
        }
    }
}
