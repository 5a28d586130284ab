//! `serve`, `send`, `read` and `log` together: what is acknowledged is there, whatever happens.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::durable::{Place, Server, assert_code, lines, send, sending, spawn};
use crate::common::{PATIENCE, Running, addr, run, stderr, stdout, tidewire};
use rustix::process::Signal;

#[test]
fn what_is_sent_is_read_back_after_a_restart() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&[], "one\n\ntwo\nthe end"), 0);
    let log = stderr(&server.stop());
    assert!(log.contains("messages=4"), "{log}");

    let server = Server::start(&place);
    assert_eq!(server.read(&["--raw"]), "one\n\ntwo\nthe end\n");
    assert_eq!(server.read(&["--raw", "--from", "2"]), "two\nthe end\n");
    assert_eq!(server.read(&["--raw", "--count", "1"]), "one\n");
    assert_eq!(server.read(&["--raw", "--from", "tail"]), "");
    assert_eq!(server.read(&["--raw", "--since", "1h"]).lines().count(), 4);
    assert_eq!(
        server.read(&["--raw", "--since", "2999-01-01T00:00:00Z"]),
        ""
    );
    let text = server.read(&["--from", "3"]);
    assert!(
        text.starts_with("3 2") && text.ends_with("Z - 4 the end\n"),
        "{text}"
    );
    let json = server.read(&["--json", "--count", "1"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["position"], &json["payload"]),
        (&0.into(), &"one".into())
    );
    server.stop();
}

#[test]
fn files_and_length_prefixes() {
    let place = Place::new();
    let server = Server::start(&place);
    let (a, b) = (place.file("a", "1\n2\n"), place.file("b", "3\n4\n5"));
    assert_code(&server.send(&[&a, "-", &b], "in between\n"), 0);
    assert_eq!(server.read(&["--raw"]), "1\n2\nin between\n3\n4\n5\n");
    let framed = place.file("framed", b"\x02\0\0\0\xffx\x00\0\0\0");
    let args = ["--format", "length-prefixed", "--stream", "bin", &framed];
    assert_code(&server.send(&args, ""), 0);
    let json = server.read(&["--stream", "bin", "--json"]);
    assert!(json.contains("\"payload_base64\":\"/3g=\""), "{json}");
    assert!(json.contains("\"payload\":\"\""), "{json}");
    let cut = place.file("cut", b"\x02\0\0\0x");
    let output = server.send(&["--format", "length-prefixed", &cut], "");
    assert_code(&output, 2);
    assert!(stderr(&output).contains("in the middle of message 1"));
    server.stop();
}

#[test]
fn a_named_producer_repeats_the_command_until_it_succeeds() {
    let place = Place::new();
    let server = Server::start(&place);
    let input = place.file("input", lines(5));
    assert_code(&server.send(&["--producer", "p", &input], ""), 0);
    // The file is sent once more, after it has grown.
    fs::write(&input, lines(8)).unwrap();
    let output = server.send(&["--producer", "p", &input], "");
    assert_code(&output, 0);
    assert!(stderr(&output).contains("5 skipped"), "{}", stderr(&output));
    assert_eq!(server.read(&["--raw"]), lines(8));
    // Standard input, and --append, go on after the mark.
    assert_code(&server.send(&["--producer", "p"], "9\n"), 0);
    let more = place.file("more", "10\n");
    assert_code(&server.send(&["--producer", "p", "--append", &more], ""), 0);
    assert_eq!(server.read(&["--raw", "--from", "8"]), "9\n10\n");
    server.stop();
}

/// What is new in a file that was rotated must not pass for what the server has.
#[test]
fn a_file_that_is_shorter_than_what_was_sent_is_refused() {
    let place = Place::new();
    let server = Server::start(&place);
    let input = place.file("input", lines(10));
    assert_code(&server.send(&["--producer", "p", &input], ""), 0);
    fs::write(&input, "11\n12\n").unwrap();
    let output = server.send(&["--producer", "p", &input], "");
    assert_code(&output, 2);
    let said = stderr(&output);
    assert!(said.contains("2 messages, and the server has 10"), "{said}");
    assert!(said.contains("tidewire ship"), "{said}");
    assert_eq!(server.read(&["--raw"]), lines(10));
    server.stop();
}

