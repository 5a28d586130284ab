//! `serve ingest kv --kv-log-keys`: clients of Redis read what was ingested, also across a SIGKILL;
//! and users without the right are shown nothing.

use std::fs;
use std::net::SocketAddr;

use rustix::process::Signal;

use crate::common::durable::{Place, assert_code, lines, send};
use crate::common::kv::{Client, Reply, text};
use crate::common::{Running, addr, engines, run, stderr};

/// A server; its place for ingest, and that for clients of Redis.
fn start(place: &Place, more: &[&str]) -> (Running, String, SocketAddr) {
    let data = place.path("data");
    let args = [
        "serve",
        "ingest",
        "kv/resp",
        "--listen",
        "ingest=0",
        "--listen",
        "kv/resp=0",
        "--data",
        &data,
        "--segment",
        "8MiB",
        "--workers",
        "2",
    ];
    let mut server = Running::start(&[&args[..], more].concat());
    let (mut ingest, mut resp) = (String::new(), None);
    for _ in 0..2 {
        let line = server.line();
        match line.contains("service=ingest") {
            true => ingest = addr(&line).to_string(),
            false => resp = Some(addr(&line)),
        }
    }
    (server, ingest, resp.expect("a line for each"))
}

fn refused(more: &[&str]) -> String {
    let place = Place::new();
    let data = place.path("data");
    let args = ["serve", "--listen", "kv/resp=0", "--data", &data];
    let output = run(&[&args[..], more].concat());
    assert_code(&output, 2);
    stderr(&output)
}

/// The array, or the error that came instead.
fn array(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(all) => all,
        other => panic!("no array: {other:?}"),
    }
}

/// Payloads behind an id, as XREAD gives them, and the last id.
fn read(client: &mut Client, last: &str, all: &mut Vec<String>) -> String {
    let line = format!("XREAD COUNT 1000 BLOCK 60000 STREAMS log:default {last}");
    let stream = array(array(client.ask(&line).unwrap()).remove(0));
    let mut last = last.to_owned();
    for entry in array(stream.into_iter().nth(1).unwrap()) {
        let mut entry = array(entry).into_iter();
        last = text(entry.next().unwrap());
        assert_eq!(last, format!("{}-1", all.len()));
        let fields: Vec<String> = array(entry.next().unwrap()).into_iter().map(text).collect();
        let names: Vec<&str> = fields.iter().step_by(2).map(String::as_str).collect();
        assert_eq!(names, ["payload", "id", "timestamp_us", "producer"]);
        assert_eq!(fields[7], "numbers");
        assert_eq!(fields[3], (all.len() + 1).to_string());
        all.push(fields[1].clone());
    }
    last
}

#[test]
fn what_is_sent_is_read_by_any_client_and_is_there_after_a_kill() {
    for engine in engines() {
        let place = Place::new();
        let own = ["--kv-log-keys", "log:", "--engine", engine];
        let (server, ingest, resp) = start(&place, &own);
        let follower = std::thread::spawn(move || {
            let mut client = Client::connect(resp).unwrap();
            let (mut last, mut all) = ("0".to_owned(), Vec::new());
            while all.len() < 1000 {
                last = read(&mut client, &last, &mut all);
            }
            (last, all)
        });
        let sent = send(&ingest, &["--producer", "numbers"], &lines(1000));
        assert_code(&sent, 0);
        let (last, mut all) = follower.join().unwrap();
        server.signal(Signal::KILL);
        server.end();

        let (server, ingest, resp) = start(&place, &own);
        let mut client = Client::connect(resp).unwrap();
        assert_eq!(client.ask("XLEN log:default").unwrap(), Reply::Int(1000));
        let all_lines = lines(1500);
        let rest = &all_lines[lines(1000).len()..];
        let again = send(&ingest, &["--producer", "numbers"], rest);
        assert_code(&again, 0);
        let mut last = last;
        while all.len() < 1500 {
            last = read(&mut client, &last, &mut all);
        }
        let sent: Vec<&str> = all_lines.lines().collect();
        assert_eq!(all, sent, "{engine}");
        // A client that waits does not hold up the end.
        client
            .send(&["XREAD BLOCK 0 STREAMS log:default $".to_owned()])
            .unwrap();
        server.signal(Signal::TERM);
        assert_code(&server.end(), 0);
    }
}

