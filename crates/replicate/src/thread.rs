//! The thread that drives a replicator in production: it brings the clock, and parks when there is nothing to do.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tidewire_log::{Log, Step, Wake, Watch};

use crate::home::Home;
use crate::lease::monotonic;
use crate::node::Node;
use crate::replicator::Replicator;
use crate::status::Shown;

/// How long a thread that ends parks at most: nothing wakes it when its time is over.
const PARK_ENDING: Duration = Duration::from_millis(50);
/// How long to park when nothing is due: a bound, not a period anything depends on.
const PARK_MAX: Duration = Duration::from_secs(60);

/// Wakes the thread of a replicator: the log rings it, and the home when it has an answer.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<(Mutex<Rung>, Condvar)>);

#[derive(Debug, Default)]
struct Rung {
    rung: bool,
    ends: bool,
}

impl Bell {
    /// Wakes the thread: there may be work.
    pub fn ring(&self) {
        self.change(|rung| rung.rung = true);
    }

    fn change(&self, change: impl FnOnce(&mut Rung)) {
        change(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.1.notify_one();
    }

    /// Waits until the bell rings or the time is over, even if the thread is to end.
    fn wait_ending(&self, most: Duration) {
        let rung = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(rung, most, |rung| !rung.rung);
        waited.unwrap_or_else(PoisonError::into_inner).0.rung = false;
    }

    /// Waits until the bell rings or the time is over; returns whether to go on.
    fn wait(&self, most: Duration) -> bool {
        let rung = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |rung: &mut Rung| !rung.rung && !rung.ends;
        let waited = self.0.1.wait_timeout_while(rung, most, idle);
        let mut rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        rung.rung = false;
        !rung.ends
    }
}

/// A running replicator. Dropping the value ends the thread; records that are not in the home by then are sent when a
/// replicator runs again. Before the end, a member of a fleet hands over its partitions, and a lease is released, if the
/// home is reachable.
#[derive(Debug)]
pub struct Running {
    bell: Bell,
    shown: Shown,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Drives a replicator of `log`. The home is to ring `bell` when it has an answer.
    ///
    /// # Errors
    /// The error of the operating system if no thread can be started.
    pub fn start(
        mut replicator: Replicator,
        mut home: Box<dyn Home>,
        log: &dyn Log,
        bell: Bell,
    ) -> io::Result<Running> {
        let shown = replicator.shown();
        let step = move |now, ends| {
            if ends {
                replicator.leave(now);
            }
            (replicator.step(now, &mut *home), replicator.has_left(now))
        };
        Running::drive(step, shown, log, bell)
    }

    /// Drives a member of a fleet with `log`. The homes and the membership must ring `bell` when they have an answer.
    ///
    /// # Errors
    /// The error of the operating system if no thread can be started.
    pub fn start_node(mut node: Node, log: &dyn Log, bell: Bell) -> io::Result<Running> {
        let shown = node.shown();
        let step = move |now, ends| {
            if ends {
                node.leave(now);
            }
            (node.step(now), node.has_left())
        };
        Running::drive(step, shown, log, bell)
    }

    fn drive(
        mut step: impl FnMut(Duration, bool) -> (Step, bool) + Send + 'static,
        shown: Shown,
        log: &dyn Log,
        bell: Bell,
    ) -> io::Result<Running> {
        let rung = bell.clone();
        let wake: Wake = Arc::new(move || rung.ring());
        let watch: Watch = log.watch(wake);
        let waits = bell.clone();
        let thread = Builder::new().name("tidewire-home".into()).spawn(move || {
            let _watch = watch;
            let mut go_on = true;
            while go_on {
                let wait = match step(monotonic(), false).0 {
                    Step::Worked => Duration::ZERO,
                    Step::Idle => PARK_MAX,
                    Step::WaitUntil(time) => time.saturating_sub(monotonic()).min(PARK_MAX),
                };
                go_on = waits.wait(wait);
            }
            loop {
                let (step, is_done) = step(monotonic(), true);
                if is_done {
                    break;
                }
                if step != Step::Worked {
                    waits.wait_ending(PARK_ENDING);
                }
            }
        })?;
        Ok(Running {
            bell,
            shown,
            thread: Some(thread),
        })
    }

    /// The replicator's state, for the metrics.
    #[must_use]
    pub fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// The bell that wakes the thread.
    #[must_use]
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.bell.change(|rung| rung.ends = true);
        if let Some(thread) = self.thread.take() {
            // The thread has reported its panic.
            let _ = thread.join();
        }
    }
}
