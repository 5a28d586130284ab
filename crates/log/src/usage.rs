//! The size and counts of a log, for metrics and reports.

use crate::disk::Disk;
use crate::{EmbeddedLog, Ticket};

/// The size of a log and the counts of what it has taken: see [`EmbeddedLog::usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The last batch taken.
    pub appended: Ticket,
    /// Bytes gathered for the next group.
    pub queued_bytes: usize,
    /// Segments.
    pub segments: usize,
    /// Bytes of committed batches in the segments, with their headers.
    pub used_bytes: u64,
    /// Streams.
    pub streams: usize,
    /// Producers that are remembered.
    pub producers: usize,
}

impl<D: Disk> EmbeddedLog<D> {
    /// The bytes that the log holds, and the appended totals. Quick: the cost follows the number of
    /// segments.
    ///
    /// ```
    /// use tidewire_log::{EmbeddedLog, Log, Settings};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let (log, _recovery) = EmbeddedLog::start(directory.path(), Settings::default())?;
    /// log.stream("default")?;
    /// assert_eq!(log.usage().streams, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        {
            let gather = self.shared().gather();
            usage.appended = gather.last_ticket();
            usage.queued_bytes = gather.group.gathered();
            usage.producers = gather.state.producer_count();
        }
        let catalog = self.shared().catalog();
        usage.streams = catalog.streams.len();
        usage.segments = catalog.segments.len();
        usage.used_bytes = catalog.segments.values().map(|s| s.used).sum();
        usage
    }
}
