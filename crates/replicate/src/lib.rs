//! The committed records of the local log are carried to a home of many machines, in order, and a
//! second watermark says how far: [`Progress::replicated`](tidewire_log::Progress::replicated).
//!
//! The crate rests on three ideas. A [`Home`] takes whole [transactions](Transaction), in which the records and the
//! marks that say how far they go cannot disagree. The outcome of a transaction is never guessed: if an answer is
//! missing, the home is opened anew, which ends any open transaction, and the replicator goes on where the marks say.
//! The [`Replicator`] is a state machine that is driven by steps, like the log's writer: a [thread](Running) drives it
//! in production, a simulation in the tests.
//!
//! A [`Node`] is a member of a fleet, whose producers are spread over partitions. A node is a set of replicators, one for
//! each partition that a [`Membership`] has assigned to the node and that the node has [claimed](Hold) in the home.
//!
//! The crate knows no particular home; `docs/howto/replicate.md` describes the promises.
//!
//! # In five minutes
//!
//! A home answers three requests, later or never. The example's home is a table in memory; `tidewire-kafka` has one for
//! production.
//!
//! ```
//! use std::collections::VecDeque;
//! use std::sync::{Arc, Mutex, mpsc};
//!
//! use tidewire_log::{EmbeddedLog, Log, ProducerId, Run};
//! use tidewire_replicate::{Answer, Ask, Bell, Held, Home, Record, Replicator, Running, Settings};
//!
//! struct Table {
//!     records: Arc<Mutex<Vec<Record>>>,
//!     held: Held,
//!     answers: VecDeque<(u64, Answer)>,
//!     bell: Bell,
//! }
//!
//! impl Home for Table {
//!     fn ask(&mut self, number: u64, ask: Ask) {
//!         let answer = match ask {
//!             Ask::Look | Ask::Open => Answer::Held(self.held.clone()),
//!             Ask::Carry(transaction) => {
//!                 // All of it, or nothing.
//!                 self.held.owner = Some(transaction.owner);
//!                 self.held.streams.extend(transaction.streams);
//!                 self.held.has_records |= !transaction.records.is_empty();
//!                 self.records.lock().unwrap().extend(transaction.records);
//!                 Answer::Committed
//!             }
//!         };
//!         self.answers.push_back((number, answer));
//!         self.bell.ring(); // there is an answer
//!     }
//!
//!     fn answer(&mut self) -> Option<(u64, Answer)> {
//!         self.answers.pop_front()
//!     }
//! }
//!
//! # let directory = std::env::temp_dir().join(format!("tidewire-replicate-example-{}", std::process::id()));
//! // `directory` is where the log is, or is made.
//! let (log, _recovery) = EmbeddedLog::start(&directory, tidewire_log::Settings::default())?;
//! let (identity, log) = (log.identity(), Arc::new(log));
//! let (bell, records) = (Bell::default(), Arc::new(Mutex::default()));
//! let home = Table {
//!     records: Arc::clone(&records),
//!     held: Held::default(),
//!     answers: VecDeque::new(),
//!     bell: bell.clone(),
//! };
//! let session = 1; // drawn anew for each process
//! let replicator = Replicator::new(log.clone(), identity, session, Settings::default());
//! let running = Running::start(replicator, Box::new(home), &*log, bell)?;
//!
//! let (changed, changes) = mpsc::channel();
//! let watch = log.watch(Arc::new(move || drop(changed.send(()))));
//! let mut frames = u64::to_le_bytes(1).to_vec(); // the record's id,
//! frames.extend(u32::to_le_bytes(5)); // the length of its payload
//! frames.extend(b"hello");
//! let ticket = log.append(Run {
//!     stream: log.stream("greetings")?,
//!     producer: ProducerId::ANONYMOUS,
//!     frames: &frames,
//!     count: 1,
//!     last_id: 1,
//!     timestamp_us: 0,
//! })?;
//! // It is on this disk when `committed` has come so far, and at home when `replicated` has.
//! while log.progress().replicated.is_none_or(|replicated| replicated < ticket) {
//!     changes.recv()?;
//! }
//! assert_eq!(&*records.lock().unwrap()[0].stream, "greetings");
//! # drop((watch, running));
//! # log.close();
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod currency;
mod cursors;
mod cut;
mod failover;
mod filling;
mod hold;
mod home;
mod lanes;
mod lease;
mod look;
mod membership;
mod node;
mod notes;
mod owners;
mod replicator;
mod seen;
mod settings;
mod share;
mod status;
mod tenancy;
mod thread;
mod witness;

pub use currency::{Currency, SILENCE};
pub use failover::{ADDRESS, Found, Vacancy, Verdict, Watchman, address_word, owners_address};
pub use hold::{Ending, Guest, Hold};
pub use home::{
    Answer, Ask, Claim, Cursors, Held, Home, Marks, Moves, Owner, Place, Record, Transaction, Words,
};
pub use lease::{Granted, LEASE, Lease, monotonic};
pub use membership::{Event, Membership};
pub use node::{Homes, Member, Node};
pub use notes::{Notes, SNAPSHOT, begins, is_whole};
pub use owners::{Owners, Whose};
pub use replicator::{CURSOR, RELEASED, Replicator};
#[doc(hidden)]
pub use settings::Mistakes;
pub use settings::Settings;
pub use share::Share;
pub use status::{Fleet, Phase, Shown, Status};
pub use thread::{Bell, Running};
pub use witness::Witness;
