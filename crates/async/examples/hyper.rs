//! An unchanged hyper server on Tidewire's engines.
//!
//! ```text
//! cargo run -p tidewire-async --features hyper --example hyper
//! curl http://127.0.0.1:8080/
//! ```
//!
//! An address to listen at may be given instead of that one.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire::{Builder, Listen};
use tidewire_async::Stream;

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = format!("{} {} on Tidewire\n", request.method(), request.uri());
    Ok(Response::new(Full::from(text)))
}

async fn http(stream: Stream) {
    let stopping = stream.stopping();
    let connection = http1::Builder::new()
        .timer(stream.clock())
        .header_read_timeout(Duration::from_secs(10))
        .serve_connection(stream, service_fn(hello));
    let mut connection = pin!(connection);
    if let Either::Right(_) = select(connection.as_mut(), stopping).await {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = Builder::new();
    let service = builder.service(tidewire_async::serve(http));
    let at = std::env::args().nth(1);
    let at = at.unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    builder.listen(service, Listen::at(at.as_str()));
    let running = builder.start()?;
    println!(
        "listening on {} by {}",
        running.addrs()[0],
        running.engine()
    );

    Signals::new([SIGINT, SIGTERM])?.forever().next();
    running.stop(Duration::from_secs(10));
    Ok(())
}
