//! The durable log: records are appended in batches from many connections, written and synced in
//! groups by one writer, and read back from a position.
//!
//! Users of a log use the trait [`Log`]. Its calls return before anything is durable; a watermark
//! tells later what is. [`EmbeddedLog`] is the implementation in this process.
//!
//! ```
//! use std::sync::{Arc, mpsc};
//!
//! use tidewire_log::{Credit, EmbeddedLog, Log, ProducerId, Run, Settings};
//!
//! # let directory = std::env::temp_dir().join(format!("tidewire-log-example-{}", std::process::id()));
//! // `directory` is where the log is, or is made.
//! let (log, _recovery) = EmbeddedLog::start(&directory, Settings::default())?;
//!
//! // A record is an id, the length of its payload, and the payload.
//! let mut frames = u64::to_le_bytes(1).to_vec();
//! frames.extend(u32::to_le_bytes(5));
//! frames.extend(b"hello");
//!
//! // The log calls this at every change of progress, once for a group of batches.
//! let (changed, changes) = mpsc::channel();
//! let watch = log.watch(Arc::new(move || drop(changed.send(()))));
//! let ticket = log.append(Run {
//!     stream: log.stream("greetings")?,
//!     producer: ProducerId::ANONYMOUS,
//!     frames: &frames,
//!     count: 1,
//!     last_id: 1,
//!     timestamp_us: 0,
//! })?;
//! while log.progress().committed < ticket {
//!     assert!(log.progress().failure.is_none(), "the log has failed");
//!     changes.recv()?; // a server would serve other clients meanwhile
//! }
//!
//! // It is on the disk, and readers see it.
//! let read = log.read("greetings", 0, Credit(64 << 10))?;
//! assert_eq!(read.next, 1);
//! assert_eq!(&read.runs[0].bytes[12..], b"hello");
//! # drop(watch);
//! # log.close();
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/append_and_read.rs` is a whole program; `docs/formats/log-format.md` has the files.
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
mod note;
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
mod types;
mod usage;
mod view;
mod writer;
mod zeros;

pub use api::{Log, RUN_BYTES};
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
pub use types::{
    Begin, Carried, Committed, Credit, Failure, Frames, Mark, Placed, Policy, ProducerId, Progress,
    Range, ReadError, Refused, Run, StreamId, Ticket, Wake, Watch,
};
pub use usage::Usage;
pub use view::View;
pub use writer::{Now, Step, Writer};
