//! What `send` does when things are not as they should be: messages too large, no server, no room.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::common::durable::{Place, Server, assert_code, spawn};
use crate::common::{PATIENCE, Running, run, stderr, tidewire};

#[test]
fn messages_that_are_too_large_have_a_policy() {
    let place = Place::new();
    let server = Server::with(&place, "ingest=0", &["--log-payload", "10"]);
    let input = "first\nfar too large\nthird\n";
    let output = server.send(&["--stream", "fail"], input);
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains("--oversized"),
        "{}",
        stderr(&output)
    );
    assert_eq!(server.read(&["--raw", "--stream", "fail"]), "first\n");

    let output = server.send(&["--stream", "skip", "--oversized", "skip"], input);
    assert_code(&output, 0);
    let said = stderr(&output);
    assert!(
        said.contains("1 left out") && said.contains("at most 10 bytes"),
        "{said}"
    );
    assert_eq!(
        server.read(&["--raw", "--stream", "skip"]),
        "first\nthird\n"
    );

    let output = server.send(&["--stream", "cut", "--oversized", "truncate"], input);
    assert_code(&output, 0);
    assert!(
        stderr(&output).contains("1 truncated"),
        "{}",
        stderr(&output)
    );
    assert_eq!(
        server.read(&["--raw", "--stream", "cut"]),
        "first\nfar too la\nthird\n"
    );
    server.stop();
}

/// The beginning of a line once passed for all of it when the command was repeated.
#[test]
fn an_interrupted_file_leaves_no_half_of_a_line() {
    let place = Place::new();
    let server = Server::start(&place);
    let fifo = place.path("log");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let sending = ["send", "--to", &server.to, "--producer", "p", &fifo];
    let sender = Running::start(&sending);
    // Less than a pipe takes at once.
    let mut file = fs::File::options().write(true).open(&fifo).unwrap();
    file.write_all(b"one\ntw").unwrap();
    let begin = Instant::now();
    while server.read(&["--raw"]) != "one\n" {
        assert!(begin.elapsed() < PATIENCE);
    }
    sender.signal(Signal::INT);
    let output = sender.end();
    assert_code(&output, 2);
    assert!(stderr(&output).contains("interrupted"));
    drop(file);
    fs::remove_file(&fifo).unwrap();
    place.file("log", "one\ntwo\nthree\n");
    assert_code(&run(&sending), 0);
    assert_eq!(server.read(&["--raw"]), "one\ntwo\nthree\n");
    server.stop();
}

#[test]
fn behind_the_last_id_everything_is_there_already() {
    let place = Place::new();
    let server = Server::start(&place);
    let last = u64::MAX.to_string();
    let output = server.send(&["--producer", "p", "--first-id", &last], "one\n");
    assert_code(&output, 0);
    let file = place.file("log", "one\ntwo\n");
    // Only two of all the messages that the server must have: another file.
    let output = server.send(&["--producer", "p", &file], "");
    assert_code(&output, 2);
    assert!(stderr(&output).contains("2 skipped"), "{}", stderr(&output));
    // The command does not wait for what cannot be sent.
    let output = server.send(&["--first-id", &last], "three\nfour\n");
    assert_code(&output, 2);
    assert_eq!(server.read(&["--raw"]), "one\nthree\n");
    server.stop();
}

#[test]
fn the_first_connection_is_tried_again_too() {
    let place = Place::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = free.local_addr().unwrap().to_string();
    drop(free);
    let mut child = spawn(tidewire(&["send", "--to", &to, "--retry", "60s"]));
    child.stdin.take().unwrap().write_all(b"early\n").unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    lines.read_line(&mut said).unwrap();
    assert!(
        said.contains(&to) && said.contains("trying again"),
        "{said}"
    );
    let server = Server::with(&place, &format!("ingest={to}"), &[]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(server.read(&["--raw"]), "early\n");
    server.stop();
    let output = run(&["read", "--to", &to, "--retry", "0"]);
    assert_code(&output, 1);
    assert!(
        !stderr(&output).contains("trying again"),
        "{}",
        stderr(&output)
    );
}

/// A server whose log is on a file system of 110 MiB; `None` if this machine does not let it be made.
fn on_a_small_disk(place: &Place) -> Option<Server> {
    let data = place.path("data");
    std::fs::create_dir(&data).unwrap();
    let mount = format!("mount -t tmpfs -o size=110m none '{data}'");
    let works = Command::new("unshare")
        .args(["-rm", "sh", "-c", &mount])
        .status();
    if !works.is_ok_and(|status| status.success()) {
        eprintln!("left out: no file system can be mounted in a namespace of one's own here");
        return None;
    }
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", &format!("{mount} && exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_tidewire"))
        .args(["serve", "ingest", "--listen", "ingest=0", "--data", &data]);
    command.args(["--engine", "epoll", "--workers", "1", "--segment", "50MiB"]);
    Some(Server::run(command))
}

#[test]
fn a_full_disk_is_not_silent() {
    let place = Place::new();
    let Some(server) = on_a_small_disk(&place) else {
        return;
    };
    let mut child = spawn(tidewire(&["send", "--to", &server.to, "--retry", "2s"]));
    let mut input = child.stdin.take().unwrap();
    let line = [vec![b'x'; 1 << 19], b"\n".to_vec()].concat();
    let begin = Instant::now();
    // More than there is room for; it stops to take any.
    for _ in 0..400 {
        if input.write_all(&line).is_err() {
            break;
        }
        assert!(begin.elapsed() < PATIENCE);
    }
    drop(input);
    let output = Running::from(child).end();
    assert_code(&output, 2);
    let said = stderr(&output);
    assert!(
        said.contains("waiting") && said.contains("disk full"),
        "{said}"
    );
    assert!(said.contains("gave up after"), "{said}");
    let said = stderr(&server.stop());
    assert!(said.contains("disk of the durable log is full"), "{said}");
}

#[test]
fn a_producer_that_was_forgotten_stores_nothing_twice_unasked() {
    let place = Place::new();
    let server = Server::with(&place, "ingest=0", &["--remember-producers", "1s"]);
    let input = place.file("input", "1\n2\n");
    let args = ["--producer", "p", &input];
    // Asking is a sign of life: each time it is away for longer.
    assert_code(&server.send(&args, ""), 0);
    let forgotten = (0..5).find_map(|n| {
        thread::sleep(Duration::from_secs(3 << n));
        let output = server.send(&args, "");
        (!output.status.success()).then_some(output)
    });
    let output = forgotten.expect("it is forgotten in the end");
    assert_code(&output, 1);
    let said = stderr(&output);
    assert!(
        said.contains("forgotten") && said.contains("--accept-duplicates"),
        "{said}"
    );
    assert_eq!(server.read(&["--raw"]), "1\n2\n");
    assert_code(
        &server.send(&["--producer", "p", "--accept-duplicates", &input], ""),
        0,
    );
    assert_eq!(server.read(&["--raw"]), "1\n2\n1\n2\n");
    server.stop();
}
