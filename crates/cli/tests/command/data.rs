//! One meaning of --data: messages in the directory and keys in `kv` below, for every command.

use std::fs;
use std::path::Path;

use crate::common::durable::{Place, Server, assert_code, lines};
use crate::common::kv::{Client, Reply};
use crate::common::{Running, addr, run, stderr, stdout};
use rustix::process::Signal;

fn keys(data: &str, ask: &[&str]) -> Vec<Reply> {
    let args = [
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--durability",
        "sync",
        "--data",
    ];
    let mut running = Running::start(&[&args[..], &[data]].concat());
    let line = running.line();
    let mut client = Client::connect(addr(&line)).unwrap();
    let replies = ask.iter().map(|line| client.ask(line).unwrap()).collect();
    running.signal(Signal::TERM);
    running.end();
    replies
}

/// 30 messages and 3 keys in one directory.
fn both(place: &Place) -> String {
    let server = Server::start(place);
    assert_code(&server.send(&["--producer", "p"], &lines(30)), 0);
    server.stop();
    let data = place.path("data");
    keys(&data, &["SET key:1 1", "SET key:2 2", "SET key:3 3"]);
    data
}

#[test]
fn commands_act_on_messages_and_keys_and_say_so() {
    let place = Place::new();
    let data = both(&place);
    let (copy, back) = (place.path("copy"), place.path("back"));
    for args in [
        &["log", "info", "--data", &data][..],
        &["log", "check", "--data", &data],
        &["log", "repair", "--data", &data],
        &["log", "backup", "--data", &data, &copy],
        &["log", "restore", &copy, "--data", &back],
    ] {
        let output = run(args);
        assert_code(&output, 0);
        let shown = stdout(&output);
        let has = |kind: &str| shown.lines().any(|line| line.starts_with(kind));
        assert!(
            has("messages    ") && has("keys        "),
            "{args:?}: {shown}"
        );
    }
    let json = run(&["log", "check", "--json", "--data", &back]);
    let shown = stdout(&json);
    let kinds = shown.lines().map(|line| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["problems"], serde_json::json!([]));
        object["kind"].as_str().unwrap().to_owned()
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["messages", "keys"]);
    let only = run(&["log", "info", "--only", "keys", "--data", &data]);
    assert!(!stdout(&only).contains("messages"), "{}", stdout(&only));
    // The restored keys are the keys that there were.
    assert!(matches!(keys(&back, &["DBSIZE"])[..], [Reply::Int(3)]));
    let read = run(&["read", "--data", &back, "--raw"]);
    assert_eq!(stdout(&read), lines(30));
    // A record of the keys is damaged.
    let segment = fs::read_dir(Path::new(&data).join("kv"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|end| end == "seg"))
        .unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes
        .windows(5)
        .position(|window| window == b"key:2")
        .unwrap();
    bytes[at] ^= 1;
    fs::write(&segment, bytes).unwrap();
    assert_code(&run(&["log", "check", "--data", &data]), 2);
    assert_code(
        &run(&["log", "check", "--only", "messages", "--data", &data]),
        0,
    );
    let output = run(&["log", "backup", "--data", &data, &place.path("copy-2")]);
    assert_code(&output, 2);
    assert!(!fs::exists(place.path("copy-2")).unwrap());
}

#[test]
fn nothing_found_is_no_success() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&[], &lines(3)), 0);
    server.stop();
    let data = place.path("data");
    let output = run(&["kv", "export", "--data", &data, &place.path("x.rdb")]);
    assert_code(&output, 1);
    assert!(
        stderr(&output).contains("its log holds messages"),
        "{}",
        stderr(&output)
    );
    let output = run(&["log", "info", "--only", "keys", "--data", &data]);
    assert_code(&output, 1);
    assert!(
        stderr(&output).contains("messages alone"),
        "{}",
        stderr(&output)
    );
    fs::create_dir(place.path("empty")).unwrap();
    for command in ["info", "check", "streams", "repair", "dump"] {
        assert_code(&run(&["log", command, "--data", &place.path("empty")]), 1);
    }
    assert_code(
        &run(&[
            "log",
            "backup",
            "--data",
            &place.path("empty"),
            &place.path("copy"),
        ]),
        1,
    );
}

#[test]
fn a_log_of_one_kind_is_not_served_as_the_other() {
    let place = Place::new();
    let data = both(&place);
    let kv = format!("{data}/kv");
    // Messages in the place of keys.
    let mixed = place.path("mixed");
    fs::create_dir(&mixed).unwrap();
    fs::rename(&data, format!("{mixed}/kv")).unwrap();
    fs::remove_dir_all(format!("{mixed}/kv/kv")).unwrap_or_default();
    let serve = [
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--durability",
        "sync",
        "--data",
    ];
    let output = run(&[&serve[..], &[&mixed]].concat());
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains("a log of messages, and not of keys"),
        "{}",
        stderr(&output)
    );
    // Keys in the place of messages, and a store in a store.
    let place = Place::new();
    let data = both(&place);
    assert!(!fs::exists(&kv).unwrap());
    let kv = format!("{data}/kv");
    let output = run(&["serve", "ingest", "--listen", "ingest=0", "--data", &kv]);
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains("a log of keys, and not of messages"),
        "{}",
        stderr(&output)
    );
    let output = run(&[&serve[..], &[&kv]].concat());
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains("is itself the log of a key-value store"),
        "{}",
        stderr(&output)
    );
    assert!(!fs::exists(format!("{kv}/kv")).unwrap());
}

/// A copy of `DIR/kv` alone, as they were made up to version 0.2.0, goes where a server looks for keys.
#[test]
fn a_copy_of_keys_alone_is_put_where_keys_are() {
    let place = Place::new();
    let data = both(&place);
    let (copy, back) = (place.path("copy"), place.path("back"));
    assert_code(
        &run(&["log", "backup", "--data", &format!("{data}/kv"), &copy]),
        0,
    );
    assert_code(
        &run(&["kv", "export", "--data", &copy, &place.path("x.rdb")]),
        0,
    );
    assert_code(&run(&["log", "restore", &copy, "--data", &back]), 0);
    assert!(matches!(keys(&back, &["DBSIZE"])[..], [Reply::Int(3)]));
}

/// Such directories were called good, and no server opened them.
#[test]
fn messages_where_keys_belong_are_told_and_not_restored_there() {
    let place = Place::new();
    let data = both(&place);
    let (copy, wrong) = (place.path("copy"), place.path("wrong/kv"));
    let only = [
        "log", "backup", "--only", "messages", "--data", &data, &copy,
    ];
    assert_code(&run(&only), 0);
    let output = run(&["log", "restore", &copy, "--data", &wrong]);
    assert_code(&output, 2);
    let said = stderr(&output);
    assert!(
        said.contains("nothing was restored") && said.contains("keys"),
        "{said}"
    );
    assert!(!Path::new(&wrong).exists());
    // As by hand.
    fs::create_dir(place.path("wrong")).unwrap();
    fs::rename(&copy, &wrong).unwrap();
    let above = place.path("wrong");
    for args in [
        &["log", "check", "--data", &above][..],
        &["log", "check", "--json", "--data", &above],
        &["log", "repair", "--data", &above],
    ] {
        let output = run(args);
        assert_code(&output, 2);
        let said = stderr(&output);
        assert!(said.contains("holds messages"), "{args:?}: {said}");
    }
}
