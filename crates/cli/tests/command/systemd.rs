//! The service manager's side of a server: sockets that it passes, and what it is told.

use crate::common;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::durable::{Place, assert_code, spawn};
use crate::common::{PATIENCE, Running, addr, tidewire};
use rustix::process::Signal;

/// A service manager that hears what it is told.
struct Manager {
    socket: UnixDatagram,
    path: String,
}

impl Manager {
    fn new(place: &Place) -> Manager {
        let path = place.path("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager { socket, path }
    }

    fn heard(&self) -> String {
        let mut bytes = [0; 4096];
        let n = self.socket.recv(&mut bytes).expect("something is said");
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    }

    /// The first that says this; what comes before is returned with it.
    fn hears(&self, what: &str) -> String {
        let began = Instant::now();
        let mut all = String::new();
        while !all.lines().any(|line| line.starts_with(what)) {
            assert!(began.elapsed() < PATIENCE, "no {what} in {all}");
            all += &self.heard();
        }
        all
    }

    fn start(&self, args: &[&str], more: &[(&str, &str)]) -> Running {
        let mut command = tidewire(args);
        command.env("NOTIFY_SOCKET", &self.path);
        command.envs(more.iter().copied());
        Running::from(spawn(command))
    }
}

#[test]
fn the_service_manager_is_told_how_far_the_server_is() {
    let place = Place::new();
    let manager = Manager::new(&place);
    let mut server = manager.start(&["serve", "echo", "--listen", "echo=0"], &[]);
    let before = manager.hears("READY=1");
    assert!(before.contains("STATUS=recovering"), "{before}");
    assert!(server.line().starts_with("listening "));
    server.signal(Signal::HUP);
    let reload = manager.hears("READY=1");
    let (first, _) = reload.split_once("READY=1").unwrap();
    assert!(
        first.contains("RELOADING=1") && first.contains("MONOTONIC_USEC="),
        "{reload}"
    );
    server.signal(Signal::TERM);
    manager.hears("STOPPING=1");
    assert_code(&server.end(), 0);
}

/// Only while the loops turn.
#[test]
fn the_watchdog_is_fed_by_loops_that_turn() {
    let place = Place::new();
    let manager = Manager::new(&place);
    for engine in common::engines() {
        let args = [
            "serve",
            "echo",
            "--listen",
            "echo=0",
            "--engine",
            engine,
            "--workers",
            "2",
        ];
        let server = manager.start(&args, &[("WATCHDOG_USEC", "300000")]);
        manager.hears("READY=1");
        for _ in 0..3 {
            manager.hears("WATCHDOG=1");
        }
        server.signal(Signal::TERM);
        manager.hears("STOPPING=1");
        assert_code(&server.end(), 0);
    }
}

/// A loop that is stuck is not covered up: nothing is said while it is.
#[test]
fn the_watchdog_is_withheld_while_a_loop_is_stuck() {
    const BURNS: usize = 5;
    let place = Place::new();
    let manager = Manager::new(&place);
    let args = ["serve", "http", "--listen", "http=0", "--workers", "1"];
    let mut server = manager.start(&args, &[("WATCHDOG_USEC", "300000")]);
    let to = addr(&server.line());
    manager.hears("WATCHDOG=1");
    let mut client = std::net::TcpStream::connect(to).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let burn = "GET /burn?us=1000000&on=loop HTTP/1.1\r\nHost: here\r\n\r\n";
    manager.socket.set_nonblocking(true).unwrap();
    let heard = || {
        let said = std::iter::from_fn(|| {
            let mut bytes = [0; 4096];
            let n = manager.socket.recv(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(&bytes[..n]).into_owned())
        });
        said.filter(|said| said.contains("WATCHDOG=1")).count()
    };
    heard();
    // A second each, in which the manager would be told ten times.
    client.write_all(burn.repeat(BURNS).as_bytes()).unwrap();
    let mut replies = Vec::new();
    while replies.windows(12).filter(|w| w == b"HTTP/1.1 200").count() < BURNS {
        let mut bytes = [0; 4096];
        let n = client.read(&mut bytes).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&replies));
        replies.extend_from_slice(&bytes[..n]);
    }
    let told = heard();
    assert!(told < 5 * BURNS, "{told} times while the loop was stuck");
    manager.socket.set_nonblocking(false).unwrap();
    manager.hears("WATCHDOG=1");
    server.signal(Signal::TERM);
    let output = server.end();
    assert_code(&output, 0);
    let said = common::stderr(&output);
    assert!(said.contains("a loop is stuck: the watchdog"), "{said}");
    assert!(said.contains("a loop is stuck"), "{said}");
}

