//! The store on a durable log: every unit of changes is a record, and the store is built again from
//! the newest snapshot and the records behind it.
//!
//! [`KvLog`] is the hook ([`Effects`](crate::store::Effects)) that the store commits to; [`open`] reads
//! what is there back into a store first. Formats: `docs/formats/kv-log.md`.

mod follow;
mod kind;
mod kv_log;
mod player;
mod replay;
pub mod snapshot;

pub use follow::{
    Applier, FollowError, FollowSettings, Follower, Heard, Source, Standing, go_on_at, is_of_store,
    left_by,
};
pub use kind::{begins_with_unit, kind_of};
pub use kv_log::{KvLog, Proof};
#[doc(hidden)]
pub use replay::open_with;
pub use replay::{Accept, ReplayError, Replayed, open};

/// The stream of the log that holds the units.
pub const STREAM: &str = "kv";
