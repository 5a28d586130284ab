//! Kafka, and brokers that speak its protocol, as the home of a replicated log.
//!
//! One idea: a node owns one partition of a topic through a transactional id that belongs to the
//! partition. The marks stand in the partition of the same number of a compacted topic beside it,
//! `TOPIC-marks`. One transaction writes to both topics. Opening the home initialises the
//! transactional id, which fences the former owner, and then reads the marks. Members of a fleet
//! share the partitions as Kafka's consumer group assigns them; records without a producer have a
//! transactional id of the log. `docs/howto/replicate.md` has the format.
//!
//! The client is C (librdkafka), and is built with the feature `client`. Without that feature all
//! other parts of the crate are there, and opening the home [returns an
//! error](Unavailable::NotBuilt).
//!
//! # In five minutes
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use tidewire_kafka::{Settings, Target};
//! use tidewire_log::EmbeddedLog;
//! use tidewire_replicate::{Bell, Replicator, Running};
//!
//! let (log, _recovery) = EmbeddedLog::start("/var/lib/app/log".as_ref(), tidewire_log::Settings::default())?;
//! let (identity, log) = (log.identity(), Arc::new(log));
//!
//! let target: Target = "kafka://k1:9092,k2,k3/events".parse()?;
//! let bell = Bell::default();
//! // It connects on a thread of its own; topics that are missing are made.
//! let home = tidewire_kafka::home(&target, &Settings::default(), bell.clone())?;
//! let session = 1; // drawn anew for each process
//! let replicator = Replicator::new(log.clone(), identity, session, Default::default());
//! let running = Running::start(replicator, home, &*log, bell)?;
//! // From now on `log.progress().replicated` says how far the log is at home.
//! # drop(running);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[cfg_attr(
    not(feature = "client"),
    allow(dead_code, reason = "only the client hears of members")
)]
mod assignment;
#[cfg(feature = "client")]
mod client;
#[cfg_attr(
    not(feature = "client"),
    allow(dead_code, reason = "only the client writes and reads it")
)]
mod format;
#[cfg_attr(
    not(feature = "client"),
    allow(dead_code, reason = "only the client writes and reads it")
)]
mod record;
mod snapshot;
mod target;
mod unavailable;
#[cfg(not(feature = "client"))]
mod without;

#[cfg(feature = "client")]
#[doc(hidden)]
pub use client::mock;
#[cfg(feature = "client")]
pub use client::{
    Members, Polled, Reader, Watch, Watched, fetch_snapshot, forget, held, home, homes, membership,
    send_snapshot,
};
pub use format::Malformed;
pub use record::{Form, Found};
pub use snapshot::{AtHome, SNAPSHOT, SNAPSHOT_CARRIED};
pub use target::{BadTarget, PARTITIONS, PARTITIONS_MAX, Settings, Target};
pub use unavailable::Unavailable;
#[cfg(not(feature = "client"))]
pub use without::{
    Members, Polled, Reader, Watch, Watched, fetch_snapshot, forget, held, home, homes, membership,
    send_snapshot,
};
