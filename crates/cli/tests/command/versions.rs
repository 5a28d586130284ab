//! What version 0.2.0 has left on disks is opened, read and gone on with (`tests/fixtures/make` makes it); and what that version says to what a newer
//! one has left: `TIDEWIRE_0_2_0` names its program, without which that is skipped.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::UNIX_EPOCH;

use rustix::process::Signal;
use tidewire_log::{EmbeddedLog, Kind, Log, ProducerId, Run, Settings};

use crate::common::durable::{Place, Server, assert_code};
use crate::common::kv::{Client, Reply};
use crate::common::{Running, addr, run, stderr, stdout};

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copied(&path, &to),
            false => drop(fs::copy(&path, &to).unwrap()),
        }
    }
}

/// A place that has what version 0.2.0 left: `data`, `state` and `app.log`.
fn place() -> Place {
    let place = Place::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-0.2.0");
    copied(&fixture, &place.0);
    place
}

fn told(word: &str, numbers: std::ops::RangeInclusive<u32>) -> String {
    numbers.map(|n| format!("{word} {n}\n")).collect()
}

fn store(place: &Place) -> (Running, Client) {
    let data = place.path("data");
    let mut running = Running::start(&[
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--admin",
        "off",
        "--control",
        "off",
        "--data",
        &data,
        "--durability",
        "sync",
    ]);
    let at = addr(&running.line());
    (running, Client::connect(at).unwrap())
}

/// The keys as they were, by their commands.
fn has_its_keys(client: &mut Client) {
    let mut is = |ask: &str, answer: &str| {
        assert_eq!(format!("{:?}", client.ask(ask).unwrap()), answer, "{ask}");
    };
    is("GET a", "Bulk(Some(\"2\"))");
    is("GET b", "Bulk(Some(\"2\"))");
    is("HGET h g", "Bulk(Some(\"2\"))");
    is("EXISTS l", "Int(0)");
    is("ZSCORE z two", "Bulk(Some(\"2\"))");
    is("XLEN s", "Int(1)");
    is("SCARD set", "Int(2)");
}

#[test]
fn the_log_of_messages_of_0_2_0_is_read_and_gone_on_with() {
    let place = place();
    let data = place.path("data");
    assert_code(&run(&["log", "check", "--data", &data]), 0);
    let offline = run(&["read", "--data", &data, "--raw"]);
    assert_code(&offline, 0);
    assert_eq!(stdout(&offline), told("line", 1..=100));
    // Twice: what the first has written is opened by the second.
    let server = Server::start(&place);
    assert_eq!(server.read(&["--raw"]), told("line", 1..=100));
    assert_eq!(
        server.read(&["--stream", "logs", "--raw"]),
        told("entry", 1..=30)
    );
    let file = place.file("file", told("line", 1..=120));
    assert_code(
        &run(&["send", &file, "--to", &server.to, "--producer", "p"]),
        0,
    );
    let listed = run(&["stream", "list", "--to", &server.to, "--json"]);
    assert!(stdout(&listed).contains("zstd"), "{}", stdout(&listed));
    let rest = server.read(&["--stream", "logs", "--cursor", "c", "--raw"]);
    assert_eq!(rest, told("entry", 11..=30));
    server.stop();
    let server = Server::start(&place);
    assert_eq!(server.read(&["--raw"]), told("line", 1..=120));
    server.stop();
    assert_code(&run(&["log", "check", "--data", &data]), 0);
    let backup = place.path("backup");
    assert_code(&run(&["log", "backup", "--data", &data, &backup]), 0);
}

#[test]
fn the_keys_of_0_2_0_are_there_and_change() {
    let place = place();
    let (running, mut client) = store(&place);
    has_its_keys(&mut client);
    assert_eq!(client.ask("INCR a").unwrap(), Reply::Int(3));
    running.signal(Signal::TERM);
    assert_code(&running.end(), 0);
    let (running, mut client) = store(&place);
    assert_eq!(client.ask("GET a").unwrap(), Reply::Bulk(Some("3".into())));
    assert_eq!(client.ask("SET a 2").unwrap(), Reply::Line("OK".into()));
    has_its_keys(&mut client);
    running.signal(Signal::TERM);
    assert_code(&running.end(), 0);
}

