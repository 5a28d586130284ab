//! A toolkit for TCP servers that take floods of small messages.
//!
//! Write a protocol once as a plain state machine, a [`Protocol`]: bytes in, bytes out. Run it,
//! unchanged, on a thread per connection, on epoll reactors or on io_uring, chosen when the program
//! starts; test it on a simulated network.
//!
//! # The smallest server
//!
//! ```
//! use std::time::Duration;
//! use tidewire::{Builder, Cx, Input, Listen, LoopHandle, Next, Peer, Protocol, Refusal, Service};
//!
//! /// One connection: sends back what it gets.
//! struct Echo;
//!
//! impl Protocol for Echo {
//!     type Local = ();
//!     type Message = ();
//!
//!     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
//!         if cx.link.full() {
//!             return Next::AfterDrain; // the peer is slow: stop reading until it catches up
//!         }
//!         let n = input.len();
//!         cx.link.forward(input, n);
//!         Next::More
//!     }
//! }
//!
//! /// Makes connections.
//! struct EchoService;
//!
//! impl Service for EchoService {
//!     type Conn = Echo;
//!     fn on_loop(&self, _: LoopHandle<()>) {}
//!     fn accept(&self, _: &Peer, _: &mut ()) -> Result<Echo, Refusal> {
//!         Ok(Echo)
//!     }
//! }
//!
//! let mut builder = Builder::new();
//! let echo = builder.service(EchoService);
//! builder.listen(echo, Listen::at("127.0.0.1:0"));
//! let running = builder.start()?;
//!
//! use std::io::{Read, Write};
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
//! # Where to look next
//!
//! * [`Protocol`] and [`Link`]: what a connection is told, and what it may ask for.
//! * [`Service`], [`Handle`], [`LoopHandle`]: shared state, and reaching across.
//! * [`Builder`] and [`Limits`]: engines, loops, listeners, and what everything may use.

mod buffer;
mod closed;
mod core;
mod counters;
mod dial;
mod drive;
mod endpoint;
mod engine;
mod env;
mod home;
mod hosted;
mod input;
mod layer;
mod limits;
mod link;
mod listen;
mod mailbox;
mod output;
mod pages;
mod peer;
mod protocol;
mod random;
mod runtime;
pub mod sim;
mod socket_file;
mod state;
mod stop;
mod sync;
mod sys;
mod throttle;
mod time;
mod turn;
mod waker;
mod wheel;
mod woken;

pub use buffer::Chunk;
pub use closed::{Closed, Refusal};
pub use counters::{Counters, REASONS_MAX, Reasons};
pub use dial::Dial;
pub use endpoint::{Endpoint, EndpointError};
pub use engine::{Engine, EngineChoice};
pub use home::TELLS_MAX;
pub use input::Input;
pub use layer::Inner;
pub use limits::{CHUNK, Limits};
pub use link::Link;
pub use listen::{Listen, TcpOptions};
pub use mailbox::{Full, Handle, LoopHandle, POSTS_MAX, Permit, RESERVED_MAX};
pub use peer::{Identity, Origin, Peer, Process};
pub use protocol::{Cx, Next, Protocol, Service};
pub use runtime::{Builder, Listening, Placement, Running, ServiceId, StartError, Stopper};
pub use state::ConnId;
pub use throttle::Throttle;
pub use time::Instant;
pub use turn::Turn;
pub use woken::Conns;