#[test]
fn it_is_shown_where_there_is_a_log_and_to_whom_it_may() {
    let place = Place::new();
    let token = place.file("token", "s3cret\n");
    for (args, words) in [
        (
            &["kv", "--kv-log-keys", "log:"][..],
            "neither is served here",
        ),
        (
            &["ack", "kv", "--kv-log-keys", "log:"],
            "neither is served here",
        ),
        (&["ingest", "kv", "--kv-log-keys", ""], "1 to 64 bytes"),
        (&["ingest", "kv", "--kv-log-reply", "1MiB"], "no effect"),
        (
            &[
                "ingest",
                "kv",
                "--kv-log-keys",
                "log:",
                "--kv-log-reply",
                "0",
            ],
            "no client could read anything",
        ),
        (&["ingest", "kv", "--kv-log-past-tokens"], "no effect"),
        (
            &[
                "ingest",
                "kv",
                "--kv-log-keys",
                "log:",
                "--ingest-token-file",
                &token,
            ],
            "--kv-log-past-tokens",
        ),
    ] {
        let message = refused(args);
        assert!(message.contains(words), "{args:?}: {message}");
    }
    let past = [
        "--kv-log-keys",
        "log:",
        "--kv-log-past-tokens",
        "--ingest-token-file",
        &token,
    ];
    let (server, _, resp) = start(&place, &past);
    let mut client = Client::connect(resp).unwrap();
    assert_eq!(client.ask("XLEN log:default").unwrap(), Reply::Int(0));
    server.signal(Signal::TERM);
    assert_code(&server.end(), 0);
}

#[test]
fn tokens_that_come_later_shut_it() {
    let place = Place::new();
    let config = place.file("tidewire.toml", "");
    let own = ["--kv-log-keys", "log:", "--config", &config];
    let (server, ingest, resp) = start(&place, &own);
    assert_code(&send(&ingest, &[], "one\n"), 0);
    let mut client = Client::connect(resp).unwrap();
    assert_eq!(client.ask("XLEN log:default").unwrap(), Reply::Int(1));
    let tokens = format!(
        "[[ingest-tokens]]\nname = \"a\"\nsha256 = \"{}\"\n",
        "ab".repeat(32)
    );
    fs::write(&config, tokens).unwrap();
    server.signal(Signal::HUP);
    server.hear("--kv-log-keys shows nothing any more");
    server.hear("the tokens of ingest were read again");
    let Reply::Line(error) = client.ask("XLEN log:default").unwrap() else {
        panic!("it is shown")
    };
    assert!(
        error.starts_with("ERR ingest asks for tokens now"),
        "{error}"
    );
}

#[test]
fn keys_that_were_there_before_are_not_hidden() {
    let place = Place::new();
    let kept = ["--durability", "sync"];
    let (server, _, resp) = start(&place, &kept);
    let mut client = Client::connect(resp).unwrap();
    client.ask("SELECT 3").unwrap();
    client.ask("SET log:own 1").unwrap();
    server.signal(Signal::TERM);
    assert_code(&server.end(), 0);
    let data = place.path("data");
    let args = [
        "serve",
        "ingest",
        "kv/resp",
        "--listen",
        "ingest=0",
        "--listen",
        "kv/resp=0",
        "--data",
        &data,
    ];
    let shown = ["--kv-log-keys", "log:"];
    let output = run(&[&args[..], &["--segment", "8MiB"], &kept, &shown].concat());
    assert_code(&output, 2);
    let message = stderr(&output);
    assert!(message.contains("\"log:own\" in database 3"), "{message}");
    let (server, _, resp) = start(&place, &[&kept[..], &["--kv-log-keys", "stream:"]].concat());
    let mut client = Client::connect(resp).unwrap();
    client.ask("SELECT 3").unwrap();
    assert_eq!(text(client.ask("GET log:own").unwrap()), "1");
    server.signal(Signal::TERM);
    assert_code(&server.end(), 0);
}
