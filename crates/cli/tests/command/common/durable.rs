//! Servers with a log, and what is sent to them.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::process::{Resource, Rlimit, Signal, prlimit};

use crate::common::{Running, addr, run, stderr, stdout, tidewire};

/// A directory of the test's own, removed at its end.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "tidewire-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), bytes).unwrap();
        self.path(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server with a log.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) to: String,
}

impl Server {
    pub(crate) fn start(place: &Place) -> Server {
        Server::with(place, "ingest=0", &[])
    }

    pub(crate) fn with(place: &Place, listen: &str, more: &[&str]) -> Server {
        Server::run(tidewire(&serve(place, listen, more)))
    }

    /// A server whose writes fail instead of killing it once they are beyond a
    /// [limit](Server::forbid_writing).
    pub(crate) fn that_may_fail(place: &Place, more: &[&str]) -> Server {
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
            .arg(env!("CARGO_BIN_EXE_tidewire"))
            .args(serve(place, "ingest=0", more))
            .env_remove("RUST_LOG");
        Server::run(command)
    }

    /// Runs what starts a server.
    pub(crate) fn run(command: Command) -> Server {
        let mut running = Running::from(spawn(command));
        let line = running.line();
        assert!(
            line.starts_with("listening service=ingest mode=native addr="),
            "{line:?} {}",
            stderr(&running.end())
        );
        let to = addr(&line).to_string();
        Server { running, to }
    }

    /// From now on, whatever it writes to files fails.
    pub(crate) fn forbid_writing(&self) {
        self.limit_files(0);
    }

    /// From now on, no file of it may be longer.
    pub(crate) fn limit_files(&self, bytes: u64) {
        let limit = Rlimit {
            current: Some(bytes),
            maximum: None,
        };
        prlimit(Some(self.running.pid()), Resource::Fsize, limit).unwrap();
    }

    pub(crate) fn kill(self) -> String {
        self.running.signal(Signal::KILL);
        self.running.end();
        self.to
    }

    pub(crate) fn stop(self) -> Output {
        self.running.signal(Signal::TERM);
        let output = self.running.end();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        output
    }

    pub(crate) fn send(&self, args: &[&str], input: &str) -> Output {
        send(&self.to, args, input)
    }

    pub(crate) fn read(&self, args: &[&str]) -> String {
        let output = run(&[&["read", "--to", &self.to], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    }
}

/// What starts a server whose log is in the directory `data` of the place.
fn serve(place: &Place, listen: &str, more: &[&str]) -> Vec<String> {
    let data = place.path("data");
    let common = [
        "serve",
        "ingest",
        "--listen",
        listen,
        "--data",
        &data,
        "--engine",
        "epoll",
        "--workers",
        "1",
        "--segment",
        "8MiB",
    ];
    common.iter().chain(more).map(|&arg| arg.into()).collect()
}

pub(crate) fn send(to: &str, args: &[&str], input: &str) -> Output {
    let mut child = spawn(tidewire(&[&["send", "--to", to], args].concat()));
    let mut stdin = child.stdin.take().unwrap();
    // The process may have ended before it read anything.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    Running::from(child).end()
}

pub(crate) fn spawn(mut command: Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// A `send` that goes on.
pub(crate) fn sending(args: &[&str]) -> (ChildStdin, Running) {
    let mut child = spawn(tidewire(args));
    (child.stdin.take().unwrap(), Running::from(child))
}

pub(crate) fn lines(n: usize) -> String {
    (1..=n).map(|n| format!("line {n}\n")).collect()
}

pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "stdout {:?} stderr {:?}",
        stdout(output),
        stderr(output)
    );
}