/// Nothing is sent for longer than producers are remembered: another one is forgotten meanwhile.
#[test]
fn a_producer_that_is_connected_is_not_forgotten() {
    let place = Place::new();
    let server = Server::with(&place, "ingest=0", &["--remember-producers", "1s"]);
    let (mut stdin, sender) = sending(&["send", "--to", &server.to, "--producer", "connected"]);
    stdin.write_all(b"one\n").unwrap();
    let away = || server.send(&["--stream", "other", "--producer", "away"], "x\n");
    assert_code(&away(), 0);
    let since = Instant::now();
    while !stderr(&away()).contains("forgotten") {
        assert!(since.elapsed() < PATIENCE);
        thread::sleep(Duration::from_secs(3));
    }
    stdin.write_all(b"two\n").unwrap();
    drop(stdin);
    assert_code(&sender.end(), 0);
    assert_eq!(server.read(&["--raw"]), "one\ntwo\n");
    server.stop();
}

/// Kills the server in the middle of sending, again and again.
#[test]
fn a_killed_server_loses_nothing_acknowledged_and_stores_nothing_twice() {
    let place = Place::new();
    let mut server = Server::start(&place);
    let to = server.to.clone();
    let input = place.file("input", lines(400_000));
    let args = ["send", "--to", &to, "--producer", "p", &input];
    let sender = Running::start(&args);
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(30));
        let to = server.kill();
        server = Server::with(&place, &format!("ingest={to}"), &[]);
    }
    let output = sender.end();
    assert_code(&output, 0);
    let read = server.read(&["--raw"]);
    assert!(read == lines(400_000), "{} lines", read.lines().count());
    server.stop();
}

#[test]
fn each_line_is_sent_at_once_and_followed() {
    let place = Place::new();
    let server = Server::start(&place);
    let (mut tail, sender) = sending(&["send", "--to", &server.to, "--producer", "p"]);
    let mut reader = Running::start(&["read", "--to", &server.to, "--raw", "--follow"]);
    for line in ["first", "second", "third"] {
        writeln!(tail, "{line}").unwrap();
        assert_eq!(reader.line(), line);
    }
    // Ctrl-C at the end of a `tail -f`: everything was acknowledged.
    sender.signal(Signal::INT);
    assert_code(&sender.end(), 0);
    let to = server.kill();
    let server = Server::with(&place, &format!("ingest={to}"), &[]);
    assert_code(&server.send(&[], "fourth\n"), 0);
    assert_eq!(reader.line(), "fourth", "the reader comes back");
    server.stop();
}

#[test]
fn a_producer_connected_twice_learns_of_it() {
    let place = Place::new();
    let server = Server::start(&place);
    let (mut older_input, older) = sending(&["send", "--to", &server.to, "--producer", "p"]);
    writeln!(older_input, "old").unwrap();
    let begin = Instant::now();
    while server.read(&["--raw"]) != "old\n" {
        assert!(begin.elapsed() < PATIENCE);
    }
    assert_code(&server.send(&["--producer", "p"], "new\n"), 0);
    // Written before it knows, so not acknowledged.
    let _ = writeln!(older_input, "late");
    drop(older_input);
    let output = older.end();
    assert_code(&output, 2);
    let message = stderr(&output);
    assert!(
        message.contains("fenced") && message.contains("1 messages were acknowledged"),
        "{message}"
    );
    assert_eq!(server.read(&["--raw"]), "old\nnew\n");
    server.stop();
}

