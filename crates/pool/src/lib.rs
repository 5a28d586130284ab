//! CPU-heavy work for [Tidewire](tidewire) protocols, done beside the loops.
//!
//! A handler that computes for milliseconds stalls every connection of its loop. A [`Pool`] takes the
//! computation as a closure and posts its result to the connection:
//!
//! ```
//! use std::time::Duration;
//! use tidewire::sim::Sim;
//! use tidewire::{Cx, Input, Limits, Next, Protocol, service_fn};
//! use tidewire_pool::{NotDone, Pool};
//!
//! /// Answers each byte with a sum that takes a while.
//! struct Sums(Pool);
//!
//! impl Protocol for Sums {
//!     type Local = ();
//!     type Message = Result<u64, NotDone>;
//!
//!     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
//!         for &n in input.bytes() {
//!             match self.0.reserve(&cx.handle()) {
//!                 // Nothing can refuse the answer: its place is taken already.
//!                 Ok(place) => place.run(move || (0..=u64::from(n)).sum(), |sum| sum),
//!                 Err(_) => cx.link.write(b"busy\n"),
//!             }
//!         }
//!         input.consume(input.len());
//!         Next::More
//!     }
//!
//!     fn posted(&mut self, sum: Result<u64, NotDone>, cx: &mut Cx<'_, Self>) {
//!         match sum {
//!             Ok(sum) => cx.link.write(format!("{sum}\n").as_bytes()),
//!             // It panicked, or the pool was stopped.
//!             Err(_) => cx.link.write(b"that went wrong\n"),
//!         }
//!     }
//! }
//!
//! // In the simulator the work runs at once, or by hand; a program has `Pool::new`.
//! let pool = Pool::inline();
//! let mut sim = Sim::new(1);
//! let addr = sim.serve(service_fn(move |_| Sums(pool.clone())), Limits::default());
//! let peer = sim.plain(addr);
//! sim.send(peer, &[10, 100]);
//! sim.run_for(Duration::from_secs(1));
//! assert_eq!(sim.received(peer), b"55\n5050\n");
//! ```
//!
//! # What is bounded, and what happens at the bound
//!
//! [`Pool::reserve`] takes two places before any work exists: one of [`Settings::places`] in the pool,
//! and one for the answer in the mailbox of the connection's loop. If either place is missing, the call
//! returns [`Refused`], and the protocol decides: it refuses the request in its own words, or, if work
//! of this connection is under way, it leaves its input ([`Link::pause`](tidewire::Link::pause)) until
//! an answer comes. Reserved work is always run and answered.
//!
//! # Order
//!
//! Answers come in the order in which work is completed. A protocol that must answer in the order of its
//! requests keeps a [`Lane`]: it numbers the work, gives out results in the order of the numbers, bounds
//! the work of one connection so that none fills the pool, and does no work for a closed connection.
//!
//! # Which threads
//!
//! The threads are [rayon-core](https://docs.rs/rayon-core)'s: a well-kept work-stealing pool whose
//! idle threads sleep. rayon-core has no bound and gives no answers; this crate adds both. The
//! threads have a [lower priority](Settings::nice) than the loops, so that a loop gets a core that
//! both want.

#![forbid(unsafe_code)]

mod counters;
mod lane;
mod pool;
mod work;

pub use counters::Counters;
pub use lane::Lane;
pub use pool::{Place, Pool, Refused, Settings};
pub use work::NotDone;
