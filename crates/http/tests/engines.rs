//! Over real sockets, on every engine, bare and behind TLS.
#![allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidewire::{Builder, Closed, EngineChoice, Layered, Listen, Running, StartError};
use tidewire_http::demo::Burns;
use tidewire_http::testing::{Got, replies};
use tidewire_http::{Answer, Http, Later, Router, Settings, demo};
use tidewire_pool::Pool;
use tidewire_tls::{Certificate, Server, rustls};

/// Longest wait for anything before a test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that a kernel takes at once of a server, and does not pass on to a client that reads none of them.
const LONG: usize = 400_000;

const ENGINES: [EngineChoice; 3] = [
    EngineChoice::Threads,
    EngineChoice::Epoll,
    EngineChoice::Uring,
];

fn app() -> Http<Router> {
    let settings = Settings {
        head_timeout: Duration::from_millis(300),
        ..Settings::default()
    };
    let pool = Pool::new(&tidewire_pool::Settings::default()).unwrap();
    let router = demo::router(pool, Burns::ForTrusted)
        .post("/", |request, response| response.body(request.body()))
        .get("/long", |_, response| response.body(&[b'l'; LONG]))
        .get("/later", |_, response| {
            response.later(|later| {
                std::thread::spawn(move || later.send(Answer::new(200).text("later")));
            })
        });
    Http::with(settings, router)
}

/// Runs `test` on every engine that works here.
fn on_every_engine(test: impl Fn(Running, Http<Router>)) {
    for engine in ENGINES {
        let app = app();
        let mut builder = Builder::new();
        builder.engine(engine).loops(2);
        let id = builder.service_with(app.clone(), app.limits());
        builder.listen(id, Listen::at("127.0.0.1:0"));
        if let Some(running) = start(&mut builder) {
            test(running, app);
        }
    }
}