#[test]
fn exit_statuses_say_what_became_of_it() {
    let place = Place::new();
    let server = Server::with(
        &place,
        "ingest=0",
        &["--sync", "os", "--log-payload", "100"],
    );
    // Durable is not to be had.
    let output = server.send(&[], "x\n");
    assert_code(&output, 1);
    assert!(
        stderr(&output).contains("ask for level received"),
        "{}",
        stderr(&output)
    );
    assert_code(&server.send(&["--level", "received"], "x\n"), 0);
    // One line is too large: the lines before it are sent.
    let input = format!("y\n{}\nz\n", "-".repeat(101));
    let output = server.send(&["--level", "received"], &input);
    assert_code(&output, 2);
    let message = stderr(&output);
    assert!(
        message.contains("message 2 is too large") && message.contains("100 bytes"),
        "{message}"
    );
    assert_eq!(server.read(&["--raw"]), "x\ny\n");

    // No server acknowledges any more.
    let args = [
        "send", "--to", &server.to, "--level", "received", "--retry", "0",
    ];
    let (mut input, sender) = sending(&args);
    writeln!(input, "before").unwrap();
    let begin = Instant::now();
    while server.read(&["--raw"]) != "x\ny\nbefore\n" {
        assert!(begin.elapsed() < PATIENCE);
    }
    let to = server.kill();
    writeln!(input, "after").unwrap();
    drop(input);
    let output = sender.end();
    assert_code(&output, 2);
    let message = stderr(&output);
    assert!(
        message.contains("1 messages were acknowledged"),
        "{message}"
    );

    let output = send(&to, &["--retry", "0"], "x\n");
    assert_code(&output, 1);
    let message = stderr(&output);
    assert!(
        message.contains(&to) && message.contains("tidewire serve"),
        "{message}"
    );
    assert_code(&run(&["read", "--to", &to, "--retry", "0"]), 1);
    assert_code(&run(&["send", "--to", &to, "/nowhere/at/all"]), 1);
    assert_code(&run(&["send", "--level", "certain"]), 2);
    assert_code(&run(&["read", "--from", "there"]), 2);
}

#[test]
fn a_closed_stdout_ends_reading_quietly() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&[], &lines(100_000)), 0);
    let mut child = spawn(tidewire(&["read", "--to", &server.to, "--raw", "--follow"]));
    let mut out = BufReader::with_capacity(16, child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "line 1\n");
    drop(out);
    drop(child.stdin.take());
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert_eq!(said, "");
    server.stop();
}

#[test]
fn a_cursor_goes_on_where_it_was_left() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&[], "1\n2\n3\n4\n"), 0);
    let args = ["--raw", "--cursor", "billing"];
    assert_eq!(
        server.read(&[&args[..], &["--count", "2"]].concat()),
        "1\n2\n"
    );
    assert_eq!(server.read(&args), "3\n4\n");
    assert_eq!(server.read(&args), "");
    server.stop();
    let server = Server::start(&place);
    assert_code(&server.send(&[], "5\n"), 0);
    assert_eq!(server.read(&args), "5\n");
    server.stop();
}

#[test]
fn classic_ports_store_at_a_level() {
    let place = Place::new();
    let mut server = Server::with(
        &place,
        "ingest=0",
        &[
            "--listen",
            "ack/request-reply=0",
            "--ack-level",
            "durable",
            "--ack-stream",
            "classic",
        ],
    );
    let line = server.running.line();
    let mut client = std::net::TcpStream::connect(addr(&line)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"message1\0\0\0\x05Hello").unwrap();
    let mut ack = [0; 8];
    client.read_exact(&mut ack).unwrap();
    assert_eq!(&ack, b"message1");
    drop(client);
    let to = server.kill();
    let server = Server::with(&place, &format!("ingest={to}"), &[]);
    assert_eq!(server.read(&["--raw", "--stream", "classic"]), "Hello\n");
    server.stop();
}

#[test]
fn tokens_are_asked_for() {
    let place = Place::new();
    // The hash of "open sesame".
    let config = place.file(
        "tidewire.toml",
        "[[ingest.tokens]]\nname = 'cave'\nstreams = ['gold']\n\
         sha256 = '41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb'\n",
    );
    let server = Server::with(&place, "ingest=0", &["--config", &config]);
    let secret = place.file("secret", "open sesame\n");
    let token = ["--token-file", &secret];
    for args in [
        vec!["--stream", "gold"],
        vec!["--stream", "silver", token[0], token[1]],
    ] {
        let output = server.send(&args, "x\n");
        assert_code(&output, 1);
        assert!(
            stderr(&output).contains("unauthorised"),
            "{}",
            stderr(&output)
        );
    }
    let args = ["--stream", "gold", token[0], token[1]];
    assert_code(&server.send(&args, "x\n"), 0);
    assert_eq!(server.read(&[&args[..], &["--raw"]].concat()), "x\n");
    server.stop();
}

