//! How each service says goodbye when the server stops, whatever its client is doing: over real sockets, on each
//! engine.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::common::durable::{Place, assert_code, spawn};
use crate::common::{PATIENCE, Running, addr, engines, stderr, tidewire};
use rustix::process::Signal;

/// A server, and where it listens: by service, and the admin's.
struct Server {
    running: Running,
    lines: Vec<String>,
}

impl Server {
    fn start(services: &[&str], args: &[&str]) -> Server {
        let listen: Vec<String> = services.iter().map(|of| format!("{of}=0")).collect();
        let mut all = [
            &["serve", "--admin", "0", "--log-format", "logfmt"],
            services,
            args,
        ]
        .concat();
        listen.iter().for_each(|at| all.extend(["--listen", at]));
        let mut running = Running::from(spawn(tidewire(&all)));
        let mut lines: Vec<String> = Vec::new();
        while !lines
            .last()
            .is_some_and(|line| line.contains("service=admin"))
        {
            let line = running.line();
            if line.is_empty() {
                panic!("{lines:?}: {}", stderr(&running.end()));
            }
            lines.push(line);
        }
        Server { running, lines }
    }

    fn at(&self, service: &str) -> SocketAddr {
        let (name, mode) = service.split_once('/').unwrap_or((service, ""));
        let is = |line: &&String| {
            let right = mode.is_empty() || line.contains(&format!(" mode={mode} "));
            line.contains(&format!("service={name} ")) && right
        };
        addr(self.lines.iter().find(is).expect(service))
    }

