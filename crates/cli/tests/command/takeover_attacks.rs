//! `serve --takeover` under attack: processes are killed, stall, or have no right, and what must be
//! there afterwards.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::durable::{Place, assert_code, spawn};
use crate::common::handover::{
    Load, Server, echo, echo_again, handovers, hello, ready, resp, with,
};
use crate::common::{PATIENCE, Running, engines, run, stderr, tidewire};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Signal;
use tidewire_handover::Claim;

/// Sets keys, each once, for as long as it is let; which were acknowledged.
fn set_keys(to: SocketAddr, name: usize, over: &AtomicBool) -> Vec<String> {
    let (mut acknowledged, mut next) = (Vec::new(), 0);
    while !over.load(SeqCst) {
        let mut client = TcpStream::connect(to).expect("a connection attempt is not refused");
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        while !over.load(SeqCst) {
            let key = format!("key:{name}:{next}");
            next += 1;
            // A client that is disconnected meanwhile does not know whether the key was set, and
            // goes on with the next one.
            if client
                .write_all(format!("SET {key} {key}\r\n").as_bytes())
                .is_err()
            {
                break;
            }
            let mut reply = [0; 5];
            match client.read_exact(&mut reply) {
                Ok(()) => assert_eq!(&reply, b"+OK\r\n"),
                Err(e) if is_end(e.kind()) => break,
                Err(e) => panic!("{e}"),
            }
            acknowledged.push(key);
        }
    }
    acknowledged
}