fn start(builder: &mut Builder) -> Option<Running> {
    match builder.start() {
        Ok(running) => Some(running),
        Err(StartError::Engine { engine, reason }) => {
            println!("skipped: the {engine} engine does not work here: {reason}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn addr(running: &Running) -> SocketAddr {
    running.addrs()[0].tcp().unwrap()
}

/// All replies to `input`, whose last request closes the connection.
fn ask(addr: SocketAddr, input: &[u8]) -> Vec<Got> {
    let mut stream = connect(addr);
    let mut sender = stream.try_clone().unwrap();
    let input = input.to_vec();
    let sending = std::thread::spawn(move || sender.write_all(&input));
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    sending.join().unwrap().unwrap();
    replies(&back, &[]).unwrap()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn last(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    on_every_engine(|running, app| {
        let mut input = String::new();
        for n in 0..300 {
            input += &get(&format!("/bytes/{n}"));
            if n % 50 == 0 {
                input += &(get("/later") + &get("/burn?us=10&on=pool"));
            }
        }
        input += &last("/bytes/300");
        let all = ask(addr(&running), input.as_bytes());
        assert!(all.iter().all(|got| got.status == 200 && got.whole));
        let sizes = all
            .iter()
            .filter(|got| got.header("content-type") == Some("application/octet-stream"));
        let sizes: Vec<usize> = sizes.map(|got| got.body.len()).collect();
        assert_eq!(sizes, (0..=300).collect::<Vec<_>>(), "{running:?}");
        assert_eq!(all.len(), 301 + 12);
        assert_eq!(app.counters().requests, 313);
        running.stop(PATIENCE);
    });
}

/// A client that announced its last request is not waited for; it need not even close.
#[test]
fn a_last_request_ends_its_connection_at_once() {
    on_every_engine(|running, _| {
        for request in [last("/"), "GET / HTTP/1.0\r\n\r\n".to_owned()] {
            let before = running.counters().closed_for(Closed::Finished);
            let mut client = connect(addr(&running));
            client.write_all(request.as_bytes()).unwrap();
            let mut reply = Vec::new();
            client.read_to_end(&mut reply).unwrap();
            assert_eq!(replies(&reply, &[]).unwrap()[0].text(), demo::HELLO);
            let deadline = Instant::now() + PATIENCE;
            while running.counters().closed_for(Closed::Finished) == before {
                assert!(Instant::now() < deadline, "it waits for the client's end");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(running.counters().open, 0);
        }
        running.stop(PATIENCE);
    });
}

/// The client has gone on speaking: no reset destroys the reply.
#[test]
fn bytes_behind_a_last_request_do_not_cost_its_reply() {
    on_every_engine(|running, _| {
        let more = "x".repeat(300_000);
        let got = ask(addr(&running), (last("/") + &more).as_bytes());
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].text(), demo::HELLO);
        running.stop(PATIENCE);
    });
}

/// A reply that is longer than what the client's kernel takes at once, made in one go, streamed, or of the older HTTP: what the
/// client says while it is on its way destroys none of it.
#[test]
fn bytes_during_a_long_last_reply_do_not_cost_any_of_it() {
    on_every_engine(|running, _| {
        let older = |path: &str| format!("GET {path} HTTP/1.0\r\n\r\n");
        let streamed = format!("/bytes/{LONG}");
        let requests = [
            last("/long"),
            older("/long"),
            last(&streamed),
            older(&streamed),
        ];
        for request in requests.iter().cycle().take(20) {
            let mut client = connect(addr(&running));
            client.write_all(request.as_bytes()).unwrap();
            let mut reply = vec![0];
            client.read_exact(&mut reply).unwrap();
            client.write_all(b"and another thing").unwrap();
            let end = client.read_to_end(&mut reply);
            let got = replies(&reply, &[]).unwrap_or_default();
            let len = got.first().map_or(0, |got| got.body.len());
            assert_eq!(len, LONG, "{request:?}, {end:?}");
        }
        running.stop(PATIENCE);
    });
}

/// The last reply is short, and the kernel still holds a long one before it: both are whole, whatever the client says meanwhile.
#[test]
fn bytes_behind_a_short_last_reply_do_not_cost_a_long_one_before_it() {
    on_every_engine(|running, _| {
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        let streamed = format!("/bytes/{LONG}");
        for path in ["/long", &streamed].into_iter().cycle().take(10) {
            let mut client = connect(addr(&running));
            let requests = get(path) + &last("/");
            client.write_all(requests.as_bytes()).unwrap();
            let mut reply = vec![0];
            client.read_exact(&mut reply).unwrap();
            // All of it may be with the kernel by now, which a reset would destroy.
            std::thread::sleep(Duration::from_millis(20));
            client.write_all(b"and another thing").unwrap();
            let end = client.read_to_end(&mut reply);
            let got = replies(&reply, &[]).unwrap_or_default();
            let lengths: Vec<usize> = got.iter().map(|got| got.body.len()).collect();
            assert_eq!(lengths, [LONG, demo::HELLO.len()], "{path}, {end:?}");
        }
        running.stop(PATIENCE);
    });
}

#[test]
fn bodies_stream_both_ways_through_small_windows() {
    on_every_engine(|running, _| {
        let body: Vec<u8> = (0..5_000_000u32).map(|n| (n >> 7) as u8).collect();
        let head = "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";
        let plain = format!("{head}Content-Length: {}\r\n\r\n", body.len());
        let all = ask(addr(&running), &[plain.as_bytes(), &body].concat());
        assert!(all[0].body == body, "{running:?}");
        let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
        for chunk in body.chunks(70_001) {
            chunked.extend(format!("{:X}\r\n", chunk.len()).bytes());
            chunked.extend(chunk);
            chunked.extend(b"\r\n");
        }
        chunked.extend(b"0\r\n\r\n");
        let all = ask(addr(&running), &chunked);
        assert!(all[0].body == body && all[0].whole, "{running:?}");
        running.stop(PATIENCE);
    });
}

#[test]
fn a_client_that_does_not_read_is_not_read_from_either() {
    on_every_engine(|running, _| {
        // The client sends without end and reads nothing: at some point it cannot send
        // any more.
        let mut stream = connect(addr(&running));
        stream.set_nonblocking(true).unwrap();
        let head = b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n";
        stream.write_all(head).unwrap();
        let (piece, began, mut sent, mut stuck) = (vec![b'x'; 1 << 16], Instant::now(), 0, 0);
        while stuck < 50 {
            match stream.write(&piece) {
                Ok(n) => (sent, stuck) = (sent + n, 0),
                Err(_) => {
                    stuck += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            assert!(
                sent < 200 << 20 && began.elapsed() < PATIENCE,
                "{running:?}: {sent} bytes"
            );
        }
        // Other clients are served meanwhile.
        assert_eq!(
            ask(addr(&running), last("/").as_bytes())[0].text(),
            demo::HELLO
        );
        drop(stream);
        running.stop(PATIENCE);
    });
}

#[test]
fn heads_that_drip_are_given_up_and_others_are_served() {
    on_every_engine(|running, app| {
        let mut slow: Vec<TcpStream> = (0..50).map(|_| connect(addr(&running))).collect();
        for stream in &mut slow {
            stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
        }
        assert_eq!(
            ask(addr(&running), last("/").as_bytes())[0].text(),
            demo::HELLO
        );
        for stream in &mut slow {
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert_eq!(replies(&back, &[]).unwrap()[0].status, 408);
        }
        assert_eq!(app.counters().too_slow, 50);
        drop(slow);
        running.stop(PATIENCE);
    });
}

#[test]
fn what_is_refused_is_told_to_a_client_that_is_still_sending() {
    on_every_engine(|running, _| {
        // More than any buffer holds: a reset would take the reply with it.
        let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20000000\r\n\r\n";
        let mut stream = connect(addr(&running));
        let mut sender = stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            let _ = sender.write_all(head.as_bytes());
            // Fails when the server has waited long enough.
            let _ = sender.write_all(&vec![b'x'; 20_000_000]);
            let _ = sender.shutdown(Shutdown::Write);
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert_eq!(replies(&back, &[]).unwrap()[0].status, 413, "{running:?}");
        sending.join().unwrap();
        drop(stream);
        running.stop(PATIENCE);
    });
}

#[test]
fn a_stop_lets_a_request_under_way_end_and_says_so() {
    on_every_engine(|running, app| {
        let mut stream = connect(addr(&running));
        stream
            .write_all(get("/burn?us=300000&on=pool").as_bytes())
            .unwrap();
        // Between two requests.
        let mut idle = connect(addr(&running));
        idle.write_all(get("/bytes/0").as_bytes()).unwrap();
        let began = Instant::now();
        while app.counters().requests < 2 {
            assert!(began.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        running.stop(PATIENCE);
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        let got = replies(&back, &[]).unwrap().remove(0);
        assert_eq!((got.status, got.header("connection")), (200, Some("close")));
        let mut only = Vec::new();
        idle.read_to_end(&mut only).unwrap();
        assert_eq!(replies(&only, &[]).unwrap().len(), 1);
    });
}

/// What had come before a stop is answered, also behind an answer that is owed; the last answer says that it is the last.
#[test]
fn pipelined_requests_from_before_a_stop_are_answered_behind_an_owed_one() {
    for engine in ENGINES {
        let owed: Arc<Mutex<Vec<Later>>> = Arc::default();
        let owes = owed.clone();
        let router = Router::new()
            .get("/owed", move |_, response| {
                let owes = owes.clone();
                response.later(move |later| owes.lock().unwrap().push(later))
            })
            .get("/n/{n}", |request, response| {
                response.text(&request.path()[3..])
            })
            .post("/", |request, response| response.body(request.body()));
        let mut builder = Builder::new();
        builder.engine(engine).loops(1);
        let id = builder.service(Http::new(router));
        builder.listen(id, Listen::at("127.0.0.1:0"));
        let Some(running) = start(&mut builder) else {
            continue;
        };
        let mut idle = connect(addr(&running));
        idle.write_all(get("/n/0").as_bytes()).unwrap();
        idle.read_exact(&mut [0; 1]).unwrap();
        let mut stream = connect(addr(&running));
        let mut requests = get("/owed");
        for n in 0..6 {
            // Some of them equal to the byte.
            requests += &get(&format!("/n/{}", n / 3));
            requests += "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";
        }
        stream.write_all(requests.as_bytes()).unwrap();
        let began = Instant::now();
        while owed.lock().unwrap().is_empty() {
            assert!(began.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        let drain = running.drain(PATIENCE);
        // The loop has told its connections.
        idle.read_to_end(&mut Vec::new()).unwrap();
        let later = owed.lock().unwrap().pop().unwrap();
        later.send(Answer::new(200).text("late"));
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        let got = replies(&back, &[]).unwrap();
        let texts: Vec<&str> = got.iter().map(Got::text).collect();
        let rest = ["0", "body"]
            .repeat(3)
            .into_iter()
            .chain(["1", "body"].repeat(3));
        assert_eq!(
            texts,
            ["late"].into_iter().chain(rest).collect::<Vec<_>>(),
            "{engine}"
        );
        let closes = got
            .iter()
            .map(|got| got.header("connection") == Some("close"));
        let closes: Vec<bool> = closes.collect();
        assert!(
            closes[12] && !closes[..12].contains(&true),
            "{engine}: {closes:?}"
        );
        drop((stream, idle));
        drain.wait();
    }
}

/// Requests that wait when a stop begins, because the client has not read the replies before them, are answered.
#[test]
fn pipelined_requests_that_wait_for_room_are_answered_after_a_stop() {
    const REQUESTS: u64 = 40;
    on_every_engine(|running, app| {
        let mut idle = connect(addr(&running));
        idle.write_all(get("/bytes/0").as_bytes()).unwrap();
        idle.read_exact(&mut [0; 1]).unwrap();
        let mut stream = connect(addr(&running));
        let requests: String = (0..REQUESTS).map(|n| get(&format!("/long?{n}"))).collect();
        stream.write_all(requests.as_bytes()).unwrap();
        let began = Instant::now();
        while running.counters().output_pauses == 0 {
            assert!(began.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        let drain = running.drain(PATIENCE);
        // The loops have told their connections.
        idle.read_to_end(&mut Vec::new()).unwrap();
        assert!(app.counters().requests < REQUESTS, "some wait");
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        let got = replies(&back, &[]).unwrap();
        assert!(got.iter().all(|got| got.body.len() == LONG));
        assert_eq!(got.len() as u64, REQUESTS);
        drop((stream, idle));
        drain.wait();
    });
}

/// Many short replies are short together: the connection ends with the last, though its client keeps its own side open.
#[test]
fn a_pipeline_of_short_replies_is_not_lingered_for() {
    for engine in ENGINES {
        let app = app();
        let limits = tidewire::Limits {
            linger: 20 * PATIENCE,
            ..app.limits()
        };
        let mut builder = Builder::new();
        builder.engine(engine).loops(1);
        let id = builder.service_with(app, limits);
        builder.listen(id, Listen::at("127.0.0.1:0"));
        let Some(running) = start(&mut builder) else {
            continue;
        };
        let mut stream = connect(addr(&running));
        let requests = get("/").repeat(30) + &last("/");
        stream.write_all(requests.as_bytes()).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert_eq!(replies(&back, &[]).unwrap().len(), 31);
        let began = Instant::now();
        while running.counters().open > 0 {
            assert!(began.elapsed() < PATIENCE, "{engine}: it lingers");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(stream);
        running.stop(PATIENCE);
    }
}

#[test]
fn the_same_service_behind_tls() {
    let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from(made.cert.der().to_vec()))
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    for engine in ENGINES {
        let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        let tls = Server::new(certificate).alpn(["http/1.1"]).build().unwrap();
        let mut builder = Builder::new();
        builder.engine(engine);
        let id = builder.service(Layered::new(tls, app()));
        builder.listen(id, Listen::at("127.0.0.1:0"));
        let Some(running) = start(&mut builder) else {
            continue;
        };
        let name = ServerName::try_from("it.example").unwrap();
        let session = ClientConnection::new(config.clone(), name).unwrap();
        let mut stream = StreamOwned::new(session, connect(addr(&running)));
        let body = vec![b'x'; 100_000];
        let head = format!(
            "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let input = [
            get("/").as_bytes(),
            get("/later").as_bytes(),
            head.as_bytes(),
            &body,
            last("/bytes/300000").as_bytes(),
        ]
        .concat();
        // The replies to all but the last fit the buffers of both sides.
        stream.write_all(&input).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        let all = replies(&back, &[]).unwrap();
        assert_eq!((all[0].text(), all[1].text()), (demo::HELLO, "later"));
        assert!(all[2].body == body && all[3].body.len() == 300_000);
        drop(stream);
        running.stop(PATIENCE);
    }
}

#[test]
fn pipelined_requests_that_take_long_leave_others_their_turn() {
    const SLOW: usize = 50;
    for engine in ENGINES {
        let (slow, sent) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, before, wait) = (slow.clone(), slow.clone(), sent.clone());
        let router = Router::new()
            .get("/slow", move |_, response| {
                count.fetch_add(1, SeqCst);
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(2)
                    || (!wait.load(SeqCst) && began.elapsed() < PATIENCE)
                {
                    std::thread::yield_now();
                }
                response.empty()
            })
            .get("/quick", move |_, response| {
                response.text(&before.load(SeqCst).to_string())
            });
        let mut builder = Builder::new();
        builder.engine(engine).loops(1);
        let id = builder.service(Http::new(router));
        builder.listen(id, Listen::at("127.0.0.1:0"));
        let Some(running) = start(&mut builder) else {
            continue;
        };
        let mut other = connect(addr(&running));
        let asked = get("/slow").repeat(SLOW - 1) + &last("/slow");
        let to = addr(&running);
        let asking = std::thread::spawn(move || ask(to, asked.as_bytes()));
        let began = Instant::now();
        while slow.load(SeqCst) == 0 {
            assert!(began.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        other.write_all(last("/quick").as_bytes()).unwrap();
        sent.store(true, SeqCst);
        let mut back = Vec::new();
        other.read_to_end(&mut back).unwrap();
        drop(other);
        let before: usize = replies(&back, &[]).unwrap()[0].text().parse().unwrap();
        assert!(
            before < SLOW,
            "{engine}: all of {before} were answered first"
        );
        assert_eq!(asking.join().unwrap().len(), SLOW);
        running.stop(PATIENCE);
    }
}

#[test]
fn bodies_are_bounded_together_on_every_engine() {
    let settings = Settings {
        gathered: 100_000,
        ..Settings::default()
    };
    for engine in ENGINES {
        let router = Router::new().post("/", |_, response| response.empty());
        let app = Http::with(settings.clone(), router);
        let mut builder = Builder::new();
        builder.engine(engine).loops(2);
        let id = builder.service(app.clone());
        builder.listen(id, Listen::at("127.0.0.1:0"));
        let Some(running) = start(&mut builder) else {
            continue;
        };
        let head =
            "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 70000\r\n\r\n";
        // One after the other: when both grow at once, either may be refused, or both.
        let mut first = connect(addr(&running));
        first.write_all(head.as_bytes()).unwrap();
        first.write_all(&[b'x'; 60_000]).unwrap();
        let began = Instant::now();
        while app.gathering() < 60_000 {
            assert!(began.elapsed() < PATIENCE, "{engine}: {}", app.gathering());
            std::thread::yield_now();
        }
        let mut second = connect(addr(&running));
        second.write_all(head.as_bytes()).unwrap();
        second.write_all(&[b'x'; 60_000]).unwrap();
        let began = Instant::now();
        while app.counters().overloaded == 0 {
            assert!(began.elapsed() < PATIENCE, "{engine}: both are gathered");
            std::thread::yield_now();
        }
        let statuses = [first, second].map(|mut stream| {
            // The one that is refused may be closed already.
            let _ = stream.write_all(&[b'x'; 10_000]);
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            replies(&back, &[]).unwrap()[0].status
        });
        assert_eq!(statuses, [200, 503], "{engine}");
        assert_eq!(app.gathering(), 0, "{engine}");
        running.stop(PATIENCE);
    }
}
