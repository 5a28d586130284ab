//! Waking the loops that wait for the log, each once for a group of batches.
//!
//! A loop *arms* its [`Bell`] before it appends, or before it looks how far the log has come;
//! whatever the log does after that rings it. So nobody has to look a second time, and a log
//! that moves while no loop waits wakes none.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewire::LoopHandle;
use tidewire_log::{Log, Wake, Watch};

/// The loops of one service that wait for one log.
pub(crate) struct Alarm<M> {
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

impl<M: Send + 'static> Alarm<M> {
    /// An alarm that `log` rings for as long as the watch is kept.
    pub(crate) fn on(log: &dyn Log) -> (Arc<Alarm<M>>, Watch) {
        let alarm = Arc::new(Alarm {
            armed: Mutex::default(),
        });
        let rung = alarm.clone();
        let wake: Wake = Arc::new(move || rung.ring());
        (alarm, log.watch(wake))
    }

    /// A loop's bell.
    pub(crate) fn bell(self: &Arc<Self>, at: LoopHandle<M>) -> Bell<M> {
        Bell {
            alarm: self.clone(),
            ring: Arc::new(Ring {
                at,
                armed: AtomicBool::new(false),
            }),
        }
    }

    /// Wakes all loops whose bells are armed.
    fn ring(&self) {
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
pub(crate) struct Bell<M> {
    alarm: Arc<Alarm<M>>,
    ring: Arc<Ring<M>>,
}

impl<M> Bell<M> {
    /// Whatever the log does from now on has [`Service::woken`](tidewire::Service::woken) called on
    /// this loop. An atomic load when it is armed already.
    #[inline]
    pub(crate) fn arm(&self) {
        if !self.ring.armed.load(SeqCst) && !self.ring.armed.swap(true, SeqCst) {
            self.alarm.list().push(self.ring.clone());
        }
    }
}

impl<M> Drop for Bell<M> {
    fn drop(&mut self) {
        if self.ring.armed.load(SeqCst) {
            self.alarm.list().retain(|r| !Arc::ptr_eq(r, &self.ring));
        }
    }
}
