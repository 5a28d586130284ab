//! The durable log: records are appended in batches from many connections, written and synced in
//! groups by one writer, and read back from a position.
//!
//! Everything above is written against the trait [`Log`], which promises nothing by a return
//! value: what is durable is told later, as a watermark.
#![forbid(unsafe_code)]

mod api;
pub mod disk;

pub use api::{
    Begin, Committed, Credit, Failure, Frames, Log, Mark, Policy, ProducerId, Progress, Range,
    ReadError, Refused, Run, StreamId, Ticket, Wake, Watch,
};
