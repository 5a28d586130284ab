//! An unchanged hyper, server and client, on every engine and in the simulator.
#![allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]

#[path = "../../tidewire/tests/shared/every_engine.rs"]
mod every_engine;
#[path = "../../tidewire/tests/shared/example.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod example;
#[path = "../../log/tests/simulated/twice.rs"]
mod twice;

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::pin::pin;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{Either, join, select};
use futures_util::{AsyncReadExt, AsyncWriteExt};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Request, Response};
use tidewire::sim::{Conditions, Outcome, Pair, Sim, seeds};
use tidewire::{Builder, Closed, Limits};
use tidewire_async::{Stream, serve};

/// Sends the body back, behind the method and the path.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let head = format!("{} {}\n", request.method(), request.uri());
    let body = request.into_body().collect().await?.to_bytes();
    Ok(Response::new(Full::from([head.as_bytes(), &body].concat())))
}

async fn http(stream: Stream) {
    let stopping = stream.stopping();
    let connection = server::Builder::new()
        .timer(stream.clock())
        .header_read_timeout(Duration::from_secs(10))
        .serve_connection(stream, service_fn(answer));
    let mut connection = pin!(connection);
    if let Either::Right(_) = select(connection.as_mut(), stopping).await {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

fn on_every_engine(f: impl Fn(SocketAddr)) {
    let build = |builder: &mut Builder| {
        builder.serve("127.0.0.1:0", serve(http));
    };
    every_engine::on_every_engine(build, |running| {
        f(running.addrs()[0].tcp().unwrap());
        let counters = running.stop(Duration::from_secs(10));
        assert_eq!(counters.closed_for(Closed::StopDeadline), 0, "{counters}");
    });
}

#[test]
fn the_example_serves_and_stops_on_a_signal() {
    let Some(example) = example::Serving::start("hyper", &["127.0.0.1:0"]) else {
        return;
    };
    let at = example.at.split(' ').next().unwrap();
    let mut socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(example::PATIENCE)).unwrap();
    let request = "GET /here HTTP/1.1\r\nhost: it\r\nconnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("GET /here on Tidewire\n"), "{answer}");
    example.stop().unwrap();
}

/// Sends back what it reads.
async fn echo(mut stream: Stream) {
    let mut buffer = [0; 700];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

/// A turn of a loop may hear of a request and of the end behind it at once.
#[test]
fn what_comes_with_the_end_is_answered_by_a_future() {
    let build = |builder: &mut Builder| {
        builder.serve("127.0.0.1:0", serve(echo));
    };
    every_engine::on_every_engine(build, |running| {
        let addr = running.addrs()[0].tcp().unwrap();
        for _ in 0..30 {
            let mut client = TcpStream::connect(addr).unwrap();
            client.set_read_timeout(Some(example::PATIENCE)).unwrap();
            client.write_all(b"hello").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut back = Vec::new();
            client.read_to_end(&mut back).unwrap();
            assert_eq!(back, b"hello");
        }
        running.stop(Duration::from_secs(10));
    });
}

#[test]
fn requests_over_plain_sockets() {
    on_every_engine(|addr| {
        let mut client = TcpStream::connect(addr).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        // Kept alive, pipelined, chunked, and the last one closes.
        let requests = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n\
             POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello\
             POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
             GET /d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        client.write_all(requests.as_bytes()).unwrap();
        let mut answers = String::new();
        client.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 4, "{answers}");
        for part in ["GET /a\n", "POST /b\nhello", "POST /c\nabc", "GET /d\n"] {
            assert!(answers.contains(part), "{part} in {answers}");
        }
        let mut broken = TcpStream::connect(addr).unwrap();
        broken.write_all(b"nonsense\r\n\r\n").unwrap();
        broken.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        broken.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        // A connection between two requests at the stop does not hold it up.
        let mut idle = TcpStream::connect(addr).unwrap();
        idle.write_all(b"GET /e HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        idle.read_exact(&mut [0; 12]).unwrap();
        std::thread::spawn(move || idle.read_to_end(&mut Vec::new()));
    });
}

#[test]
fn curl_is_served() {
    if Command::new("curl").arg("--version").output().is_err() {
        return eprintln!("skipped: there is no curl here");
    }
    let file = std::env::temp_dir().join(format!("tidewire-async-{}", std::process::id()));
    let body = vec![b'x'; 3 << 20];
    std::fs::write(&file, &body).unwrap();
    on_every_engine(|addr| {
        let url = |path: &str| format!("http://{addr}/{path}");
        let got = Command::new("curl")
            .args(["-sS", "--noproxy", "*", "--max-time", "60", "--data-binary"])
            .arg(format!("@{}", file.display()))
            .args([url("one"), url("two")])
            .output()
            .unwrap();
        assert!(
            got.status.success(),
            "{}",
            String::from_utf8_lossy(&got.stderr)
        );
        assert_eq!(got.stdout.len(), 2 * (body.len() + "POST /one\n".len()));
    });
    std::fs::remove_file(file).unwrap();
}

/// hyper against hyper, on every kind of network.
#[test]
fn hyper_talks_to_hyper_in_the_simulator() {
    for seed in seeds(25) {
        let answers = Arc::<Mutex<Vec<Bytes>>>::default();
        let theirs = answers.clone();
        let client = serve(move |stream: Stream| {
            let answers = theirs.clone();
            async move {
                let handshake = hyper::client::conn::http1::handshake(stream).await;
                let (mut sender, connection) = handshake.unwrap();
                let requests = async move {
                    for n in 0..5usize {
                        let body = Full::<Bytes>::from(vec![b'a' + n as u8; n * 3000]);
                        let request = Request::post(format!("/{n}"))
                            .header("host", "x")
                            .body(body)
                            .unwrap();
                        let answer = sender.send_request(request).await.unwrap();
                        let body = answer.into_body().collect().await.unwrap();
                        answers.lock().unwrap().push(body.to_bytes());
                    }
                };
                let (ended, ()) = join(connection, requests).await;
                ended.unwrap();
            }
        });
        let limits = || Limits {
            idle: None,
            linger: Duration::from_secs(1000),
            ..Limits::default()
        };
        // Slow networks would meet hyper's deadline for headers.
        let server = serve(|stream: Stream| async {
            let hyper = server::Builder::new();
            let _ = hyper.serve_connection(stream, service_fn(answer)).await;
        });
        let mut pair = Pair::under(
            seed,
            Conditions::from_seed(seed),
            (server, limits()),
            (client, limits()),
        );
        assert_eq!(pair.run(Duration::from_secs(3600)), Outcome::Idle);
        let answers = answers.lock().unwrap();
        assert_eq!(answers.len(), 5, "seed {seed}");
        for (n, answer) in answers.iter().enumerate() {
            let want = [
                format!("POST /{n}\n").as_bytes(),
                &vec![b'a' + n as u8; n * 3000],
            ]
            .concat();
            assert!(*answer == want, "seed {seed}, answer {n}");
        }
    }
}

/// hyper's own deadline, by virtual time.
#[test]
fn hypers_timers_are_the_loops() {
    async fn impatient(stream: Stream) {
        let hello = |_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hi"))) };
        let ended = server::Builder::new()
            .timer(stream.clock())
            .header_read_timeout(Duration::from_secs(7))
            .serve_connection(stream, service_fn(hello))
            .await;
        assert!(ended.unwrap_err().is_timeout());
    }
    let mut sim = Sim::under(1, Conditions::calm());
    let at = sim.add_loop();
    let service = sim.service(at, serve(impatient), Limits::default());
    let addr = sim.listen(service);
    let peer = sim.plain(addr);
    sim.send(peer, b"GET / HT");
    sim.run_for(Duration::from_secs(6));
    assert_eq!(sim.counters(at).open, 1);
    sim.run_for(Duration::from_secs(2));
    sim.close(peer, false);
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.counters(at).open, 0);
    assert_eq!(sim.counters(at).closed_for(Closed::Panicked), 0);
}

/// Equal runs, but for the dates that hyper puts into answers.
#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let test = "hyper_talks_to_hyper_in_the_simulator";
    (0..4).for_each(|seed| twice::says_the_same(test, seed, "sizes: "));
}