    /// Asks it to stop, and waits until it says that it does.
    fn begin_stop(&self) {
        self.running.signal(Signal::TERM);
        let begin = Instant::now();
        while !ready(self.at("admin")).contains("503") {
            assert!(begin.elapsed() < PATIENCE, "it does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn ends(self) -> String {
        let output = self.running.end();
        assert_code(&output, 0);
        stderr(&output)
    }
}

fn ready(admin: SocketAddr) -> String {
    ready_at(Client::of(admin).0)
}

fn ready_at(mut admin: impl Read + Write) -> String {
    let request = b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    admin.write_all(request).unwrap();
    let mut answer = String::new();
    admin.read_to_string(&mut answer).unwrap();
    answer
}

struct Client(TcpStream);

impl Client {
    fn of(to: SocketAddr) -> Client {
        let socket = TcpStream::connect(to).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(socket)
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn hear(&mut self, expected: &[u8]) {
        let mut said = vec![0; expected.len()];
        self.0.read_exact(&mut said).unwrap();
        assert_eq!(said, expected, "{:?}", String::from_utf8_lossy(&said));
    }

    /// Says something, and hears this.
    fn asking(to: SocketAddr, question: &[u8], answer: &[u8]) -> Client {
        let mut client = Client::of(to);
        client.say(question);
        client.hear(answer);
        client
    }

    /// What is said up to the end, which is one in order.
    fn rest(&mut self) -> Vec<u8> {
        let mut said = Vec::new();
        self.0.read_to_end(&mut said).expect("an end in order");
        said
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.rest()).into_owned()
    }
}

/// The acknowledgement of the message with the id 7.
const ACK: &[u8] = b"\x07\0\0\0\0\0\0\0\0\0\0\0";
/// A hello of a producer at level received.
const PRODUCE: &[u8] =
    b"TIDE\x01\x01\x1b\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
fn each_protocol_says_goodbye_in_its_own_way() {
    for engine in engines() {
        let place = Place::new();
        let data = place.path("data");
        let services = [
            "echo",
            "ack/sync",
            "ack/async",
            "ingest",
            "kv/resp",
            "kv/binary",
            "http",
        ];
        let args = [
            "--engine",
            engine,
            "--workers",
            "2",
            "--data",
            &data,
            "--durability",
            "sync",
            "--segment",
            "8MiB",
            "--stop-deadline",
            "60s",
            "--linger",
            "60s",
        ];
        let server = Server::start(&services, &args);
        let at = |service| server.at(service);
        // Each is in the middle of something.
        let echo = Client::asking(at("echo"), b"hello", b"hello");
        let message: Vec<u8> = [&7u64.to_le_bytes()[..], &1u32.to_le_bytes(), b"x"].concat();
        let sync = Client::asking(at("ack/sync"), &message, ACK);
        let mut cumulative = Client::of(at("ack/async"));
        cumulative.say(&message);
        let mut producer = Client::asking(at("ingest"), PRODUCE, b"\x01");
        let idle = Client::asking(at("kv/resp"), b"PING\r\n", b"+PONG\r\n");
        let partial = Client::asking(at("kv/resp"), b"PING\r\n*2\r\n$3\r\nGET", b"+PONG\r\n");
        let subscribed = b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
        let subscriber = Client::asking(at("kv/resp"), b"SUBSCRIBE a\r\n", subscribed);
        let blocked = Client::asking(at("kv/resp"), b"PING\r\nBLPOP l 0\r\n", b"+PONG\r\n");
        let queued = b"+OK\r\n+QUEUED\r\n";
        let multi = Client::asking(at("kv/resp"), b"MULTI\r\nSET half done\r\n", queued);
        let binary = Client::asking(at("kv/binary"), b"\x01\x00\x02\x01k", b"\x03\0");
        let ok = b"HTTP/1.1 200 OK\r\n";
        let request = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";
        let mut kept = Client::asking(at("http"), request, ok);
        let mut begun = Client::of(at("http"));
        begun.say(b"GET / HTTP/1.1\r\nHost: he");
        let mut body = Client::of(at("http"));
        body.say(b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\n01234");
        body.hear(ok);
        let mut burning = Client::of(at("http"));
        burning.say(b"GET /burn?us=300000&on=pool HTTP/1.1\r\nHost: here\r\n\r\n");
        let http = at("http");
        let kv = at("kv/resp");
        server.begin_stop();
        for (mut client, what) in [
            (echo, "echo"),
            (sync, "ack/sync"),
            (idle, "kv/resp"),
            (subscriber, "a subscriber"),
            (blocked, "a blocked client"),
            (partial, "half a command"),
            (multi, "a transaction"),
            (binary, "kv/binary"),
        ] {
            let end = client.0.read(&mut [0]);
            assert!(matches!(end, Ok(0)), "{engine}: {what}: {end:?}");
        }
        // The gathered messages are acknowledged, with the last id.
        let last = cumulative.rest();
        assert_eq!(last, ACK, "{engine}");
        drop(cumulative);
        // A refusal, kind 3, with the reason 9: stopping. The welcome has more than was looked at.
        let said = producer.rest();
        let refusal = said.len() - 24..;
        let last = said.windows(2).any(|pair| pair == [9, 0]);
        assert!(last && !said[refusal].is_empty(), "{engine}: {said:?}");
        drop(producer);
        // A reply that was under way says that it is the last; what has begun may come to its end.
        assert!(kept.text().contains("Hello, World!"), "{engine}");
        drop(kept);
        begun.say(b"re\r\n\r\n");
        let reply = begun.text().to_ascii_lowercase();
        // A connection with a thread of its own hears of the stop by itself, on a busy machine behind its request.
        let is_last = engine == "threads" || reply.contains("connection: close");
        assert!(is_last, "{engine}: {reply}");
        assert!(reply.ends_with("hello, world!"), "{engine}: {reply}");
        body.say(b"56789");
        let reply = body.text();
        assert!(reply.ends_with("0123456789"), "{engine}: {reply}");
        let reply = burning.text().to_ascii_lowercase();
        assert!(reply.contains("connection: close"), "{engine}: {reply}");
        drop((begun, body, burning));
        for to in [http, kv] {
            let late = TcpStream::connect(to).map_err(|e| e.kind());
            assert_eq!(late.err(), Some(ErrorKind::ConnectionRefused), "{engine}");
        }
        let log = server.ends();
        assert!(
            log.contains("closed_stop_deadline=0") || !log.contains("closed_stop_deadline"),
            "{log}"
        );
        // Nothing is there of a transaction that was not executed.
        let again = Server::start(
            &["kv/resp"],
            &["--data", &data, "--durability", "sync", "--segment", "8MiB"],
        );
        drop(Client::asking(
            again.at("kv/resp"),
            b"GET half\r\n",
            b"$-1\r\n",
        ));
        again.running.signal(Signal::TERM);
        again.ends();
    }
}

/// A client takes nothing and does not go: log lines say how far the end has come, and that the
/// client was cut.
#[test]
fn a_drain_ends_at_its_deadline_and_says_how_far_it_is() {
    for engine in engines() {
        let args = [
            "--engine",
            engine,
            "--stop-deadline",
            "2500ms",
            "--linger",
            "60s",
            "--write-stall",
            "0",
        ];
        let server = Server::start(&["http"], &args);
        let mut stuck = Client::of(server.at("http"));
        stuck.say(b"GET /bytes/1000000000 HTTP/1.1\r\nHost: here\r\n\r\n");
        stuck.hear(b"HTTP/1.1 200 OK\r\n");
        server.begin_stop();
        let page = {
            let mut client = Client::of(server.at("admin"));
            client.say(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            client.text()
        };
        assert!(page.contains("\ntidewire_ready 0\n"), "{page}");
        let log = server.ends();
        let shown: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("message=draining"))
            .collect();
        assert!(!shown.is_empty(), "{engine}: {log}");
        for part in [
            "phase=finishing",
            "connections=1",
            "http=1",
            "held_bytes=",
            "left_s=",
        ] {
            assert!(shown[0].contains(part), "{engine}: {part}: {}", shown[0]);
        }
        assert!(log.contains("closed_stop_deadline=1"), "{engine}: {log}");
    }
}

/// While its log is being opened, it says that it recovers.
#[test]
fn a_recovering_server_is_not_ready() {
    let place = Place::new();
    let data = place.path("data");
    let args = ["--data", &data, "--durability", "os"];
    let server = Server::start(&["kv/resp"], &args);
    // As many keys as take a while.
    let mut client = Client::of(server.at("kv/resp"));
    for n in 0..300 {
        let pairs: String = (0..1000).map(|k| format!(" key:{n}:{k} v")).collect();
        client.say(format!("MSET{pairs}\r\n").as_bytes());
        client.hear(b"+OK\r\n");
    }
    drop(client);
    server.running.signal(Signal::TERM);
    server.ends();
    let begin = Instant::now();
    let mut seen = false;
    while !seen {
        assert!(begin.elapsed() < PATIENCE, "it is always ready");
        // No line tells where the server listens before it serves; a path is known before.
        let path = place.path("admin.sock");
        let admin = format!("unix:{path}");
        let own = [
            "serve",
            "kv/resp",
            "--listen",
            "kv/resp=0",
            "--admin",
            &admin,
        ];
        let mut starts = Running::from(spawn(tidewire(&[&own[..], &args].concat())));
        let first = loop {
            assert!(begin.elapsed() < PATIENCE, "nobody answers");
            if let Ok(socket) = UnixStream::connect(&path) {
                break ready_at(socket);
            }
        };
        seen = first.contains(" 503 ") && first.contains("\r\n\r\nrecovering");
        assert!(starts.line().starts_with("listening "));
        let then = ready_at(UnixStream::connect(&path).unwrap());
        assert!(
            then.contains(" 200 ") && then.ends_with("serving\n"),
            "{then}"
        );
        starts.signal(Signal::TERM);
        assert_code(&starts.end(), 0);
    }
}
