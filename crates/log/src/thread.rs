//! The thread that drives a writer in production: it brings the clock and parks when there is
//! nothing to do.

use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, JoinHandle, panicking};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::disk::Disk;
use crate::gather::{Gate, Gather};
use crate::shared::Shared;
use crate::writer::{Now, Step, Writer};

/// How long to park when nothing is due: a bound, not a period anything depends on.
const PARK_MAX: Duration = Duration::from_secs(60);

pub(crate) fn spawn<D: Disk>(writer: Writer<D>) -> io::Result<JoinHandle<()>> {
    let start = Instant::now();
    Builder::new()
        .name("tidewire-log".into())
        .spawn(move || drive(writer, start))
}

fn now(start: Instant) -> Now {
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Now {
        monotonic: start.elapsed(),
        unix_us: unix.as_micros() as u64,
    }
}

/// Makes sure that no thread waits for a writer that has panicked, and ends the helper thread with
/// the writer.
struct Watchman<D: Disk> {
    shared: Arc<Shared<D>>,
    helper: Option<JoinHandle<()>>,
}

impl<D: Disk> Watchman<D> {
    fn new(shared: &Arc<Shared<D>>) -> Watchman<D> {
        let theirs = shared.clone();
        Watchman {
            shared: shared.clone(),
            // Without the helper groups are only slower.
            helper: Builder::new()
                .name("tidewire-zeros".into())
                .spawn(move || theirs.zeros.run())
                .ok(),
        }
    }
}

impl<D: Disk> Drop for Watchman<D> {
    fn drop(&mut self) {
        if panicking() {
            self.shared.fail("the log's writer panicked".into());
        }
        self.shared.zeros.close();
        if let Some(helper) = self.helper.take() {
            let _ = helper.join();
        }
    }
}

fn drive<D: Disk>(mut writer: Writer<D>, start: Instant) {
    let _watchman = Watchman::new(writer.shared());
    loop {
        let step = writer.step(now(start));
        if let Some(taken) = writer.committed_from() {
            let took = start.elapsed().saturating_sub(taken);
            writer.shared().times.add(took);
        }
        let wait = match step {
            Step::Worked => continue,
            Step::Idle => PARK_MAX,
            Step::WaitUntil(time) => time.saturating_sub(start.elapsed()).min(PARK_MAX),
        };
        if !park(&writer, wait) {
            break writer.close(now(start));
        }
    }
}

/// Waits until there is something to write or `wait` is over; `false` if the log is to be closed.
fn park<D: Disk>(writer: &Writer<D>, wait: Duration) -> bool {
    let shared = writer.shared();
    let mut gather = shared.gather();
    if gather.closing {
        return false;
    }
    if may_sleep(&gather) {
        gather.parked = true;
        let waited = shared.work.wait_timeout(gather, wait);
        gather = waited.unwrap_or_else(PoisonError::into_inner).0;
        gather.parked = false;
    }
    !gather.closing
}

/// Whether the writer has no work. If the log has failed, gathered batches stay where they are.
fn may_sleep(gather: &Gather) -> bool {
    let is_held = gather.group.is_empty() || gather.gate == Gate::Shut || gather.is_awaited();
    is_held && !gather.is_asked()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::tests::{append, small};
    use crate::{EmbeddedLog, Log, ProducerId};

    /// The writer would ask again and again, for ever.
    #[test]
    fn a_writer_sleeps_when_its_log_has_failed_with_a_group_in_hand() {
        let (log, mut writer, _) = EmbeddedLog::open(SimDisk::new(1), small()).expect("the log");
        let stream = log.stream("s").expect("a stream");
        writer.step(now(Instant::now()));
        append(&log, stream, ProducerId::ANONYMOUS, 1..=1).expect("room");
        assert!(!may_sleep(&log.shared().gather()));
        log.fail("a test");
        assert!(may_sleep(&log.shared().gather()));
    }
}