fn is_end(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn assert_all_set(to: SocketAddr, keys: &[String]) {
    let mut client = TcpStream::connect(to).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for key in keys {
        client
            .write_all(format!("GET {key}\r\n").as_bytes())
            .unwrap();
        let expected = format!("${}\r\n{key}\r\n", key.len());
        // As long as the answer that there is none.
        let (first, rest) = expected.as_bytes().split_at(5);
        let mut said = [0; 5];
        client.read_exact(&mut said).unwrap();
        assert_eq!(said, first, "{key} was acknowledged and is gone");
        client.read_exact(&mut vec![0; rest.len()]).unwrap();
    }
}

/// One GET on a connection of its own; it must be answered whole, or the end be told before it was read.
fn get(to: SocketAddr) -> bool {
    let mut client = TcpStream::connect(to).expect("a connection attempt is not refused");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    client.write_all(request).expect("not reset when asking");
    let mut reply = Vec::new();
    match client.read_to_end(&mut reply) {
        Ok(0) => false,
        Ok(_) => {
            let whole = reply.starts_with(b"HTTP/1.1 200 ") && reply.ends_with(b"Hello, World!");
            assert!(whole, "{:?}", String::from_utf8_lossy(&reply));
            true
        }
        Err(e) => panic!("{e}"),
    }
}

/// The whole of it: a durable store under load, HTTP, a Unix socket and the admin listener beside it.
/// Long form: `TIDEWIRE_HANDOVERS=100 cargo test -p tidewire-cli --test command takeover_attacks::every_acknowledged`.
#[test]
fn every_acknowledged_set_is_there_after_handovers_under_load() {
    for engine in engines() {
        let place = Place::new();
        let (control, data, unix) = (
            place.path("control.sock"),
            place.path("data"),
            place.path("echo.sock"),
        );
        let listen = format!("echo=unix:{unix}");
        let args = [
            "serve",
            "kv/resp",
            "http",
            "echo",
            "--engine",
            engine,
            "--workers",
            "2",
            "--durability",
            "sync",
            "--data",
            &data,
            "--segment",
            "8MiB",
            "--listen",
            "kv/resp=0",
            "--listen",
            "http=0",
            "--listen",
            &listen,
            "--control",
            &control,
            "--admin",
            "0",
        ];
        let mut server = Server::start(&args, 4);
        let [kv, web, admin] = [0, 1, 3].map(|line| server.addr(line));
        let over = Arc::new(AtomicBool::new(false));
        let setters: Vec<_> = (0..3)
            .map(|name| {
                let over = over.clone();
                thread::spawn(move || set_keys(kv, name, &over))
            })
            .collect();
        let visitor = {
            let over = over.clone();
            thread::spawn(move || {
                let mut served = 0;
                while !over.load(SeqCst) {
                    served += u32::from(get(web));
                }
                served
            })
        };
        for _ in 0..handovers() {
            let next = Server::start(&with(&args, &["--takeover"]), 4);
            assert_eq!(next.lines, server.lines);
            let log = std::mem::replace(&mut server, next).ends();
            assert!(log.contains("the logs are committed"), "{log}");
            assert!(ready(admin).contains("serving"));
            echo_again(&mut UnixStream::connect(&unix).unwrap());
        }
        over.store(true, SeqCst);
        let keys: Vec<String> = setters
            .into_iter()
            .flat_map(|s| s.join().unwrap())
            .collect();
        let served = visitor.join().unwrap();
        assert_all_set(kv, &keys);
        server.stop();
        // The data is in the log, not only in memory.
        let again = Server::start(&args, 4);
        assert_all_set(again.addr(0), &keys);
        again.stop();
        println!(
            "{engine}: {} handovers, {} keys, {served} requests",
            handovers(),
            keys.len()
        );
    }
}

/// Killed at any moment, be it while it starts, has the listeners, waits for the log, or serves: a
/// server serves afterwards, with all that was acknowledged.
#[test]
fn a_successor_killed_at_any_moment_loses_nothing() {
    let place = Place::new();
    let (control, data) = (place.path("control.sock"), place.path("data"));
    let args = [
        "serve",
        "kv/resp",
        "--durability",
        "sync",
        "--data",
        &data,
        "--segment",
        "8MiB",
        "--listen",
        "kv/resp=0",
        "--control",
        &control,
    ];
    let mut server = Server::start(&args, 1);
    let to = server.addr(0);
    let listen = format!("kv/resp={to}");
    let again = with(&args[..8], &["--listen", &listen, "--control", &control]);
    let mut keys = Vec::new();
    for n in 0..20 {
        let key = format!("key:{n}");
        drop(resp(to, &format!("SET {key} {key}\r\n"), "+OK\r\n"));
        keys.push(key);
        let next = Running::from(spawn(tidewire(&with(&args, &["--takeover"]))));
        thread::sleep(Duration::from_millis(n * 7));
        next.signal(Signal::KILL);
        next.end();
        // Either the old one goes on, or it had made way already.
        let served = TcpStream::connect(to).is_ok_and(|mut client| {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let asked = client.write_all(b"PING\r\n");
            asked.and_then(|()| client.read_exact(&mut [0; 7])).is_ok()
        });
        if !served {
            let log = server.ends();
            assert!(log.contains("a successor serves"), "{log}");
            server = Server::start(&again, 1);
        }
        assert_all_set(to, &keys);
    }
    server.stop();
}

/// Two at once: one of them serves afterwards, the other is told why it does not, or has come
/// second and been succeeded; new clients notice nothing.
#[test]
fn of_two_successors_at_once_one_serves() {
    for _ in 0..5 {
        let place = Place::new();
        let control = place.path("control.sock");
        let args = ["serve", "echo", "--listen", "echo=0", "--control", &control];
        let old = Server::start(&args, 1);
        let load = Load::on(old.addr(0), 4);
        let next = || Running::from(spawn(tidewire(&with(&args, &["--takeover"]))));
        let mut both = [next(), next()];
        let lines = both.each_mut().map(Running::line);
        let to = old.addr(0);
        old.ends();
        drop(echo(to));
        load.end();
        assert!(lines.iter().any(|line| !line.is_empty()), "none serves");
        for (one, line) in both.into_iter().zip(&lines) {
            let serves = !line.is_empty();
            if serves {
                one.signal(Signal::TERM);
            }
            let output = one.end();
            assert_code(&output, i32::from(!serves));
            let why = stderr(&output);
            let told = [
                "another takeover",
                "is stopping",
                "has gone",
                "no server can be asked",
            ];
            assert!(
                serves || told.iter().any(|told| why.contains(told)),
                "{why}"
            );
        }
    }
}

/// A meaningless packet to the control socket; the socket stays open.
fn says(control: &str, packet: &[u8]) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(control).unwrap()).unwrap();
    let _ = rustix::net::send(&socket, packet, rustix::net::SendFlags::NOSIGNAL);
    socket
}

#[test]
fn garbage_and_other_versions_at_the_control_socket_change_nothing() {
    let place = Place::new();
    let control = place.path("control.sock");
    let args = ["serve", "echo", "--listen", "echo=0", "--control", &control];
    let old = Server::start(&args, 1);
    let mut stays = echo(old.addr(0));
    for packet in [
        &b""[..],
        b"\0",
        b"{}",
        b"GET / HTTP/1.1\r\n\r\n",
        b"{\"handover\":2,\"hello\":{\"version\":\"9\",\"pid\":1,\"forget\":true}}",
        b"{\"handover\":1,\"serving\":{}}",
        b"{\"handover\":1,\"take\":{}}",
        b"{\"handover\":1,\"refuse\":{\"why\":\"because\"}}",
        &[b'['; 60_000],
        &[b'x'; 70_000],
    ] {
        drop(says(&control, packet));
        echo_again(&mut stays);
    }
    // More of them than may wait, silent: each is heard for a while, or told that it has to wait.
    let silent: Vec<OwnedFd> = (0..6).map(|_| says(&control, b"")).collect();
    echo_again(&mut stays);
    drop(silent);
    let begin = Instant::now();
    let new = loop {
        let mut next = Running::from(spawn(tidewire(&with(&args, &["--takeover"]))));
        let line = next.line();
        if !line.is_empty() {
            break next;
        }
        let why = stderr(&next.end());
        assert!(why.contains("another takeover is under way"), "{why}");
        assert!(begin.elapsed() < PATIENCE, "it never makes way");
        thread::sleep(Duration::from_millis(100));
    };
    drop(stays);
    let log = old.ends();
    assert!(log.contains("a successor does not take over"), "{log}");
    new.signal(Signal::TERM);
    assert_code(&new.end(), 0);
}