#[test]
fn the_service_manager_learns_of_a_successor() {
    let place = Place::new();
    let manager = Manager::new(&place);
    let control = place.path("control.sock");
    let args = ["serve", "echo", "--listen", "echo=0", "--control", &control];
    let mut old = manager.start(&args, &[]);
    assert!(old.line().starts_with("listening "));
    manager.hears("READY=1");
    let new = manager.start(&[&args[..], &["--takeover"]].concat(), &[]);
    let main = format!("MAINPID={}", new.pid().as_raw_nonzero());
    let told = manager.hears(&main) + &manager.hears("READY=1");
    assert!(
        !told.contains("STOPPING"),
        "the service does not stop: {told}"
    );
    assert_code(&old.end(), 0);
    new.signal(Signal::TERM);
    manager.hears("STOPPING=1");
    assert_code(&new.end(), 0);
}

/// A server that was started as a service manager does: with sockets from descriptor 3 on, under these names.
struct Activated {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Activated {
    fn start(sockets: [OwnedFd; 2], names: &str, args: &[&str]) -> Activated {
        let [third, fourth] = sockets;
        let mut command = Command::new("sh");
        // The sockets come as stdin and stderr, and are put in place before the server runs.
        let script = "exec 3<&0 4<&2 </dev/null 2>&1; LISTEN_PID=$$ exec \"$0\" \"$@\"";
        command
            .args(["-c", script, env!("CARGO_BIN_EXE_tidewire")])
            .args(args)
            .args(["--log", "error"])
            .env("LISTEN_FDS", "2")
            .env("LISTEN_FDNAMES", names)
            .env_remove("RUST_LOG")
            .stdin(third)
            .stdout(Stdio::piped())
            .stderr(fourth);
        let mut child = command.spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Activated { child, says }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ends(&mut self) -> i32 {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn echoes(client: &mut (impl Read + Write)) {
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
}

#[test]
fn sockets_that_are_passed_on_are_served_under_their_names() {
    let place = Place::new();
    let (control, unix) = (place.path("control.sock"), place.path("echo.sock"));
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = UnixListener::bind(&unix).unwrap();
    let to = web.local_addr().unwrap();
    let sockets = || -> [OwnedFd; 2] {
        let (web, local) = (web.try_clone().unwrap(), local.try_clone().unwrap());
        [web.into(), local.into()]
    };
    // A client that comes before the server runs waits.
    let mut early = UnixStream::connect(&unix).unwrap();
    let args = [
        "serve",
        "--control",
        &control,
        "--admin",
        "off",
        "--workers",
        "2",
    ];
    let mut server = Activated::start(sockets(), "kv/resp:echo", &args);
    assert!(
        server
            .line()
            .contains(&format!("service=kv mode=resp addr={to}"))
    );
    assert!(
        server
            .line()
            .contains(&format!("service=echo addr=unix:{unix}"))
    );
    early.set_read_timeout(Some(PATIENCE)).unwrap();
    echoes(&mut early);
    drop(early);
    // A successor has them though its settings do not name them.
    let mut next = Running::start(&[&args[..], &["--takeover"]].concat());
    assert_eq!(addr(&next.line()), to);
    assert!(next.line().contains(&unix));
    assert_eq!(server.ends(), 0);
    let mut client = UnixStream::connect(&unix).unwrap();
    echoes(&mut client);
    drop(client);
    next.signal(Signal::TERM);
    assert_code(&next.end(), 0);
    assert!(
        std::fs::exists(&unix).unwrap(),
        "the service manager's file is left"
    );
    // The manager has the sockets still: the next server serves clients that came in between.
    let mut between = UnixStream::connect(&unix).unwrap();
    let mut server = Activated::start(sockets(), "kv/resp:echo", &args);
    assert!(server.line().starts_with("listening "));
    echoes(&mut between);
}

#[test]
fn sockets_without_a_service_are_refused_in_words() {
    let socket = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let args = ["serve", "--control", "off", "--admin", "off"];
    for names in ["echo:tidewire.socket", "echo:kv", "echo"] {
        let mut server = Activated::start([socket(), socket()], names, &args);
        let line = server.line();
        assert!(line.contains("FileDescriptorName"), "{names}: {line}");
        assert_eq!(server.ends(), 1);
    }
    let datagram = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let mut server = Activated::start([datagram, socket()], "echo:echo", &args);
    let line = server.line();
    assert!(
        line.contains("neither a TCP nor a Unix stream socket"),
        "{line}"
    );
    assert_eq!(server.ends(), 1);
}

/// What is in the repository is what systemd takes.
#[test]
fn the_unit_files_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/systemd");
    let verify = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args(["tidewire.service", "tidewire-kv.socket"].map(|name| format!("{folder}/{name}")))
        .output();
    let Ok(output) = verify else {
        println!("skipped: there is no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    // The program need not be installed here.
    let wrong: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("tidewire") && !line.contains("is not executable"))
        .collect();
    assert!(wrong.is_empty(), "{said}");
}