/// The state, but for the present place of its file.
fn moved(place: &Place) -> PathBuf {
    let log = place.0.join("app.log");
    let seen = fs::metadata(&log).unwrap();
    let born = seen.created().ok();
    let born = born.map(|at| at.duration_since(UNIX_EPOCH).unwrap().as_nanos());
    let state = place.0.join("state/checkpoint.json");
    let mut checkpoint: serde_json::Value =
        serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    let entry = &mut checkpoint["files"][0];
    for name in ["followed", "path"] {
        entry[name] = log.to_str().unwrap().into();
    }
    entry["id"]["device"] = seen.dev().into();
    entry["id"]["inode"] = seen.ino().into();
    let text = serde_json::to_string(&checkpoint).unwrap();
    // Numbers of 128 bits are none of the library's values.
    let was = entry_born(&text);
    let born = born.map_or("null".to_owned(), |born| born.to_string());
    fs::write(&state, text.replacen(&was, &format!("\"born\":{born}"), 1)).unwrap();
    log
}

fn entry_born(text: &str) -> String {
    let from = text.find("\"born\":").unwrap();
    let len = text[from..].find(['}', ',']).unwrap();
    text[from..from + len].to_owned()
}

#[test]
fn the_state_of_ship_of_0_2_0_is_gone_on_with() {
    let place = place();
    let log = moved(&place);
    let (log, state) = (log.to_str().unwrap(), place.path("state"));
    let listed = run(&["ship", "--list", "--state", &state]);
    assert!(
        stdout(&listed).contains(&format!("followed\t20\t20\t0\t{log}\t")),
        "{}",
        stdout(&listed)
    );
    fs::OpenOptions::new()
        .append(true)
        .open(log)
        .and_then(|mut file| file.write_all(b"shipped 3\n"))
        .unwrap();
    let server = Server::start(&place);
    let shipped = run(&[
        "ship", "--once", "--to", &server.to, "--stream", "files", "--state", &state, log,
    ]);
    assert_code(&shipped, 0);
    assert_eq!(
        server.read(&["--stream", "files", "--raw"]),
        told("shipped", 1..=3)
    );
    server.stop();
}

/// Version 0.2.0 refuses, in words, and changes nothing; or reads it.
#[test]
fn version_0_2_0_says_what_a_newer_one_has_left() {
    let Some(older) = std::env::var_os("TIDEWIRE_0_2_0") else {
        let words = "skipped: TIDEWIRE_0_2_0 names no program of version 0.2.0";
        writeln!(std::io::stderr(), "{words}").unwrap();
        return;
    };
    let older = |args: &[&str]| Command::new(&older).args(args).output().unwrap();
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&["--producer", "p"], &told("line", 1..=10)), 0);
    server.stop();
    let data = place.path("data");
    // The format of messages is that of 0.2.0 as yet.
    let read = older(&["read", "--data", &data, "--raw"]);
    assert_code(&read, 0);
    assert_eq!(stdout(&read), told("line", 1..=10));
    // A state of ship is read by it, without what it does not know.
    let state = place.path("state");
    let server = Server::start(&place);
    let log = place.file("app.log", "one\n");
    let to = [
        "--to",
        &*server.to,
        "--stream",
        "files",
        "--state",
        &state,
        &log,
    ];
    assert_code(&run(&[&["ship", "--once"][..], &to].concat()), 0);
    let again = older(&[&["ship", "--once"][..], &to].concat());
    assert_code(&again, 0);
    assert_eq!(server.read(&["--stream", "files", "--raw"]), "one\n");
    server.stop();
    // A log that was repaired keeps runs beside what is missing. It reads as many records as this version does.
    repaired(&place, &older);
    // A log of keys says in its segments that it is one, which 0.2.0 does not know and need not: snapshot and changes are in forms
    // that it knows. What it has done then is there for this version.
    let (running, mut client) = store(&place);
    for line in ["SET a 1", "HSET h f 1", "SAVE", "SET b 2"] {
        client.ask(line).unwrap();
    }
    running.signal(Signal::TERM);
    assert_code(&running.end(), 0);
    let keys = place.path("data/kv");
    assert_code(&older(&["log", "check", "--data", &keys]), 0);
    let (running, mut client) = older_store(&data);
    for (line, answer) in [("GET a", "1"), ("HGET h f", "1"), ("GET b", "2")] {
        let reply = client.ask(line).unwrap();
        assert_eq!(reply, Reply::Bulk(Some(answer.into())), "{line}");
    }
    for line in ["SET c 3", "SAVE", "SET d 4"] {
        assert_eq!(
            client.ask(line).unwrap(),
            Reply::Line("OK".into()),
            "{line}"
        );
    }
    running.signal(Signal::TERM);
    assert_code(&running.end(), 0);
    let (running, mut client) = store(&place);
    for (line, answer) in [("GET a", "1"), ("GET c", "3"), ("GET d", "4")] {
        let reply = client.ask(line).unwrap();
        assert_eq!(reply, Reply::Bulk(Some(answer.into())), "{line}");
    }
    running.signal(Signal::TERM);
    assert_code(&running.end(), 0);
    refuses_a_store_that_was_taken_over(&place, &older);
}

