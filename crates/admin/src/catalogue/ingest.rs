//! Metrics of the service `ingest`.

use crate::metric::metrics;

metrics! {
    /// Producers welcomed.
    PRODUCERS = Counter "tidewire_ingest_producers_total" [];
    /// Producers that had been away for longer than they are remembered.
    FORGOTTEN = Counter "tidewire_ingest_forgotten_producers_total" [] of "forgotten";
    /// Readers welcomed.
    READERS = Counter "tidewire_ingest_readers_total" [];
    /// Sessions ended because the same producer has begun a newer one.
    FENCED = Counter "tidewire_ingest_fenced_total" [];
    /// Messages handed to the log.
    MESSAGES = Counter "tidewire_ingest_messages_total" [];
    /// Payload of messages handed to the log; bytes.
    PAYLOAD_BYTES = Counter "tidewire_ingest_payload_bytes_total" [];
    /// Batches in which messages were handed to the log.
    BATCHES = Counter "tidewire_ingest_batches_total" [];
    /// Acknowledgements written, without keep-alives.
    ACKS = Counter "tidewire_ingest_acks_total" [];
    /// Acknowledgements repeated because a commit was slow.
    KEEPALIVES = Counter "tidewire_ingest_keepalives_total" [];
    /// Messages at or below the mark: acknowledged and not stored again.
    DUPLICATES = Counter "tidewire_ingest_duplicates_total" [];
    /// Messages dropped because an earlier message had been refused.
    DROPPED = Counter "tidewire_ingest_dropped_total" [];
    /// Gaps adopted at level received.
    ADOPTED = Counter "tidewire_ingest_adopted_gaps_total" [] of "adopted";
    /// Ids in gaps adopted at level received.
    ADOPTED_IDS = Counter "tidewire_ingest_adopted_ids_total" [];
    /// Connections whose client finished sending in the middle of a frame.
    TRUNCATED = Counter "tidewire_ingest_truncated_total" [];
    /// Connections closed because their hello did not come in time.
    HELLO_TIMEOUTS = Counter "tidewire_ingest_hello_timeouts_total" [];
    /// Times that the server stopped reading from a client, by the reason: `log` (the log's queue was full), `window` (too many messages were unacknowledged), `memory` (all readers together held too much).
    PAUSES = Counter "tidewire_ingest_pauses_total" ["limit"] of "paused_by_*";
    /// Reads of the log made for readers.
    READS = Counter "tidewire_ingest_reads_total" [];
    /// Batch frames sent to readers.
    READ_BATCHES = Counter "tidewire_ingest_read_batches_total" [];
    /// Records in batch frames sent to readers.
    READ_MESSAGES = Counter "tidewire_ingest_read_messages_total" [];
    /// Bytes of records in batch frames sent to readers.
    READ_BYTES = Counter "tidewire_ingest_read_bytes_total" [];
    /// Cursors moved.
    CURSORS = Counter "tidewire_ingest_cursors_moved_total" [] of "cursors";
    /// Administrators welcomed.
    ADMINISTRATORS = Counter "tidewire_ingest_administrators_total" [];
    /// Streams created, changed or deleted by administrators.
    STREAM_CHANGES = Counter "tidewire_ingest_stream_changes_total" [];
    /// Records behind the slowest connected reader of a stream; for the first 100 streams that are read.
    READER_LAG = Gauge "tidewire_ingest_reader_lag" ["stream"];
    /// Refusals, by the reason that clients are told (docs/formats/protocol.md).
    REFUSED = Counter "tidewire_ingest_refused_total" ["reason"] of "refused_*";
}
