//! An `async fn` as a Tidewire protocol: on every engine and on the simulated network, without a
//! runtime.
//!
//! A future that waits for its connection can only go on when something happens to the connection, and
//! a protocol's callbacks report exactly these events. So [`serve`] makes a service whose connections
//! are futures: each gets a [`Stream`], an [`AsyncRead`](futures_io::AsyncRead) and
//! [`AsyncWrite`](futures_io::AsyncWrite), with [timers](Stream::clock) by the loop's clock. With the
//! feature `hyper` a [`Stream`] also has the traits of `hyper::rt`, so that an unchanged hyper server
//! runs on our engines.
//!
//! ```
//! use std::time::Duration;
//! use futures_util::{AsyncReadExt, AsyncWriteExt};
//! use tidewire::sim::Sim;
//! use tidewire::Limits;
//! use tidewire_async::Stream;
//!
//! /// Sends back what it gets, and says goodbye.
//! async fn echo(mut stream: Stream) {
//!     let mut buffer = [0; 4096];
//!     while let Ok(n @ 1..) = stream.read(&mut buffer).await {
//!         if stream.write_all(&buffer[..n]).await.is_err() {
//!             return;
//!         }
//!     }
//!     stream.clock().sleep(Duration::from_secs(1)).await;
//!     let _ = stream.write_all(b"goodbye").await;
//! }
//!
//! let mut sim = Sim::new(1);
//! let addr = sim.serve(tidewire_async::serve(echo), Limits::default());
//! let peer = sim.plain(addr);
//! sim.send(peer, b"hello, ");
//! sim.finish(peer);
//! sim.run_for(Duration::from_secs(10));
//! assert_eq!(sim.received(peer), b"hello, goodbye");
//! ```
//!
//! # Contracts
//!
//! * The future runs on the connection's loop and nowhere else: it need not be [`Send`]. The future
//!   must not block.
//! * When the future returns, the connection is finished in order: written bytes are delivered.
//!   When the connection ends first, reading and writing fail, and the future is dropped.
//! * At most 64 KiB of input are read ahead of the future; beyond that the peer waits. Writing waits
//!   while the connection's output is full. What a future keeps besides is its own affair.
//! * A future may [dial](Stream::dial): the connection that is made lives on the same loop, and its stream belongs to the future. [`relay`]
//!   passes on between two streams.
//! * A stop finishes the connection, unless the future has asked for [`Stream::stopping`]: then it is
//!   told, and may go on until the stop's deadline.
//! * The future's waker works from any thread; wake-ups are never lost.
//! * A future that is ready again and again gives others their turn after 32 polls.

#![forbid(unsafe_code)]

mod clock;
mod dial;
#[cfg(feature = "hyper")]
mod hyper_rt;
mod lease;
mod relay;
mod service;
mod shared;
mod stream;
mod task;

pub use clock::{Clock, Sleep};
pub use dial::Dialling;
pub use relay::relay;
pub use service::{Serve, serve};
pub use stream::{Stopping, Stream};
pub use task::{Task, Woken};
