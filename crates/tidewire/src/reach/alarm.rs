//! Waking the loops that wait for something that moves on, such as a log, each once.
//!
//! A loop *arms* its [`Bell`] before it sends a request, or before it looks at a progress; any
//! later progress rings the bell. So no loop has to look a second time, and progress wakes no loop
//! while none waits.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mailbox::LoopHandle;

/// The loops of one service that wait for one thing that moves on, such as a log. The thread that
/// moves it rings.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
/// use std::time::Duration;
/// use tidewire::sim::{Conditions, Sim};
/// use tidewire::{Alarm, Bell, Conns, Limits, LoopHandle, Peer, Refusal, Service};
/// # use tidewire::{Cx, Input, Next, Protocol};
/// # struct Watcher;
/// # impl Protocol for Watcher { type Local = Bell<()>; type Message = ();
/// #   fn received(&mut self, _: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next { Next::More } }
///
/// /// Tells every client how far the work has come, whenever that changes.
/// #[derive(Clone, Default)]
/// struct Progress {
///     position: Arc<AtomicU64>,
///     alarm: Arc<Alarm<()>>,
/// }
///
/// impl Progress {
///     /// From whatever thread.
///     fn advance(&self, by: u64) {
///         self.position.fetch_add(by, SeqCst);
///         self.alarm.ring();
///     }
/// }
///
/// impl Service for Progress {
///     type Conn = Watcher;
///
///     fn on_loop(&self, at: LoopHandle<()>) -> Bell<()> {
///         let bell = self.alarm.bell(at);
///         bell.arm();
///         bell
///     }
///
///     fn woken(&self, bell: &mut Bell<()>, all: &mut Conns<'_, Watcher>) {
///         bell.arm(); // before looking, so that nothing is missed
///         let text = format!("{}\n", self.position.load(SeqCst));
///         all.each(bell, |_, cx| cx.link.write(text.as_bytes()));
///     }
/// #   fn accept(&self, _: &Peer, _: &mut Bell<()>) -> Result<Watcher, Refusal> { Ok(Watcher) }
/// }
///
/// let progress = Progress::default();
/// let mut sim = Sim::under(1, Conditions::calm());
/// let addr = sim.serve(progress.clone(), Limits::default());
/// let peer = sim.plain(addr);
/// sim.run_for(Duration::from_secs(1));
/// progress.advance(3);
/// progress.advance(4); // the loop has not looked yet: both become one call
/// sim.run_for(Duration::from_secs(1));
/// assert_eq!(sim.received(peer), b"7\n");
/// ```
pub struct Alarm<M> {
    armed: Mutex<Vec<Arc<Ring<M>>>>,
}

struct Ring<M> {
    at: LoopHandle<M>,
    /// In the list of the alarm, or about to be rung.
    armed: AtomicBool,
}

impl<M> fmt::Debug for Alarm<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alarm({} loops)", self.list().len())
    }
}

impl<M> Default for Alarm<M> {
    fn default() -> Alarm<M> {
        Alarm {
            armed: Mutex::default(),
        }
    }
}

impl<M> Alarm<M> {
    /// A loop's bell.
    #[must_use]
    pub fn bell(self: &Arc<Self>, at: LoopHandle<M>) -> Bell<M> {
        Bell {
            alarm: self.clone(),
            ring: Arc::new(Ring {
                at,
                armed: AtomicBool::new(false),
            }),
        }
    }

    /// Wakes all loops whose bells are armed, and disarms them.
    pub fn ring(&self) {
        let armed = std::mem::take(&mut *self.list());
        for ring in armed {
            // Disarmed first: a loop that finds itself armed until then is about to be signalled,
            // and arms again before it looks.
            ring.armed.store(false, SeqCst);
            ring.at.signal();
        }
    }
}

impl<M> Alarm<M> {
    fn list(&self) -> MutexGuard<'_, Vec<Arc<Ring<M>>>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An [`Alarm`]'s bell on one loop. The alarm keeps nothing of it that outlives it.
///
/// ```
/// use std::sync::Arc;
/// use tidewire::{Alarm, Bell, LoopHandle};
///
/// /// What a service keeps on each loop to hear of what moves on: armed before one looks.
/// fn on_loop(alarm: &Arc<Alarm<()>>, at: LoopHandle<()>) -> Bell<()> {
///     let bell = alarm.bell(at);
///     bell.arm();
///     bell
/// }
/// ```
pub struct Bell<M> {
    alarm: Arc<Alarm<M>>,
    ring: Arc<Ring<M>>,
}

impl<M> Bell<M> {
    /// The next ring from now on has [`Service::woken`](crate::Service::woken) called on this loop. An
    /// atomic load when it is armed already.
    #[inline]
    pub fn arm(&self) {
        if !self.ring.armed.load(SeqCst) && !self.ring.armed.swap(true, SeqCst) {
            self.alarm.list().push(self.ring.clone());
        }
    }
}

impl<M> fmt::Debug for Bell<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bell(armed: {})", self.ring.armed.load(SeqCst))
    }
}

impl<M> Drop for Bell<M> {
    fn drop(&mut self) {
        if self.ring.armed.load(SeqCst) {
            self.alarm.list().retain(|r| !Arc::ptr_eq(r, &self.ring));
        }
    }
}
