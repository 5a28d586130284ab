//! The thread that drives the keeper in production: it provides the clocks, and waits when there is nothing to
//! do. After each step the thread leaves the processor to other threads for as long as the step took. Where
//! there are as many loops as processors, a loop would otherwise have to wait for whole time slices.

#![expect(
    clippy::disallowed_methods,
    reason = "it brings the clocks, and is a thread because it blocks on the disk"
)]

use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidewire_log::disk::Disk;
use tidewire_log::{Now, Step};

use super::keeper::Keeper;
use super::told::Snapshots;

/// How often the thread checks whether the log has grown enough, if no other event wakes it.
const LOOK: Duration = Duration::from_millis(500);

/// The longest rest after a step.
const REST_MAX: Duration = Duration::from_millis(1);

/// A keeper at work, until it is stopped or dropped.
#[derive(Debug)]
pub struct Running {
    told: Arc<Snapshots>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts a thread that drives `keeper`.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn start<D: Disk>(keeper: Keeper<D>) -> io::Result<Running> {
        let told = keeper.told().clone();
        let thread = Builder::new()
            .name("tidewire-snapshot".into())
            .spawn(move || drive(keeper))?;
        Ok(Running {
            told,
            thread: Some(thread),
        })
    }

    /// The handle for asking for snapshots, and their figures.
    #[must_use]
    pub fn told(&self) -> &Arc<Snapshots> {
        &self.told
    }

    /// Ends the thread, and with it a snapshot in progress, which then does not count.
    pub fn stop(&mut self) {
        self.told.lock().stop();
        self.told.nudge();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the thread; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

fn drive<D: Disk>(mut keeper: Keeper<D>) {
    let start = Instant::now();
    let told = keeper.told().clone();
    loop {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now = Now {
            monotonic: start.elapsed(),
            unix_us: unix.as_micros() as u64,
        };
        let step = keeper.step(now);
        let status = told.lock();
        if status.is_stopping() {
            return;
        }
        let wait = match step {
            Step::Worked if keeper.may_rest() => {
                start.elapsed().saturating_sub(now.monotonic).min(REST_MAX)
            }
            Step::Worked => continue,
            Step::Idle if status.is_scheduled() => continue,
            Step::Idle => LOOK,
            Step::WaitUntil(time) => time.saturating_sub(start.elapsed()).min(LOOK),
        };
        // Woken early is no harm.
        drop(
            told.work
                .wait_timeout(status, wait)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}