/// A running server that is stopped (Ctrl-Z, a debugger) is not taken over from, and goes on as if nothing had been.
#[test]
fn an_old_one_that_stalls_keeps_its_listeners() {
    let place = Place::new();
    let control = place.path("control.sock");
    let args = ["serve", "echo", "--listen", "echo=0", "--control", &control];
    let old = Server::start(&args, 1);
    let mut stays = echo(old.addr(0));
    old.running.signal(Signal::STOP);
    let late = run(&with(&args, &["--takeover"]));
    assert_code(&late, 1);
    assert!(
        stderr(&late).contains("does not answer"),
        "{}",
        stderr(&late)
    );
    old.running.signal(Signal::CONT);
    echo_again(&mut stays);
    drop(echo(old.addr(0)));
    drop(stays);
    let new = Server::start(&with(&args, &["--takeover"]), 1);
    old.ends();
    new.stop();
}

/// In the last moments of a stop no handshake begins, so that no connected client is reset. Not
/// where a successor has the listeners too; where it has given up, as ever.
#[test]
fn a_takeover_that_failed_leaves_a_stop_as_it_was() {
    let mut unheard = 0;
    for engine in engines() {
        for with_log in [false, true] {
            let place = Place::new();
            let (control, data) = (place.path("control.sock"), place.path("data"));
            let args = [
                "serve",
                "echo",
                "ingest",
                "--engine",
                engine,
                "--listen",
                "echo=0",
                "--listen",
                "ingest=0",
                "--data",
                &data,
                "--segment",
                "8MiB",
                "--control",
                &control,
            ];
            let old = Server::start(&args, 2);
            let to = old.addr(0);
            let (claim, _, handed) = Claim::ask(control.as_ref(), hello()).unwrap();
            if with_log {
                // The old server lets go of its log, and starts once more from what it has kept.
                claim.take(PATIENCE).unwrap();
            }
            drop((handed, claim));
            drop(echo(to));
            // The server awaits its end, so it goes on while others try.
            let stays = echo(to);
            old.running.signal(Signal::TERM);
            let begin = Instant::now();
            loop {
                assert!(begin.elapsed() < PATIENCE, "{engine}: it listens still");
                match TcpStream::connect_timeout(&to, Duration::from_millis(20)) {
                    Err(e) if e.kind() == ErrorKind::TimedOut => unheard += 1,
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::ConnectionRefused, "{e}");
                        break;
                    }
                    Ok(mut client) => {
                        client.set_read_timeout(Some(PATIENCE)).unwrap();
                        client.write_all(b"x").unwrap();
                        client
                            .read_exact(&mut [0])
                            .expect("who has connected is served");
                    }
                }
            }
            drop(stays);
            old.ends();
        }
    }
    // Each time for a tenth of a second.
    assert!(unheard > 0, "handshakes began up to the last moment");
}

/// A process of another user reaches the socket, because its mode was changed, and is refused all
/// the same.
#[test]
fn another_user_gets_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be somebody else");
        return;
    }
    let place = Place::new();
    let control = place.path("control.sock");
    let open = |path: &str, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(place.0.to_str().unwrap(), 0o755);
    // Other users may not enter the program's directory.
    let program = place.path("tidewire");
    std::fs::copy(env!("CARGO_BIN_EXE_tidewire"), &program).unwrap();
    open(&program, 0o755);
    let args = ["serve", "echo", "--listen", "echo=0", "--control", &control];
    let old = Server::start(&args, 1);
    let mut stays = echo(old.addr(0));
    let somebody = || {
        let asked = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", &program])
            .args(with(&args, &["--takeover", "--admin", "off"]))
            .current_dir("/")
            .stdin(Stdio::null())
            .output();
        asked.ok()
    };
    let Some(asked) = somebody() else {
        println!("skipped: there is no setpriv (Debian: util-linux)");
        return;
    };
    assert_code(&asked, 1);
    let why = stderr(&asked);
    assert!(why.contains("Permission denied"), "the mode is 0600: {why}");
    open(&control, 0o666);
    let asked = somebody().unwrap();
    assert_code(&asked, 1);
    echo_again(&mut stays);
    drop(stays);
    let log = old.stop();
    assert!(
        log.contains("user 65534 is neither root nor user 0"),
        "{log}"
    );
}
