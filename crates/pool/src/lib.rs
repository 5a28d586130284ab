//! CPU-heavy work for [Tidewire](tidewire) protocols, done beside the loops.
//!
//! A handler that computes for milliseconds stalls every connection of its loop. A [`Pool`] takes the
//! computation as a closure and posts what comes of it to the connection that asked:
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
//! and one for the answer in the mailbox of the connection's loop. Where either is missing it says
//! [`Refused`], and the protocol decides: a refusal in its own words, or, if work of this connection is
//! under way, leaving its input where it is ([`Link::pause`](tidewire::Link::pause)) until an answer
//! comes. What was reserved is run and answered without fail.
//!
//! # Order
//!
//! Answers come in the order in which work is done. A protocol that must answer in the order of its
//! requests keeps a [`Lane`]: a number for each piece of work, results given out in the order of the
//! numbers, a bound of its own so that one connection cannot fill the pool, and no work for a connection
//! that has gone.
//!
//! # Which threads
//!
//! The threads are [rayon-core](https://docs.rs/rayon-core)'s: a work-stealing pool that is kept
//! well, whose idle threads sleep. It knows no bound and gives no answers; that is what this crate
//! adds. The threads are
//! [nicer](Settings::nice) than the loops, so that where both want the same core the loops have it.

#![forbid(unsafe_code)]

mod counters;
mod lane;
mod pool;
mod work;

pub use counters::Counters;
pub use lane::Lane;
pub use pool::{Place, Pool, Refused, Settings};
pub use work::NotDone;
