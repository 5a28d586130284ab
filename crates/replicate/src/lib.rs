//! What the local log has committed is carried on to a home of many machines, in order, and a second
//! watermark says how far: [`Progress::replicated`](tidewire_log::Progress::replicated).
//!
//! Three ideas. A [`Home`] takes whole [transactions](Transaction), in which the records and the marks that say
//! how far they go cannot disagree. Nothing about a transaction is ever guessed: when an answer is missing the home is
//! opened anew, which ends whatever was under way, and what the marks say then is where it goes on. And the
//! [`Replicator`] is a state machine that is driven by steps, like the log's writer: a [thread](Running) drives it in
//! production, a simulation in the tests.
//!
//! The crate knows no particular home; `docs/replication.md` says what is promised.
#![forbid(unsafe_code)]

mod cut;
mod filling;
mod home;
mod lanes;
mod replicator;
mod settings;
mod status;
mod thread;

pub use home::{Answer, Ask, Held, Home, Owner, Place, Record, Transaction};
pub use replicator::{CURSOR, Replicator};
#[doc(hidden)]
pub use settings::Mistakes;
pub use settings::Settings;
pub use status::{Phase, Shown, Status};
pub use thread::{Bell, Running};
