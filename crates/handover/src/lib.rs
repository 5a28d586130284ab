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
//! Instead of any message each side may send `refuse` with a reason. Every message is one packet of
//! a Unix socket (`SOCK_SEQPACKET`): a JSON object `{"handover": 1, ...}` of at most 64 KiB. The
//! number is the version of this protocol; a process that does not know the version refuses, in
//! words that any version understands. Sockets travel with the packets that describe them
//! (`SCM_RIGHTS`).
//!
//! The socket is a file of mode 0600, not an abstract name: a file has an owner, and may be put
//! where only a service and its successor reach it. A peer must be of the same user, or root
//! (`SO_PEERCRED`), on both sides.
//!
//! # In five minutes
//!
//! ```
//! use std::net::TcpListener;
//! use std::thread;
//! use std::time::Duration;
//!
//! use tidewire_handover::{Claim, Control, Handed, Hello, Offer, Word};
//!
//! # let path = std::env::temp_dir().join(format!("tidewire-handover-example-{}.sock", std::process::id()));
//! // The running server listens at `path`, beside its service.
//! let control = Control::listen(&path)?;
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let at = listener.local_addr()?;
//!
//! // Its successor, another process, asks there.
//! let successor = thread::spawn(move || {
//!     let hello = Hello { version: "2".into(), pid: 2, forget: false, takes_connections: false };
//!     let (claim, _offer, sockets) = Claim::ask(&path, hello).expect("an offer");
//!     let listener = TcpListener::from(sockets[0].sockets[0].try_clone().expect("a socket"));
//!     claim.serving().expect("the running server ends");
//!     listener.local_addr().expect("an address")
//! });
//!
//! let soon = || thread::sleep(Duration::from_millis(1)); // a server waits in its loop, or in poll()
//! let mut session = loop {
//!     match control.accept()? {
//!         Some(session) => break session,
//!         None => soon(),
//!     }
//! };
//! loop {
//!     match session.hear()? {
//!         Some(Word::Hello(_)) => {
//!             let offer = Offer {
//!                 version: "1".into(),
//!                 pid: 1,
//!                 logs: Vec::new(),
//!                 stores: Vec::new(),
//!                 release_ms: 0,
//!                 packets: 0,
//!             };
//!             let all = [Handed {
//!                 service: "echo".into(),
//!                 at: at.into(),
//!                 is_given: false,
//!                 owns_file: false,
//!                 sockets: vec![listener.try_clone()?.into()],
//!             }];
//!             session.offer(offer, &all)?;
//!         }
//!         // It accepts connections by now: this server ends. No connection was refused.
//!         Some(Word::Serving) => break session.go(false)?,
//!         _ => soon(),
//!     }
//! }
//! assert_eq!(successor.join().expect("it serves"), at);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
