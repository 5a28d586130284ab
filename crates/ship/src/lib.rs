//! Ships files to a server of the native protocol: each line once, in order, whatever happens.
//!
//! The idea that everything rests on: **the id of a message is where it ends in its file**, and
//! each file is a producer of its own. So the mark that the server keeps for a producer *is* a
//! position in the file; the two cannot disagree, whichever process is killed in between.
//! `docs/howto/ship.md` has the invariants and why they suffice.
//!
//! * [`Shipper`] is all of it as a state machine driven by steps, without clock, disk or socket: these
//!   come as a [`FileSystem`], a [`Store`] and a [`Network`]. Tests drive it through thousands of
//!   random schedules.
//! * [`Disk`], [`StateDirectory`] and [`Servers`] are the real ones.
//! * [`journal`] ships journald's export format, which has no offsets, by counting from a cursor.
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use tidewire_ingest::client::{Persistence, Producing};
//! use tidewire_ship::{Bell, Disk, Pattern, Servers, Settings, Shipper, StateDirectory};
//!
//! # let running = tidewire_ingest::testing::server();
//! # let server = running.addrs()[0].to_string();
//! # let directory = std::env::temp_dir().join(format!("tidewire-ship-example-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! let log = directory.join("app.log");
//! std::fs::write(&log, "one\ntwo\n")?;
//!
//! // `server` is a place such as "127.0.0.1:7400".
//! let (state, checkpoint) = StateDirectory::open(&directory.join("state"))?;
//! let bell = Bell::default();
//! let to = vec![(server.clone(), server.as_str().into())];
//! let servers = Servers::new(to, Producing::default(), Persistence::default(), bell.clone());
//! let settings = Settings { servers: vec![server], once: true, ..Settings::default() };
//! let patterns = vec![Pattern::File(log)];
//! let mut shipper = Shipper::new((Disk, servers, state), settings, (patterns, Vec::new()), checkpoint);
//!
//! let began = Instant::now();
//! loop {
//!     let step = shipper.step(began.elapsed())?;
//!     if step.complete {
//!         break;
//!     }
//!     if !step.busy {
//!         bell.wait(Duration::from_millis(250)); // until a server answers, or files are to be looked at
//!     }
//! }
//! assert_eq!(shipper.counts().acknowledged, 2);
//! # drop(shipper);
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod age;
mod buffer;
mod counts;
mod disk;
mod file_system;
mod fingerprint;
mod follower;
mod inert;
pub mod journal;
mod lag;
mod line;
mod network;
mod packed;
mod pattern;
mod places;
mod scan;
mod servers;
mod settings;
mod shipper;
mod state;
mod store;
mod trail;
mod waiting;
mod watched;

pub use counts::{Counts, Fatal};
pub use disk::Disk;
pub use disk::Opened;
pub use file_system::{FileId, FileSystem, Found, Seen};
pub use network::{Ended, Lane, Matter, Network, Stand};
pub use pattern::{Pattern, Unusable, is_packed};
pub use servers::{Bell, Servers};
pub use settings::{From, Oversized, Settings};
pub use shipper::{Following, Shipper, Step};
pub use state::{Checkpoint, Entry, Surveyed};
pub use store::{StateDirectory, Store, StoreError, write_atomically};
pub use watched::WatchedDisk;