#[test]
fn a_log_that_cannot_be_opened_is_said_with_status_1() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&[], &lines(10)), 0);
    let data = place.path("data");
    let serve = ["serve", "ingest", "--listen", "ingest=0", "--data", &data];
    // Another process has the log.
    let output = run(&serve);
    assert_code(&output, 1);
    let message = stderr(&output);
    assert!(
        message.contains(&data) && message.contains("--data"),
        "{message}"
    );
    server.stop();

    let file = place.file("file", "");
    let below = Path::new(&file).join("data");
    let output = run(&["serve", "ingest", "--data", below.to_str().unwrap()]);
    assert_code(&output, 1);
    assert!(
        stderr(&output).contains(below.to_str().unwrap()),
        "{}",
        stderr(&output)
    );

    // Services without a log open none.
    let dir = place.path("unused");
    let mut echo = Running::start(&["serve", "echo", "--listen", "echo=0", "--data", &dir]);
    assert!(echo.line().starts_with("listening"));
    assert!(!Path::new(&dir).exists());
}

#[test]
fn a_damaged_log_is_told_from_a_torn_one_and_repaired_when_agreed() {
    let place = Place::new();
    let data = place.path("data");
    let log = |args: &[&str]| run(&[&["log", args[0], "--data", &data], &args[1..]].concat());
    assert_code(&log(&["info"]), 1);

    let server = Server::start(&place);
    for n in 0..5 {
        assert_code(
            &server.send(&["--producer", "p"], &format!("line {n}\n")),
            0,
        );
    }
    // A server has the log open: that changes nothing for commands that only look.
    assert_code(&log(&["check"]), 0);
    let output = log(&["repair"]);
    assert_code(&output, 1);
    assert!(
        stderr(&output).contains("stop the server"),
        "{}",
        stderr(&output)
    );
    server.kill();

    let output = log(&["info"]);
    assert_code(&output, 0);
    let info = stdout(&output);
    assert!(info.contains("\"default\" positions 0..5"), "{info}");
    assert!(info.contains("producers   1"), "{info}");
    let output = log(&["dump", "--records"]);
    assert_code(&output, 0);
    let dump = stdout(&output);
    assert!(dump.contains("3 id=4 bytes=6 \"line 3\""), "{dump}");
    assert_code(&log(&["check"]), 0);
    assert_code(&log(&["repair"]), 0);

    // A bit of a payload that was acknowledged.
    let segment = fs::read_dir(&data)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            let bytes = fs::read(path).unwrap();
            bytes.windows(6).any(|window| window == b"line 1")
        })
        .unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes
        .windows(6)
        .position(|window| window == b"line 1")
        .unwrap();
    bytes[at] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap().to_owned();
    let output = run(&["serve", "ingest", "--listen", "ingest=0", "--data", &data]);
    assert_code(&output, 2);
    let message = stderr(&output);
    assert!(
        message.contains(&name) && message.contains("log check"),
        "{message}"
    );
    let output = log(&["check"]);
    assert_code(&output, 2);
    assert!(stdout(&output).contains("damage") && stdout(&output).contains(&name));
    assert_code(&log(&["info"]), 2);
    assert_code(&log(&["dump"]), 2);
    let output = log(&["repair"]);
    assert_code(&output, 2);
    assert!(stderr(&output).contains("--yes"), "{}", stderr(&output));
    let output = log(&["repair", "--yes"]);
    assert_code(&output, 0);
    assert!(
        stdout(&output).contains("\"default\" positions 1..2, 1 records"),
        "{}",
        stdout(&output)
    );
    assert_code(&log(&["check"]), 0);
    let output = log(&["dump", &format!("{name}.cut")]);
    assert_code(&output, 2);
    assert!(stdout(&output).contains("first=4 count=1"));

    assert!(stdout(&log(&["info"])).contains("lost        \"default\" positions 1..2"));

    // Readers are told, at the server and without one.
    let server = Server::start(&place);
    for from in [["--to", &server.to], ["--data", &data]] {
        let output = run(&[&["read", "--raw"], &from[..]].concat());
        assert_code(&output, 2);
        assert_eq!(stdout(&output), "line 0\nline 2\nline 3\nline 4\n");
        let said = stderr(&output);
        assert!(said.contains("records from 1 up to 2 are lost"), "{said}");
        let output = run(&[&["read", "--json"], &from[..]].concat());
        assert_code(&output, 2);
        let objects = stdout(&output);
        let gap = "{\"missing\":{\"first\":1,\"next\":2}}";
        assert_eq!(objects.lines().nth(1), Some(gap), "{objects}");
    }
    server.stop();
}
