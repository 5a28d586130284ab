//! The durable log: records are appended in batches from many connections, written and synced in
//! groups by one writer, and read back from a position.
//!
//! Everything above is written against the trait [`Log`], which promises nothing by a return
//! value: what is durable is told later, as a watermark. [`EmbeddedLog`] is its home in this
//! process.
#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]

mod admin;
mod ahead;
mod api;
mod backlog;
mod catalog;
mod claims;
pub mod disk;
mod embedded;
mod format;
mod gather;
mod index;
mod kind;
mod numbered;
mod pack;
mod read;
mod recovery;
mod reserve;
mod restoring;
mod selection;
mod settings;
mod shared;
mod state;
mod streams;
mod tenure;
#[cfg(test)]
mod tests;
mod thread;
mod times;
pub mod tools;
mod usage;
mod view;
mod writer;
mod zeros;

pub use api::{
    Begin, Carried, Committed, Credit, Failure, Frames, Log, Mark, Placed, Policy, ProducerId,
    Progress, RUN_BYTES, Range, ReadError, Refused, Run, StreamId, Ticket, Wake, Watch,
};
pub use embedded::EmbeddedLog;
pub use gather::Room;
pub use kind::Kind;
pub use recovery::{Cut, Damage, OpenError, Opening, Recovery, Short};
pub use selection::{BadSelection, Selection};
#[doc(hidden)]
pub use settings::Mistakes;
pub use settings::{GROUP_MAX, GROUP_WAIT_MAX, PRODUCER_IDLE, SEGMENT_BYTES, Settings, Verify};
pub use state::NAMELESS;
pub use streams::{Change, ChangeRefused, Compression, CursorStatus, StreamSettings, StreamStatus};
pub use tenure::Tenure;
pub use times::{COMMIT_BOUNDS, CommitTimes};
pub use usage::Usage;
pub use view::View;
pub use writer::{Now, Step, Writer};
