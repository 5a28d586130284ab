//! `serve --takeover`: a successor has the listeners, and no new client is turned away.

use crate::common::durable;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::durable::{Place, assert_code, sending};
use crate::common::handover::{
    Load, Server, echo, echo_again, handovers, hello, ready, resp, with,
};
use crate::common::{PATIENCE, engines, run, stderr, stdout};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use tidewire_handover::Claim;

/// Accepted connections stay, new ones are the successor's, and so are the admin listener, the Unix
/// socket with its file, and the control socket, from which the next one takes over.
#[test]
fn a_successor_has_all_listeners_and_the_old_one_finishes() {
    for engine in engines() {
        for (placement, workers, next_workers) in [("shared", "2", "3"), ("acceptor", "2", "1")] {
            let place = Place::new();
            let (control, unix) = (place.path("control.sock"), place.path("echo.sock"));
            let listen = format!("echo=unix:{unix}");
            let args = [
                "serve",
                "echo",
                "--engine",
                engine,
                "--placement",
                placement,
                "--listen",
                "echo=0",
                "--listen",
                &listen,
                "--control",
                &control,
                "--admin",
                "0",
                "--linger",
                "30s",
                "--stop-deadline",
                "30s",
            ];
            let old = Server::start(&with(&args, &["--workers", workers]), 3);
            let (tcp, admin) = (old.addr(0), old.addr(2));
            let mut stays = echo(tcp);
            let next = with(&args, &["--workers", next_workers, "--takeover"]);
            let new = Server::start(&next, 3);
            assert_eq!(new.lines, old.lines, "the same places");
            assert!(ready(admin).contains("serving"));
            // Established ones are not moved: it is told, by the old one, that this is the end.
            assert_eq!(stays.read(&mut [0]).unwrap(), 0);
            drop(stays);
            let log = old.ends();
            assert!(log.contains("a successor serves"), "{log}");
            drop(echo(tcp));
            let mut local = UnixStream::connect(&unix).expect("its file is left");
            echo_again(&mut local);
            drop(local);
            let third = Server::start(&next, 3);
            new.ends();
            drop(echo(tcp));
            third.stop();
            assert!(TcpStream::connect(tcp).is_err());
            assert!(!std::path::Path::new(&unix).exists());
            assert!(!std::path::Path::new(&control).exists());
        }
    }
}

/// Long form: `TIDEWIRE_HANDOVERS=100 cargo test -p tidewire-cli --test command takeover::handovers_under_load`.
#[test]
fn handovers_under_load_refuse_and_reset_no_client() {
    for engine in engines() {
        for placement in ["shared", "acceptor"] {
            let place = Place::new();
            let control = place.path("control.sock");
            let args = [
                "serve",
                "echo",
                "--engine",
                engine,
                "--placement",
                placement,
                "--workers",
                "2",
                "--listen",
                "echo=0",
                "--control",
                &control,
            ];
            let mut server = Server::start(&args, 1);
            let load = Load::on(server.addr(0), 8);
            for n in 0..handovers() {
                let before = load.served.load(SeqCst);
                let next = Server::start(&with(&args, &["--takeover"]), 1);
                assert_eq!(next.lines, server.lines);
                std::mem::replace(&mut server, next).ends();
                let began = Instant::now();
                while load.served.load(SeqCst) == before {
                    assert!(began.elapsed() < PATIENCE, "nobody is served after {n}");
                    thread::yield_now();
                }
            }
            let served = load.end();
            server.stop();
            println!(
                "{engine} {placement}: {} handovers, {served} served",
                handovers()
            );
        }
    }
}

