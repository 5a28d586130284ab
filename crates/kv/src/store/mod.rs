//! The store: all keys of all databases, shared by all loops.
//!
//! Keys are spread over shards by their hash, each shard behind its own lock. A command runs under
//! the locks of the keys it names, taken in ascending order, so the command is atomic. The store
//! reads no clock and makes no random numbers: callers give both.
//!
//! ```
//! use tidewire_kv::commands::find;
//! use tidewire_kv::reply::{Proto, Reply};
//! use tidewire_kv::store::{Settings, Store};
//!
//! let store = Store::new(Settings::default());
//! let mut runner = store.runner(1_700_000_000_000, 1); // now in ms since 1970, a random seed
//! let mut reply = Reply::new(Proto::Resp2);
//! runner.run(find(b"SET").unwrap(), 0, &[b"SET", b"k", b"v"], &mut reply);
//! runner.run(find(b"get").unwrap(), 0, &[b"get", b"k"], &mut reply);
//! assert_eq!(reply.bytes(), b"+OK\r\n$1\r\nv\r\n");
//! ```

mod announce;
mod bury;
mod clock;
mod databases;
mod dirty;
mod effect;
mod epoch;
pub mod events;
mod evict;
mod expiry;
mod grave;
mod guards;
mod hand_out;
mod image;
mod libraries;
mod library_changes;
mod limits;
mod loading;
mod lock;
mod memory;
mod pending;
mod place;
mod policy;
mod ready;
mod runner;
mod set;
mod shard;
mod table;
mod tell;
mod touch;
mod tracking;
mod unit;
mod usage;
mod value;
mod view;
mod waiter;
mod walk;
mod watch;
mod whole;

pub use databases::{Keyspace, Settings, Stats, Store};
#[doc(hidden)]
pub use effect::Mistakes;
pub use effect::{Effect, Effects, Gone, NoRoom};
pub use events::{Announce, Event};
pub use expiry::Swept;
pub use libraries::Library;
pub(crate) use libraries::Seen;
pub use limits::Limits;
pub(crate) use loading::Loading;
pub(crate) use memory::Form;
pub use policy::Policy;
pub use runner::{AHEAD, Ran, Runner};
pub use set::SHARDS_MAX;
pub(crate) use set::ShardSet;
pub use tracking::{Changed, Notify, Tracker, Tracking};
pub(crate) use unit::{EffectsOf, split_frame};
pub use unit::{Malformed, RECORD_MAX, Reader, Units, effects};
pub use value::{Collection, Kind, Value, ValueRef};
pub use view::{Deadline, View};
pub use waiter::{Blocked, Deliver, Nothing, Waiter};
pub(crate) use walk::Walk;
pub use watch::Watch;
