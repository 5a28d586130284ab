//! TLS around any Tidewire service, server and client, on [rustls](https://docs.rs/rustls).
//!
//! rustls does no input or output of its own, and neither does a layer: so TLS is a layer, and runs
//! on every engine and on the simulated network. The inner service needs no change. The inner
//! service is asked to [accept](tidewire::Service::accept) a connection when the handshake is done.
//! In the peer's [identity](tidewire::Identity) it finds the server name that the client asked for,
//! the negotiated application protocol, and the verified certificates.
//!
//! ```
//! use std::time::Duration;
//! use tidewire::sim::Sim;
//! use tidewire::{Dial, Layered, Limits};
//! use tidewire_tls::{Certificate, Client, Roots, Server};
//! # use tidewire::*;
//! # struct Echo;
//! # struct Conn;
//! # impl Protocol for Conn { type Local = Vec<u8>; type Message = ();
//! #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
//! #     let n = i.len(); cx.link.forward(i, n); Next::More } }
//! # impl Service for Echo { type Conn = Conn; fn on_loop(&self, _: LoopHandle<()>) -> Vec<u8> { vec![] }
//! #   fn accept(&self, _: &Peer, _: &mut Vec<u8>) -> Result<Conn, Refusal> { Ok(Conn) } }
//! # struct Hello;
//! # impl Service for Hello { type Conn = Says; fn on_loop(&self, _: LoopHandle<()>) -> Vec<u8> { vec![] }
//! #   fn accept(&self, _: &Peer, _: &mut Vec<u8>) -> Result<Says, Refusal> { Ok(Says) } }
//! # struct Says;
//! # impl Protocol for Says { type Local = Vec<u8>; type Message = ();
//! #   fn opened(&mut self, cx: &mut Cx<'_, Self>) { cx.link.write(b"hello"); }
//! #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
//! #     cx.local.extend_from_slice(i.bytes()); i.consume(i.len()); Next::More } }
//! # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
//! # let (chain_pem, key_pem) = (made.cert.pem(), made.signing_key.serialize_pem());
//!
//! let certificate = Certificate::from_pem(chain_pem.as_bytes(), key_pem.as_bytes())?;
//! let server = Server::new(&certificate).alpn(["echo"]);
//! let roots = Roots::from_pem(chain_pem.as_bytes())?;
//! let client = Client::new(&roots).server_name("it.example")?.alpn(["echo"]);
//!
//! let mut sim = Sim::new(1);
//! let addr = sim.serve(Layered::new(server.build()?, Echo), Limits::default());
//! let at = sim.add_loop();
//! let client = sim.service(at, Layered::new(client.build()?, Hello), Limits::default());
//! sim.dial(client, Dial::to(addr));
//! sim.run_for(Duration::from_secs(5));
//! assert_eq!(sim.local(client), b"hello"); // what came back
//! # Ok::<(), tidewire_tls::TlsError>(())
//! ```
//!
//! # What is bounded, and how
//!
//! * The **handshake** has a deadline, 10 s unless set ([`Server::deadline`], [`Client::deadline`]).
//! * **Received plaintext** waits in rustls (16 KiB) only while the inner protocol wants no more;
//!   later records stay in the kernel, and the peer stops sending.
//! * **Output** waits in the protocol's own queue, within its marks; at most 64 KiB of it are
//!   encrypted ahead of what the connection takes.
//! * An **idle connection** takes 9 KB of resident memory, which is rustls's state and buffers (8.8 measured from 400 to
//!   3,600 connections of `serve echo` with rustls 0.23.46, TLS 1.2 and 1.3).
//! * **Ends** are the peer's word: a stream that ends without TLS's farewell is cut, because an
//!   attacker may have cut it short; a farewell is half-close, and is passed on both ways.
//!
//! TLS 1.2 and 1.3 with rustls's defaults on *ring*. Resumption works by tickets and, with clients, by
//! a memory of 256 sessions. Early data is off: it can be replayed.
//!
//! Certificates are checked against the machine's clock, also in simulations.

#![forbid(unsafe_code)]

mod blocking;
mod boundary;
mod certificates;
mod client;
mod error;
mod records;
mod ring;
mod server;
mod words;

pub use blocking::TlsStream;
pub use certificates::{Certificate, Certificates, Roots};
pub use client::{Client, TlsClient};
pub use error::TlsError;
pub use records::{CUT, Records};
pub use server::{Server, TlsServer};

pub use rustls;
