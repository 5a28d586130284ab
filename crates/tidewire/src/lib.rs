//! A toolkit for TCP servers that take floods of small messages.
//!
//! Write a protocol once as a plain state machine, a [`Protocol`]: bytes in, bytes out. Run it,
//! unchanged, on a thread per connection, on epoll reactors or on io_uring, chosen when the program
//! starts; test it on a simulated network.
//!
//! # The smallest server
//!
//! ```
//! use std::io::{Read, Write};
//! use std::time::Duration;
//!
//! // Sends back what it gets; a peer that does not read is not read from.
//! let echo = tidewire::on_input(|input, link| link.forward_all(input));
//! let running = tidewire::Builder::new().serve("127.0.0.1:0", echo).start()?;
//!
//! let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
//! client.write_all(b"hello")?;
//! let mut back = [0; 5];
//! client.read_exact(&mut back)?;
//! assert_eq!(&back, b"hello");
//!
//! running.stop(Duration::from_secs(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A protocol with a state
//!
//! ```
//! use tidewire::codec::Lines;
//! use tidewire::{Cx, Input, Next, Protocol, service_fn};
//!
//! /// One connection: adds up the numbers that it is sent, a line each.
//! struct Sum {
//!     lines: Lines,
//!     sum: i64,
//! }
//!
//! impl Protocol for Sum {
//!     type Local = (); // nothing that connections of a loop share
//!     type Message = (); // nothing that others post to it
//!
//!     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
//!         while !cx.link.full() {
//!             let line = match self.lines.take(input) {
//!                 Ok(Some(line)) => line,
//!                 Ok(None) => return Next::More,
//!                 Err(_) => {
//!                     cx.link.finish_because("a line too long");
//!                     return Next::More;
//!                 }
//!             };
//!             let number = std::str::from_utf8(line).ok().and_then(|text| text.parse::<i64>().ok());
//!             match number.and_then(|n| self.sum.checked_add(n)) {
//!                 Some(sum) => {
//!                     self.sum = sum;
//!                     cx.link.write(format!("{sum}\n").as_bytes());
//!                 }
//!                 None => cx.link.write(b"not a number\n"),
//!             }
//!         }
//!         Next::AfterDrain // the peer does not read: stop until it does
//!     }
//! }
//!
//! let sums = service_fn(|_peer| Sum { lines: Lines::new(80), sum: 0 });
//! // No socket is needed to try it: here the input comes in pieces of three bytes.
//! let got = tidewire::sim::chunking::collect(sums, b"1\n20\nx\n300\n", &[3; 4], true);
//! assert_eq!(got.output, b"1\n21\nnot a number\n321\n");
//! ```
//!
//! # Where to look next
//!
//! * [`Protocol`] and [`Link`]: the callbacks of a connection, and its requests to the loop.
//! * [`Service`], [`Handle`], [`LoopHandle`]: shared state, and reaching across.
//! * [`Builder`] and [`Limits`]: engines, loops, listeners, and what everything may use.

pub mod admission;
mod build;
pub mod codec;
mod contained;
mod driver;
pub mod fault;
mod kernel;
mod layer;
mod memory;
mod mistakes;
mod protocol;
pub mod proxy;
mod reach;
mod reactor;
pub mod relay;
pub mod sim;
pub mod trace;
mod vocabulary;

pub use build::builder::{Builder, Listening, Placement, Running, ServiceId, StartError, Stopper};
pub use build::drain::{Drain, Left, Phase, Progress};
pub use build::ending::{LoopFailed, Waiter};
pub use build::engine::{Engine, EngineChoice};
pub use build::inbound::{Inbound, NotInbound, Unserved};
/// The crate of that name, in the version that this one is built with: what [`Link::write_shared`] takes is its `Bytes`.
pub use bytes;

pub use build::limits::{CHUNK, Limits};
pub use build::listen::{Listen, TcpOptions};
pub use build::observer::Observer;
pub use build::socket_file::SocketFile;
pub use build::watch::Stall;
pub use layer::{Around, Inner, Layer, Layered, LayeredConn, Wrap};
pub use memory::buffer::Chunk;
pub use protocol::connection::{Cx, Protocol, Turn};
pub use protocol::input::Input;
pub use protocol::link::Link;
pub use protocol::service::Service;
pub use protocol::service_fn::{OnInput, OnInputConn, ServiceFn, on_input, service_fn};
pub use reach::alarm::{Alarm, Bell};
pub use reach::channel;
pub use reach::home::TELLS_MAX;
pub use reach::mailbox::{Handle, LoopHandle, NoRoom, POSTS_MAX, Permit, RESERVED_MAX};
pub use reach::names::system::SystemResolver;
pub use reach::names::{Lookup, Resolver};
pub use reach::woken::Conns;
pub use reactor::activity::{LAG_BOUNDS, Lag};
pub use reactor::core::LOOK_AHEAD_MAX;
pub use reactor::counters::{Counters, REASONS_MAX, Reasons};
pub use reactor::life::LoopView;
pub use reactor::throttle::Throttle;
pub use vocabulary::closed::{Closed, Refusal};
pub use vocabulary::conn_id::ConnId;
pub use vocabulary::conn_name::ConnName;
pub use vocabulary::dial::{Dial, NotDialled};
pub use vocabulary::endpoint::{Endpoint, EndpointError};
pub use vocabulary::network::{Network, NetworkError};
pub use vocabulary::next::Next;
pub use vocabulary::peer::{Identity, Origin, Peer, Process};
pub use vocabulary::target::Target;
pub use vocabulary::time::Instant;
