//! The clocks of a loop: this machine's, or a simulation's.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::kernel::sys::monotonic_ns;
use crate::vocabulary::time::Instant;

/// The source of a loop's time.
#[derive(Clone)]
pub(crate) enum Clock {
    System,
    /// Virtual nanoseconds, shared by all loops of one simulation.
    Virtual(Rc<Cell<u64>>),
}

/// The wall clock at virtual time zero: 2020-01-01T00:00:00Z, any fixed value would do.
const VIRTUAL_EPOCH: Duration = Duration::from_secs(1_577_836_800);

impl Clock {
    #[inline]
    pub(crate) fn monotonic(&self) -> Instant {
        match self {
            Clock::System => Instant::from_nanos(monotonic_ns()),
            Clock::Virtual(t) => Instant::from_nanos(t.get()),
        }
    }

    pub(crate) fn wall(&self) -> Duration {
        match self {
            Clock::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            Clock::Virtual(t) => VIRTUAL_EPOCH + Duration::from_nanos(t.get()),
        }
    }
}
