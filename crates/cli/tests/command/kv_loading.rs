//! `serve kv` while it recovers: it listens, says so, and can be stopped. A store whose recovery
//! was over before a client could ask is made larger, and the server killed once more.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::kv::{Client, Reply, text};
use crate::common::{PATIENCE, Running, engines, stderr};

/// How often a store is made larger; three times as large each time.
const TIMES: usize = 6;

/// A server at a place that is known before it says it.
struct Place {
    data: tempfile::TempDir,
    at: SocketAddr,
    engine: String,
    keys: usize,
}

impl Place {
    fn new(engine: &str) -> Place {
        let free = TcpListener::bind("127.0.0.92:0").unwrap();
        Place {
            data: tempfile::tempdir().unwrap(),
            at: free.local_addr().unwrap(),
            engine: engine.to_owned(),
            keys: 0,
        }
    }

    fn start(&self) -> Running {
        let (at, data) = (format!("kv/resp={}", self.at), self.data.path());
        let data: &Path = data;
        Running::start(&[
            "serve",
            "kv",
            "--listen",
            &at,
            "--engine",
            &self.engine,
            "--workers",
            "2",
            "--durability",
            "sync",
            "--data",
            data.to_str().unwrap(),
        ])
    }

    /// Has it killed with three times as many keys.
    fn grow(&mut self) {
        let mut server = self.start();
        assert!(server.line().starts_with("listening "));
        let mut client = Client::connect(self.at).unwrap();
        let more = (self.keys * 3).max(30_000);
        for n in (self.keys..more).step_by(1000) {
            let sets: Vec<_> = (n..n + 1000).map(|n| format!("SET key:{n} {n}")).collect();
            client.send(&sets).unwrap();
            sets.iter().for_each(|_| drop(client.reply().unwrap()));
        }
        self.keys = more;
        server.signal(Signal::KILL);
        server.end();
    }

    /// A client, as soon as there may be any, and what it is told first.
    fn connect(&self) -> (Client, Reply) {
        let begin = Instant::now();
        loop {
            // A client that connects while several loops take the port may be reset.
            if let Ok(mut client) = Client::connect(self.at)
                && let Ok(told) = client.ask("PING")
            {
                return (client, told);
            }
            assert!(begin.elapsed() < PATIENCE, "nobody listens");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn is_loading(reply: &Reply) -> bool {
    matches!(reply, Reply::Line(line) if line.starts_with("LOADING "))
}

#[test]
fn a_client_during_recovery_is_told_so_and_then_served() {
    for engine in engines() {
        let mut place = Place::new(engine);
        let seen = (0..TIMES).any(|_| {
            place.grow();
            let mut server = place.start();
            let (mut client, told) = place.connect();
            let seen = is_loading(&told);
            if seen {
                // By what it says next it may be over.
                let info = text(client.ask("INFO persistence").unwrap());
                assert!(info.contains("\nloading:"), "{info}");
                assert!(info.contains("durability:sync"), "{info}");
                assert!(matches!(client.ask("CLIENT ID").unwrap(), Reply::Int(_)));
            }
            let line = server.line();
            assert!(line.starts_with("listening "), "{line}");
            assert_eq!(client.ask("PING").unwrap(), Reply::Line("PONG".into()));
            let last = place.keys - 1;
            let last = client.ask(&format!("GET key:{last}")).unwrap();
            assert_eq!(text(last), (place.keys - 1).to_string());
            // Changes on this connection are durable, too.
            assert_eq!(client.ask("SET mine 1").unwrap(), Reply::Line("OK".into()));
            server.signal(Signal::KILL);
            server.end();
            let mut server = place.start();
            assert!(server.line().starts_with("listening "));
            assert_eq!(text(place.connect().0.ask("GET mine").unwrap()), "1");
            server.signal(Signal::TERM);
            assert_eq!(server.end().status.code(), Some(0));
            seen
        });
        assert!(seen, "{engine}: {} keys were there at once", place.keys);
    }
}

#[test]
fn it_stops_when_it_is_asked_to_while_it_recovers() {
    // By a signal, and by a client.
    for by_client in [false, true] {
        let mut place = Place::new("auto");
        let seen = (0..TIMES).any(|_| {
            place.grow();
            let server = place.start();
            let (mut client, told) = place.connect();
            if !is_loading(&told) {
                server.signal(Signal::TERM);
                server.end();
                return false;
            }
            match by_client {
                true => drop(client.ask("SHUTDOWN")),
                false => server.signal(Signal::TERM),
            }
            let output = server.end();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(0), "{said}");
            // The recovery may have ended just before.
            let was_cut_short = output.stdout.is_empty();
            assert_ne!(was_cut_short, said.contains("key-value store recovered"));
            let mut server = place.start();
            assert!(server.line().starts_with("listening "));
            assert_eq!(
                place.connect().0.ask("DBSIZE").unwrap(),
                Reply::Int(place.keys as i64)
            );
            server.signal(Signal::TERM);
            assert_eq!(server.end().status.code(), Some(0));
            was_cut_short
        });
        assert!(seen, "{} keys were there at once", place.keys);
    }
}
