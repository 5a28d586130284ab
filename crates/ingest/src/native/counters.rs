//! The counters of a native service.

use super::codec::Reason;
use crate::counted::counters;

counters! {
    /// Producers welcomed.
    producers,
    /// Producers among them that had been away for longer than they are remembered.
    forgotten,
    /// Readers welcomed.
    readers,
    /// Sessions ended by a newer one of the same producer.
    fenced,
    /// Messages handed to the log.
    messages,
    /// Payload bytes of these messages.
    payload_bytes,
    /// Batches in which messages were handed to the log.
    batches,
    /// Acknowledgements written, without keep-alives.
    acks,
    /// Acknowledgements repeated because a commit was slow.
    keepalives,
    /// Messages at or below the mark: acknowledged and not stored again.
    duplicates,
    /// Messages dropped because one before them had been refused.
    dropped,
    /// Gaps adopted at level received.
    adopted,
    /// Ids in these gaps.
    adopted_ids,
    /// Connections whose client finished sending in the middle of a frame.
    truncated,
    /// Connections closed because their hello did not come in time.
    hello_timeouts,
    /// Times that reading was paused because the queue of the log was full.
    paused_by_log,
    /// Times that reading was paused because more was unacknowledged than the window allows.
    paused_by_window,
    /// Times that a reader had to wait because the memory of all readers was used up.
    paused_by_memory,
    /// Reads of the log made for readers.
    reads,
    /// Batch frames sent.
    read_batches,
    /// Records in the sent batches.
    read_messages,
    /// Bytes of these records.
    read_bytes,
    /// Cursors moved.
    cursors,
    /// Administrators welcomed.
    administrators,
    /// Streams created, changed or deleted by administrators.
    stream_changes,
    /// Refused: not this protocol.
    refused_malformed,
    /// Refused: a payload above the limit.
    refused_too_large,
    /// Refused: no room on the disk of the log.
    refused_disk_full,
    /// Refused: above the rate allowed to a connection.
    refused_over_quota,
    /// Refused: a gap in the ids.
    refused_out_of_order,
    /// Refused: a token that is not known, or not for the stream.
    refused_unauthorised,
    /// Refused: the log has failed.
    refused_log_failed,
    /// Refused: the server is stopping.
    refused_stopping,
    /// Refused: a limit on streams, producers, cursors or readers.
    refused_too_many,
    /// Refused: removed by retention.
    refused_gone,
    /// Refused: the log is damaged there.
    refused_damaged,
    /// Refused: behind the end of the stream.
    refused_beyond_end,
    /// Refused: no such stream.
    refused_no_stream,
    /// Refused: a stream at its limit of bytes.
    refused_stream_full,
    /// Refused: a stream that exists already.
    refused_exists,
    /// Refused: a request or setting that is not known.
    refused_unsupported,
    /// Refused: no such cursor.
    refused_no_cursor,
    /// Refused: a producer of another server.
    refused_moved,
}

impl Count {
    /// The counter for this reason of refusal.
    pub(crate) fn of(reason: Reason) -> Count {
        match reason {
            Reason::Malformed | Reason::Unknown(_) => Count::refused_malformed,
            Reason::TooLarge => Count::refused_too_large,
            Reason::DiskFull => Count::refused_disk_full,
            Reason::OverQuota => Count::refused_over_quota,
            Reason::OutOfOrder => Count::refused_out_of_order,
            Reason::Fenced => Count::fenced,
            Reason::Unauthorised => Count::refused_unauthorised,
            Reason::LogFailed => Count::refused_log_failed,
            Reason::Stopping => Count::refused_stopping,
            Reason::TooMany => Count::refused_too_many,
            Reason::Gone => Count::refused_gone,
            Reason::Damaged => Count::refused_damaged,
            Reason::BeyondEnd => Count::refused_beyond_end,
            Reason::NoStream => Count::refused_no_stream,
            Reason::StreamFull => Count::refused_stream_full,
            Reason::Exists => Count::refused_exists,
            Reason::Unsupported => Count::refused_unsupported,
            Reason::NoCursor => Count::refused_no_cursor,
            Reason::Moved => Count::refused_moved,
            Reason::TooSlow => Count::hello_timeouts,
        }
    }
}
