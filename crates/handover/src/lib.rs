//! Handing listening sockets to a successor, so that no connection attempt is refused meanwhile.
//!
//! The one idea: a listening socket is one open file description, in whichever process. A running
//! server keeps a
//! [`Control`] socket; a successor [asks](Claim::ask) there, is given duplicates of all listening sockets, and says
//! when it serves. Until it has said so the running server can go on as if nothing had been.
//!
//! # The conversation
//!
//! | the successor says | the running server answers |
//! |---|---|
//! | `hello`: its version of this, its process | `offer`: which logs it holds, how long it may take to let go; then the sockets, each with its service and place |
//! | `take`, only if it needs a log that the running server holds | nothing accepts any more; `released` once that log is committed and unlocked |
//! | `serving`: it accepts | `go`: it ends; with `connections`, if the successor's `hello` said that it takes them, packets of connections follow that were accepted and of which nothing was read |
//!
//! Instead of any of it each side may say `refuse` and why. Every message is one packet of a Unix
//! socket (`SOCK_SEQPACKET`): a JSON object `{"handover": 1, ...}` of at most 64 KiB. The number is
//! the version of all this; a process that does not know it refuses, in words that any version
//! understands. Sockets travel with the packets that describe them (`SCM_RIGHTS`).
//!
//! The socket is a file of mode 0600, not an abstract name: a file has an owner, and may be put
//! where only a service and its successor reach it. A peer must be of the same user, or root
//! (`SO_PEERCRED`), on both sides.
#![forbid(unsafe_code)]

mod claim;
mod control;
mod handed;
mod message;
mod session;
mod wire;

pub use claim::{Claim, ClaimError, Followed, Following, Released};
pub use control::Control;
pub use handed::Handed;
pub use message::{Hello, Offer, VERSION};
pub use session::{CONNECTIONS_MAX, Session, Word};
pub use wire::Broken;
