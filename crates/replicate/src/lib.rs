//! What the local log has committed is carried on to a home of many machines, in order, and a second
//! watermark says how far: [`Progress::replicated`](tidewire_log::Progress::replicated).
//!
//! Three ideas. A [`Home`] takes whole [transactions](Transaction), in which the records and the marks that say
//! how far they go cannot disagree. Nothing about a transaction is ever guessed: when an answer is missing the home is
//! opened anew, which ends whatever was under way, and what the marks say then is where it goes on. And the
//! [`Replicator`] is a state machine that is driven by steps, like the log's writer: a [thread](Running) drives it in
//! production, a simulation in the tests.
//!
//! A [`Node`] is a member of a fleet, whose producers are spread over partitions: a set of replicators, one for each partition
//! that a [`Membership`] gives to it and that it has [claimed](Hold) at home.
//!
//! The crate knows no particular home; `docs/howto/replicate.md` says what is promised.
#![forbid(unsafe_code)]

mod currency;
mod cursors;
mod cut;
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

pub use currency::{Currency, SILENCE};
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
