//! The bytes on disk: segment headers, batch headers and the runs inside a batch. Everything is
//! little-endian; `docs/formats/log-format.md` describes the format, and only this module knows it.
//!
//! The one idea: a batch is either valid or not. The checksum of its header covers the identity of
//! log and segment and the checksum of its body. The body's checksum covers the headers of its
//! runs, and each run of records has a checksum of its own. So an appending thread computes the
//! checksum of its own records, the writer touches no record, and a reader verifies the run that it
//! reads without the rest of the batch.

mod batch;
mod layout;
mod newer;
mod run;
pub(crate) mod settings;

pub(crate) use batch::{BatchHeader, Flags, body_crc_of, restored};
pub(crate) use layout::{
    ALIGN, BATCH_HEADER, BATCH_HEADER_BEFORE, FRAME_HEADER, Fault, Needs, RECORDS_HEADER,
    RUN_PREFIX, SEGMENT_HEADER, SegmentHeader, VERSION, index_name, is_batch, number_of, padding,
    segment_name, u32_at, u64_at,
};
pub(crate) use newer::{Newer, newer};
pub(crate) use run::{
    CURSOR_GONE, Form, Missing, Records, RunView, Runs, Stored, put_checkpoint, put_cursor,
    put_deleted, put_missing, put_producer, put_stream, put_stream_set, put_trimmed,
};