type Older<'a> = &'a dyn Fn(&[&str]) -> Output;

fn older_store(data: &str) -> (Running, Client) {
    let program = std::env::var_os("TIDEWIRE_0_2_0").unwrap();
    let mut command = Command::new(program);
    command.args(["serve", "kv/resp", "--listen", "kv/resp=127.0.0.1:0"]);
    command.args(["--admin", "off", "--control", "off"]);
    command.args(["--data", data, "--durability", "sync"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::from(command.spawn().unwrap());
    let at = addr(&running.line());
    (running, Client::connect(at).unwrap())
}

fn repaired(place: &Place, older: Older<'_>) {
    let broken = place.path("broken");
    copied(&place.0.join("data"), Path::new(&broken));
    let segment = Path::new(&broken).join(format!("{:020}.seg", 1));
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(6).position(|w| w == b"line 5").unwrap();
    bytes[at] ^= 1;
    fs::write(&segment, bytes).unwrap();
    assert_code(&run(&["log", "repair", "--data", &broken, "--yes"]), 0);
    assert_code(&older(&["log", "check", "--data", &broken]), 0);
    for stream in ["default", "files"] {
        let read = ["read", "--data", &broken, "--stream", stream, "--raw"];
        assert_eq!(stdout(&older(&read)), stdout(&run(&read)), "{stream}");
    }
}

/// The store's first record is of a kind that 0.2.0 does not know: 0.2.0 serves nothing of it, and
/// leaves it as it was.
fn refuses_a_store_that_was_taken_over(place: &Place, older: Older<'_>) {
    let taken = place.path("taken");
    let keys = Path::new(&taken).join("kv");
    let settings = Settings {
        kind: Some(Kind::Keys),
        ..Settings::default()
    };
    let (log, _) = EmbeddedLog::start(&keys, settings).unwrap();
    let stream = log.stream("kv").unwrap();
    // The record's id, size and kind.
    let frames = [&1_u64.to_le_bytes()[..], &1_u32.to_le_bytes(), &[3]].concat();
    let run = Run {
        stream,
        producer: ProducerId::ANONYMOUS,
        frames: &frames,
        count: 1,
        last_id: 1,
        timestamp_us: 1,
    };
    log.append(run).unwrap();
    log.close();
    drop(log);
    let refused = older(&[
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=127.0.0.1:0",
        "--admin",
        "off",
        "--control",
        "off",
        "--data",
        &taken,
        "--durability",
        "sync",
    ]);
    assert!(!refused.status.success());
    let said = stderr(&refused);
    assert!(said.contains("position 0"), "{said}");
    let (log, recovery) = EmbeddedLog::start(&keys, Settings::default()).unwrap();
    assert_eq!(recovery.records, 1);
    log.close();
}