/// A log changes hands: every line that was sent is there once, in order, and no sender was
/// refused.
#[test]
fn handovers_with_a_log_lose_and_repeat_nothing() {
    for engine in engines() {
        let place = Place::new();
        let (control, data) = (place.path("control.sock"), place.path("data"));
        let args = [
            "serve",
            "ingest",
            "echo",
            "--engine",
            engine,
            "--workers",
            "2",
            "--listen",
            "ingest=0",
            "--listen",
            "echo=0",
            "--control",
            &control,
            "--data",
            &data,
            "--segment",
            "8MiB",
        ];
        let mut server = Server::start(&args, 2);
        let to = server.addr(0).to_string();
        let load = Load::on(server.addr(1), 2);
        let (mut input, send) = sending(&["send", "--to", &to, "--producer", "p"]);
        let mut sent = 0;
        for _ in 0..handovers() {
            for _ in 0..200 {
                sent += 1;
                writeln!(input, "line {sent}").unwrap();
            }
            let next = Server::start(&with(&args, &["--takeover"]), 2);
            for _ in 0..200 {
                sent += 1;
                writeln!(input, "line {sent}").unwrap();
            }
            let log = std::mem::replace(&mut server, next).ends();
            assert!(log.contains("the logs are committed"), "{log}");
        }
        drop(input);
        assert_code(&send.end(), 0);
        load.end();
        let read = run(&["read", "--raw", "--to", &to]);
        assert_code(&read, 0);
        let expected: String = (1..=sent).map(|n| format!("line {n}\n")).collect();
        let got = stdout(&read);
        let differs = got.lines().zip(expected.lines()).find(|(a, b)| a != b);
        let (n, of) = (got.lines().count(), expected.lines().count());
        assert!(got == expected, "{engine}: {n} lines of {of}, {differs:?}");
        server.stop();
    }
}

/// A durable store hands over like a log, and its keys are there.
#[test]
fn a_durable_store_keeps_its_keys() {
    let place = Place::new();
    let (control, data) = (place.path("control.sock"), place.path("data"));
    let args = [
        "serve",
        "kv/resp",
        "--durability",
        "sync",
        "--listen",
        "kv/resp=0",
        "--control",
        &control,
        "--data",
        &data,
    ];
    let old = Server::start(&args, 1);
    let to = old.addr(0);
    let mut client = resp(to, "SET k v\r\n", "+OK\r\n");
    let new = Server::start(&with(&args, &["--takeover"]), 1);
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "told goodbye");
    old.ends();
    resp(to, "GET k\r\n", "$1\r\nv\r\n");
    new.stop();
}

#[test]
fn keys_in_memory_alone_are_not_forgotten_unless_that_is_said() {
    let place = Place::new();
    let control = place.path("control.sock");
    let args = [
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--control",
        &control,
    ];
    let old = Server::start(&args, 1);
    let to = old.addr(0);
    drop(resp(to, "SET k v\r\n", "+OK\r\n"));
    let refused = run(&with(&args, &["--takeover"]));
    assert_code(&refused, 1);
    let why = stderr(&refused);
    assert!(
        why.contains("1 keys in memory only") && why.contains("--takeover-forget"),
        "{why}"
    );
    drop(resp(to, "GET k\r\n", "$1\r\nv\r\n"));
    let new = Server::start(&with(&args, &["--takeover", "--takeover-forget"]), 1);
    old.ends();
    drop(resp(to, "GET k\r\n", "$-1\r\n"));
    // Without a key there is nothing to forget.
    let third = Server::start(&with(&args, &["--takeover"]), 1);
    new.ends();
    third.stop();
}

/// Whatever becomes of a successor before it serves, the old one serves, with its log and all
/// waiting clients.
#[test]
fn a_successor_that_dies_changes_nothing() {
    for engine in engines() {
        let place = Place::new();
        let (control, data) = (place.path("control.sock"), place.path("data"));
        let unix = place.path("echo.sock");
        let listen = format!("echo=unix:{unix}");
        let args = [
            "serve",
            "ingest",
            "echo",
            "--engine",
            engine,
            "--workers",
            "2",
            "--listen",
            "ingest=0",
            "--listen",
            "echo=0",
            "--listen",
            &listen,
            "--control",
            &control,
            "--admin",
            "0",
            "--data",
            &data,
            "--segment",
            "8MiB",
        ];
        let old = Server::start(&args, 4);
        let (ingest, tcp) = (old.addr(0), old.addr(1));
        let send = |text| {
            let sent = durable::send(&ingest.to_string(), &[], text);
            assert_code(&sent, 0);
        };
        send("one\n");
        let mut stays = echo(tcp);
        // With the listeners, and without a word.
        drop(Claim::ask(control.as_ref(), hello()).unwrap());
        echo_again(&mut stays);
        // With the logs: a client that comes meanwhile waits, and is served by the old one when it
        // goes on.
        let (claim, _, handed) = Claim::ask(control.as_ref(), hello()).unwrap();
        assert_eq!(handed.len(), 5, "{handed:?}");
        claim.take(PATIENCE).unwrap();
        assert_eq!(stays.read(&mut [0]).unwrap(), 0, "told goodbye");
        let mut waits = TcpStream::connect(tcp).unwrap();
        waits.write_all(b"x").unwrap();
        drop((claim, handed));
        waits.set_read_timeout(Some(PATIENCE)).unwrap();
        waits.read_exact(&mut [0]).unwrap();
        drop(waits);
        send("two\n");
        echo_again(&mut UnixStream::connect(&unix).unwrap());
        assert!(ready(old.addr(3)).contains("serving"));
        // A successor can still take over from it.
        let new = Server::start(&with(&args, &["--takeover"]), 4);
        let log = old.ends();
        assert!(log.contains("this server goes on"), "{log}");
        let read = run(&["read", "--raw", "--to", &ingest.to_string()]);
        assert_eq!(stdout(&read), "one\ntwo\n");
        new.stop();
    }
}

