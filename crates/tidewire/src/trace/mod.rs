//! Shows what connections send and receive, in words and as pcap, for any service, on every engine and in
//! the simulator.
//!
//! [`Tracer`] is a [`Wrap`](crate::Wrap): put it around a service with [`Layered`](crate::Layered). Outside of TLS a tracer sees
//! records, inside of TLS it sees the plain bytes. [`Sim::words`](crate::sim::Sim::words) and
//! [`Sim::pcap`](crate::sim::Sim::pcap) show what the whole network of a simulation sees.
//!
//! ```
//! use std::time::Duration;
//! use tidewire::sim::{Conditions, Sim};
//! use tidewire::trace::Tracer;
//! use tidewire::{Layered, Limits};
//! # use std::io::Write;
//! # use std::sync::{Arc, Mutex};
//! # #[derive(Clone, Default)] struct Shared(Arc<Mutex<Vec<u8>>>);
//! # impl Write for Shared {
//! #   fn write(&mut self, b: &[u8]) -> std::io::Result<usize> { self.0.lock().unwrap().write(b) }
//! #   fn flush(&mut self) -> std::io::Result<()> { Ok(()) } }
//!
//! # let words = Shared::default();
//! let tracer = Tracer::named("echo").words(words.clone()); // or a file: std::fs::File::create("echo.txt")?
//! let echo = tidewire::on_input(|input, link| link.forward_all(input));
//! let mut sim = Sim::under(1, Conditions::calm());
//! let addr = sim.serve(Layered::new(tracer, echo), Limits::default());
//! let peer = sim.plain(addr);
//! sim.send(peer, b"hello");
//! sim.run_for(Duration::from_secs(1));
//! # let words = String::from_utf8(words.0.lock().unwrap().clone()).unwrap();
//! assert!(words.contains("client 0 -> echo: 5 bytes 'hello'"), "{words}");
//! assert!(words.contains("echo -> client 0: 5 bytes 'hello'"), "{words}");
//! ```

mod out;
pub(crate) mod pcap;
#[cfg(test)]
mod tests;
mod tracer;
pub(crate) mod words;

pub use tracer::{Traced, Tracer};
