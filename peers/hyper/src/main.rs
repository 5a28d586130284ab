//! hyper on tokio's single-threaded runtime, answering every request as `tidewire serve http` answers
//! `/`. The address is the first argument; with a certificate and its key behind it, it speaks TLS.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::LocalSet;

async fn answer(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"Hello, World!")));
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

async fn serve(stream: impl Read + Write + Unpin) {
    let _ = http1::Builder::new()
        .pipeline_flush(true)
        .serve_connection(stream, service_fn(answer))
        .await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let addr = args.first().map_or("127.0.0.1:8081", String::as_str);
    let tls = match &args[1.min(args.len())..] {
        [] => None,
        [certificate, key] => Some(peer_hyper::acceptor(certificate, key)?),
        _ => {
            return Err(std::io::Error::other(
                "usage: peer-hyper ADDR [CERTIFICATE KEY]",
            ));
        }
    };
    let listener = TcpListener::bind(addr).await?;
    println!("listening service=http addr={}", listener.local_addr()?);
    let connections = LocalSet::new();
    let accepting = connections.run_until(async {
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            match tls.clone() {
                None => drop(tokio::task::spawn_local(serve(TokioIo::new(stream)))),
                Some(tls) => drop(tokio::task::spawn_local(async move {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(TokioIo::new(stream)).await;
                    }
                })),
            }
        }
    });
    accepting.await
}
