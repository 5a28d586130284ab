//! A server on real sockets, on every engine that works here, and clients that block.
//!
//! Nothing here measures time; every wait ends after [`PATIENCE`], by failing.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::{Builder, EngineChoice, Listen, Placement, Running, StartError};
use tidewire_kv::service::{RespService, Settings};
use tidewire_kv::store::{self, Store};

/// Longest time that anything here may take; far more than it does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Engine, loops.
pub(crate) const ENGINES: [(EngineChoice, usize); 5] = [
    (EngineChoice::Threads, 1),
    (EngineChoice::Epoll, 1),
    (EngineChoice::Epoll, 2),
    (EngineChoice::Uring, 1),
    (EngineChoice::Uring, 2),
];

/// A server; stops when it is dropped.
pub(crate) struct Server {
    pub(crate) service: RespService,
    pub(crate) running: Running,
    /// What it is, for messages.
    pub(crate) name: String,
}

impl Server {
    /// `None`, said why, if the engine does not work here.
    pub(crate) fn start(
        (engine, loops): (EngineChoice, usize),
        shards: usize,
        settings: Settings,
    ) -> Option<Server> {
        let name = format!("{engine}, {loops} loops, {shards} shards");
        let store = Store::new(store::Settings {
            shards,
            ..store::Settings::default()
        });
        let mut builder = Builder::new();
        let limits = settings.limits();
        let service = RespService::new(Arc::new(store), settings);
        service.run_scripts_apart();
        let id = builder.service_with(service.clone(), limits);
        builder.listen(id, Listen::at("127.0.0.1:0"));
        builder.engine(engine).loops(loops);
        if loops > 1 {
            // Few clients: in turn they are on all loops, by the kernel's hash perhaps not.
            builder.placement(Placement::Acceptor);
        }
        match builder.start() {
            Ok(running) => Some(Server {
                service,
                running,
                name,
            }),
            Err(error @ StartError::Engine { .. }) => {
                eprintln!("left out: {name}: {error}");
                None
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.running.addrs()[0].tcp().unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.addr())
    }

    /// Waits until the server has so many clients.
    pub(crate) fn wait_for_clients(&self, n: usize) {
        until("clients to come or go", || self.service.clients() == n);
    }
}

/// Runs a test on each engine, with one shard and with another number for each.
pub(crate) fn everywhere(test: impl Fn(&Server)) {
    for (engine, many) in ENGINES.into_iter().zip([200, 8, 64, 65, 1024]) {
        for shards in [1, many] {
            if let Some(server) = Server::start(engine, shards, Settings::default()) {
                test(&server);
            }
        }
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A reply in RESP2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(String),
    Null,
    Array(Vec<Value>),
}

impl Value {
    pub(crate) fn ok() -> Value {
        Value::Simple("OK".into())
    }

    /// The elements of an array.
    #[track_caller]
    pub(crate) fn array(self) -> Vec<Value> {
        match self {
            Value::Array(values) => values,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// The text of a string.
    #[track_caller]
    pub(crate) fn text(self) -> String {
        match self {
            Value::Bulk(text) | Value::Simple(text) => text,
            other => panic!("not a string: {other:?}"),
        }
    }

    /// The number that an integer is, or a string says.
    #[track_caller]
    pub(crate) fn number(self) -> i64 {
        match self {
            Value::Int(n) => n,
            other => other.text().parse().unwrap(),
        }
    }

    /// Takes a reply off the front of `bytes`: it, and its length. `None` if it is not all there.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Value, usize)> {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let line = std::str::from_utf8(&bytes[1..end]).expect("a line of text");
        let mut at = end + 2;
        let value = match bytes[0] {
            b'+' => Value::Simple(line.into()),
            b'-' => Value::Error(line.into()),
            b':' => Value::Int(line.parse().unwrap()),
            b'$' | b'*' if line == "-1" => Value::Null,
            b'$' => {
                let len: usize = line.parse().unwrap();
                let text = bytes.get(at..at + len + 2)?;
                at += len + 2;
                Value::Bulk(String::from_utf8_lossy(&text[..len]).into_owned())
            }
            b'*' => {
                let mut values = Vec::new();
                for _ in 0..line.parse().unwrap() {
                    let (value, len) = Value::parse(&bytes[at..])?;
                    values.push(value);
                    at += len;
                }
                Value::Array(values)
            }
            other => panic!("not a reply: {:?}", char::from(other)),
        };
        Some((value, at))
    }
}

/// A command as clients send it; `line` is its words, with single spaces between.
pub(crate) fn command(line: &str) -> Vec<u8> {
    of_words(&line.split(' ').collect::<Vec<_>>())
}

/// A command of words that may have spaces in them.
pub(crate) fn of_words(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// A client that waits for its replies.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Client {
        let socket = TcpStream::connect(addr).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Client {
            socket,
            received: Vec::new(),
        }
    }

    /// Sends commands in one piece.
    pub(crate) fn send(&mut self, lines: &[impl AsRef<str>]) {
        let bytes: Vec<u8> = lines
            .iter()
            .flat_map(|line| command(line.as_ref()))
            .collect();
        self.socket.write_all(&bytes).unwrap();
    }

    /// The next reply; `None` when the server has closed the connection.
    pub(crate) fn next(&mut self) -> io::Result<Option<Value>> {
        loop {
            if let Some((value, len)) = Value::parse(&self.received) {
                self.received.drain(..len);
                return Ok(Some(value));
            }
            let mut chunk = [0; 16 << 10];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(n) => self.received.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next reply.
    #[track_caller]
    pub(crate) fn reply(&mut self) -> Value {
        self.next().unwrap().expect("the server has closed")
    }

    /// Sends commands in one piece and takes their replies.
    #[track_caller]
    pub(crate) fn pipeline(&mut self, lines: &[impl AsRef<str>]) -> Vec<Value> {
        self.send(lines);
        lines.iter().map(|_| self.reply()).collect()
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.send(&[line]);
        self.reply()
    }

    /// Runs commands as a transaction; `None` if a watched key has changed.
    #[track_caller]
    pub(crate) fn transaction(&mut self, lines: &[impl AsRef<str>]) -> Option<Vec<Value>> {
        let all: Vec<&str> = ["MULTI"]
            .into_iter()
            .chain(lines.iter().map(AsRef::as_ref))
            .chain(["EXEC"])
            .collect();
        match self.pipeline(&all).pop().unwrap() {
            Value::Null => None,
            results => Some(results.array()),
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&mut self) {
        // The server may have closed already.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// What one field of INFO says.
    #[track_caller]
    pub(crate) fn info(&mut self, field: &str) -> i64 {
        let info = self.ask("INFO all").text();
        let value = info
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let value = value.unwrap_or_else(|| panic!("no {field} in {info}"));
        value.trim().parse().unwrap()
    }
}
