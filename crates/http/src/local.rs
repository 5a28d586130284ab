//! The service's state: what all loops share, and what each has.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tidewire::Throttle;

use crate::counters::{Counts, Totals};
use crate::settings::Settings;
use crate::wire::Wire;

/// The state that all loops of a server share.
pub(crate) struct Shared<H> {
    pub(crate) handler: H,
    pub(crate) settings: Settings,
    /// Throttle of log lines about refused requests.
    pub(crate) refusals: Throttle,
    /// Bytes of bodies that are being gathered. The count is over all loops, because the threads engine
    /// has one loop for each connection.
    pub(crate) gathered: AtomicUsize,
    pub(crate) totals: Totals,
}

impl<H> Shared<H> {
    /// Whether `n` more bytes of a body may be gathered; they are counted.
    pub(crate) fn gather(&self, n: usize) -> bool {
        let before = self.gathered.fetch_add(n, Relaxed);
        let fits = before.saturating_add(n) <= self.settings.gathered;
        if !fits {
            self.gathered_no_more(n);
        }
        fits
    }

    pub(crate) fn gathered_no_more(&self, n: usize) {
        self.gathered.fetch_sub(n, Relaxed);
    }
}

/// The service's state on one loop. Of no use to others.
pub struct HttpLocal<H> {
    pub(crate) shared: Arc<Shared<H>>,
    pub(crate) wire: Wire,
    pub(crate) counts: Arc<Counts>,
}

impl<H> fmt::Debug for HttpLocal<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpLocal({:?})", self.counts)
    }
}
