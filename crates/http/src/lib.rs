//! HTTP/1.1 as a Tidewire protocol: strict parsing, bounded memory, one behaviour on every engine,
//! in the simulator and behind TLS.
//!
//! ```
//! use std::time::Duration;
//! use tidewire_http::{Http, Router};
//!
//! let router = Router::new()
//!     .get("/", |_, response| response.text("Hello, World!"))
//!     .get("/greet/{name}", |request, response| {
//!         let name = request.param("name").unwrap_or("you");
//!         response.text(&format!("Hello, {name}!"))
//!     })
//!     .post("/length", |request, response| {
//!         response.text(&request.body().len().to_string())
//!     });
//! let running = tidewire::Builder::new().serve("127.0.0.1:0", Http::new(router)).start()?;
//! # use std::io::{Read, Write};
//! # let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
//! # client.write_all(b"GET /greet/world HTTP/1.0\r\n\r\n")?;
//! # let mut reply = String::new();
//! # client.read_to_string(&mut reply)?;
//! # assert!(reply.ends_with("\r\n\r\nHello, world!"), "{reply}");
//! running.stop(Duration::from_secs(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a handler can do
//!
//! * Answer at once: [`Response`]. The request is borrowed from the input, the reply written into the
//!   output; nothing is allocated for either.
//! * Stream: an [`Exchange`] gets the request's body and writes the reply's in pieces, with
//!   backpressure both ways.
//! * Answer [later](Response::later), from another thread: [`Later`].
//!
//! # What it promises
//!
//! * Replies come in the order of requests, one for each. A connection works on one request at a time;
//!   further requests that a client pipelines wait as unconsumed input.
//! * A request that two servers could understand differently is refused, and its connection closed:
//!   `docs/reference/http.md` has the list.
//! * Every size and time of a request has a limit: [`Settings`]. Connections without a request under
//!   way are closed when they are [idle](tidewire::Limits::idle).
//! * A stop lets requests under way end, with `connection: close` on their reply.

#![forbid(unsafe_code)]

mod body;
mod conn;
mod counters;
mod data;
pub mod demo;
mod exchange;
mod fault;
mod fields;
mod framing;
mod grammar;
mod handler;
mod head;
mod headers;
mod kind;
mod later;
mod local;
mod method;
mod pace;
mod reply;
mod request;
mod response;
mod route;
mod router;
mod service;
mod settings;
mod share;
mod status;
mod target;
pub mod testing;
mod wire;

pub use conn::HttpConn;
pub use counters::Counters;
pub use data::Data;
pub use exchange::Exchange;
pub use handler::{Body, Handler};
pub use headers::Headers;
pub use later::{Answer, Later, Message};
pub use local::HttpLocal;
pub use method::Method;
pub use reply::{Length, Reply};
pub use request::Request;
pub use response::{Done, Response};
pub use router::Router;
pub use service::Http;
pub use settings::Settings;