/// A successor that was given the logs and hangs keeps no client waiting for ever: as long as it
/// holds none of them, the old one takes them back. One that holds one may be reading it.
#[test]
fn a_successor_that_hangs_with_the_logs_is_passed_over_unless_it_holds_one() {
    let place = Place::new();
    let (control, data) = (place.path("control.sock"), place.path("data"));
    let args = [
        "serve",
        "ingest",
        "echo",
        "--listen",
        "ingest=0",
        "--listen",
        "echo=0",
        "--control",
        &control,
        "--data",
        &data,
    ];
    let old = Server::start(&args, 2);
    let ingest = old.addr(0).to_string();
    let send = |text| assert_code(&durable::send(&ingest, &[], text), 0);
    send("one\n");
    let (claim, _, handed) = Claim::ask(control.as_ref(), hello()).unwrap();
    claim.take(PATIENCE).unwrap();
    // As if it had opened the log.
    let lock = File::open(format!("{data}/LOCK")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let mut waits = TcpStream::connect(old.addr(1)).unwrap();
    waits.set_read_timeout(Some(PATIENCE)).unwrap();
    waits.write_all(b"x").unwrap();
    old.running.hear("the successor holds the log");
    drop(lock);
    waits.read_exact(&mut [0]).unwrap();
    send("two\n");
    let refused = claim.serving().unwrap_err().to_string();
    assert!(refused.contains("has not opened the logs"), "{refused}");
    drop((handed, waits));
    // A successor can still take over from it.
    let new = Server::start(&with(&args, &["--takeover"]), 2);
    let log = old.ends();
    assert!(log.contains("this server goes on"), "{log}");
    let read = run(&["read", "--raw", "--to", &ingest]);
    assert_eq!(stdout(&read), "one\ntwo\n");
    new.stop();
}

/// A successor that does not take over may hold a log for a moment still, or may just have opened
/// it. The old one ended then, as if another process had the log, and no server served.
#[test]
fn a_log_that_a_refused_successor_still_holds_is_awaited() {
    let place = Place::new();
    let (control, data) = (place.path("control.sock"), place.path("data"));
    let args = [
        "serve",
        "ingest",
        "--listen",
        "ingest=0",
        "--control",
        &control,
        "--data",
        &data,
    ];
    let old = Server::start(&args, 1);
    let ingest = old.addr(0).to_string();
    let send = |text| assert_code(&durable::send(&ingest, &[], text), 0);
    send("one\n");
    let (claim, _, handed) = Claim::ask(control.as_ref(), hello()).unwrap();
    claim.take(PATIENCE).unwrap();
    let lock = File::open(format!("{data}/LOCK")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    claim.refuse("it was a mistake");
    old.running.hear("still holds the log");
    drop((lock, handed));
    send("two\n");
    let read = run(&["read", "--raw", "--to", &ingest]);
    assert_eq!(stdout(&read), "one\ntwo\n");
    old.stop();
}

/// A signal ends it meanwhile.
#[test]
fn a_server_that_awaits_its_log_ends_at_a_signal() {
    let place = Place::new();
    let (control, data) = (place.path("control.sock"), place.path("data"));
    let args = [
        "serve",
        "ingest",
        "--listen",
        "ingest=0",
        "--control",
        &control,
        "--data",
        &data,
    ];
    let old = Server::start(&args, 1);
    let (claim, _, _handed) = Claim::ask(control.as_ref(), hello()).unwrap();
    claim.take(PATIENCE).unwrap();
    let lock = File::open(format!("{data}/LOCK")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    claim.refuse("it was a mistake");
    old.running.hear("still holds the log");
    old.running.signal(Signal::TERM);
    let ended = old.running.end();
    assert!(stderr(&ended).contains("another process has this log open"));
}

#[test]
fn settings_that_do_not_fit_are_refused_and_the_old_one_goes_on() {
    let place = Place::new();
    let control = place.path("control.sock");
    let args = ["serve", "echo", "--listen", "echo=0", "--control", &control];
    let old = Server::start(&args, 1);
    let to = old.addr(0);
    let port = to.port().to_string();
    let (other, place_of) = (format!("discard={port}"), format!("echo={}", to.port() ^ 1));
    let mistaken = |args: &[&str], said: &str, status| {
        let refused = run(&with(&["serve", "--takeover", "--control", &control], args));
        assert_code(&refused, status);
        assert!(stderr(&refused).contains(said), "{}", stderr(&refused));
        drop(echo(to));
    };
    mistaken(
        &["discard", "--listen", &other],
        "these settings have discard there",
        1,
    );
    mistaken(&["echo", "--listen", &place_of], "these settings do not", 1);
    mistaken(
        &["echo", "--listen", "echo=0", "--tls-cert", "/nowhere"],
        "--tls-key",
        2,
    );
    mistaken(
        &["echo", "--listen", "echo=0", "--engine", "steam"],
        "steam",
        2,
    );
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = format!("echo={}", busy.local_addr().unwrap().port());
    mistaken(
        &["echo", "--listen", "echo=0", "--listen", &busy],
        "in use",
        1,
    );
    // A new listener is bound.
    let new = Server::start(
        &with(&args, &["--listen", "discard=0", "discard", "--takeover"]),
        2,
    );
    old.ends();
    new.stop();
    let nobody = run(&with(&args, &["--takeover"]));
    assert_code(&nobody, 1);
    assert!(
        stderr(&nobody).contains("no server can be asked"),
        "{}",
        stderr(&nobody)
    );
}

#[test]
fn one_takeover_at_a_time_and_none_while_stopping() {
    let place = Place::new();
    let control = place.path("control.sock");
    let args = [
        "serve",
        "echo",
        "--listen",
        "echo=0",
        "--control",
        &control,
        "--linger",
        "60s",
        "--stop-deadline",
        "60s",
    ];
    let old = Server::start(&args, 1);
    let stays = echo(old.addr(0));
    let first = Claim::ask(control.as_ref(), hello()).unwrap();
    let second = run(&with(&args, &["--takeover"]));
    assert_code(&second, 1);
    assert!(stderr(&second).contains("another takeover is under way"));
    drop(first);
    old.running.signal(Signal::TERM);
    // The old server lingers, as the client does not go.
    (&stays).read_exact(&mut [0]).unwrap_err();
    let late = run(&with(&args, &["--takeover"]));
    assert_code(&late, 1);
    let why = stderr(&late);
    assert!(why.contains("the running server is stopping"), "{why}");
    drop(stays);
    old.ends();
}

/// The long way round: the server starts its successor itself, as an operator asks with a signal.
#[test]
fn sigusr2_starts_a_successor() {
    let place = Place::new();
    let control = place.path("control.sock");
    let mut old = Server::start(
        &["serve", "echo", "--listen", "echo=0", "--control", &control],
        1,
    );
    let to = old.addr(0);
    // The parent stays for as long as this one does.
    let stays = echo(to);
    old.running.signal(Signal::USR2);
    // The new server prints the same line on the same pipe.
    assert_eq!(old.running.line(), old.lines[0]);
    let begun = Instant::now();
    let pid = loop {
        assert!(begun.elapsed() < PATIENCE);
        let children = format!(
            "/proc/{0}/task/{0}/children",
            old.running.pid().as_raw_nonzero()
        );
        let children = std::fs::read_to_string(children).unwrap_or_default();
        if let Some(pid) = children.split_whitespace().next() {
            break rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    };
    drop(echo(to));
    drop(stays);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    old.ends();
}
