//! The loop's clock: real time on the engines, virtual time in the simulator.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tidewire::Instant;

use crate::shared::Shared;

/// The loop's clock, and timers by it. In the simulator, the clock is the virtual one.
///
/// ```
/// use std::time::Duration;
/// use futures_util::AsyncWriteExt;
/// use tidewire_async::{Clock, Stream};
///
/// /// Says what time it is, twice.
/// async fn tick(mut stream: Stream) {
///     let clock: Clock = stream.clock();
///     let began = clock.now();
///     for _ in 0..2 {
///         clock.sleep(Duration::from_secs(1)).await;
///         let text = format!("{} s\n", (clock.now() - began).as_secs());
///         let _ = stream.write_all(text.as_bytes()).await;
///     }
/// }
/// # use tidewire::{Limits, sim::{Conditions, Sim}};
/// # let mut sim = Sim::under(1, Conditions::calm());
/// # let at = sim.add_loop();
/// # let service = sim.service(at, tidewire_async::serve(tick), Limits::default());
/// # let addr = sim.listen(service);
/// # let peer = sim.plain(addr);
/// # sim.run_for(Duration::from_secs(5));
/// # assert_eq!(sim.received(peer), b"1 s\n2 s\n");
/// ```
#[derive(Clone)]
pub struct Clock {
    shared: Shared,
    /// The loop's time 0 on the standard library's clock, for hyper.
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
            zero: zero(),
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
    ///
    /// ```
    /// use std::time::Duration;
    /// use futures_util::AsyncWriteExt;
    /// use tidewire_async::Stream;
    ///
    /// /// A dot a second, on the second, however long writing takes.
    /// async fn beat(mut stream: Stream) {
    ///     let clock = stream.clock();
    ///     let mut due = clock.now();
    ///     for _ in 0..3 {
    ///         due = due + Duration::from_secs(1);
    ///         clock.sleep_until(due).await;
    ///         let _ = stream.write_all(b".").await;
    ///     }
    /// }
    /// # use tidewire::{Limits, sim::{Conditions, Sim}};
    /// # let mut sim = Sim::under(1, Conditions::calm());
    /// # let addr = sim.serve(tidewire_async::serve(beat), Limits::default());
    /// # let peer = sim.plain(addr);
    /// # sim.run_for(Duration::from_secs(5));
    /// # assert_eq!(sim.received(peer), b"...");
    /// ```
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep {
            shared: self.shared.clone(),
            at,
            id: None,
        }
    }
}

/// A timer: [`Clock::sleep`].
///
/// ```
/// use std::time::Duration;
/// use futures_util::AsyncWriteExt;
/// use futures_util::future::{Either, select};
/// use tidewire_async::{Sleep, Stream};
///
/// /// Waits for the end of the server, but not for long.
/// async fn patient(mut stream: Stream) {
///     let sleep: Sleep = stream.clock().sleep(Duration::from_secs(1));
///     let word: &[u8] = match select(sleep, stream.stopping()).await {
///         Either::Left(_) => b"late",
///         Either::Right(_) => b"over",
///     };
///     let _ = stream.write_all(word).await;
/// }
/// # use tidewire::{Limits, sim::{Conditions, Sim}};
/// # let mut sim = Sim::under(1, Conditions::calm());
/// # let at = sim.add_loop();
/// # let service = sim.service(at, tidewire_async::serve(patient), Limits::default());
/// # let addr = sim.listen(service);
/// # let peer = sim.plain(addr);
/// # sim.run_for(Duration::from_secs(5));
/// # assert_eq!(sim.received(peer), b"late");
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    shared: Shared,
    at: Instant,
    /// Number of this sleep among the sleeps that the connection wakes.
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
        let mut shared = self.shared.lock();
        if self.at <= shared.now {
            return Poll::Ready(());
        }
        let (id, before) = shared.sleep(self.id, self.at, cx.waker());
        drop(shared);
        self.id = Some(id);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // The waker goes when the lock has been let go of.
        let _waker = self.id.and_then(|id| self.shared.lock().wake_not(id));
    }
}

#[cfg(feature = "hyper")]
/// The process's time that stands for the loop's time 0: any moment will do, as long as it never
/// changes within the process.
#[expect(
    clippy::disallowed_methods,
    reason = "hyper counts in the standard library's instants; only differences matter"
)]
fn zero() -> std::time::Instant {
    static ZERO: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    *ZERO.get_or_init(std::time::Instant::now)
}
