//! Waking the loops that wait for something that moves on, such as a log, each once.
//!
//! A loop *arms* its [`Bell`] before it asks for something, or before it looks how far things have
//! come; whatever happens after that rings it. So nobody has to look a second time, and what moves
//! while no loop waits wakes none.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mailbox::LoopHandle;

/// The loops of one service that wait for one thing that moves on, such as a log.
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

/// Of one loop. The alarm keeps nothing of it that outlives it.
pub struct Bell<M> {
    alarm: Arc<Alarm<M>>,
    ring: Arc<Ring<M>>,
}

impl<M> Bell<M> {
    /// The next ring from now on has [`Service::woken`](crate::Service::woken) called on this loop. An atomic load when it is armed already.
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
