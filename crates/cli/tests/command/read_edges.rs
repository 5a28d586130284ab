//! Looking at what is stored: beside a server, in a directory that may not be written, where there is
//! nothing; and a cursor that stands where the output was taken.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::durable::{Place, Server, assert_code, lines, spawn};
use crate::common::{Running, run, stderr, stdout, tidewire};

fn names(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_log_is_looked_at_beside_its_server() {
    let place = Place::new();
    let data = place.path("data");
    let server = Server::start(&place);
    assert_code(&server.send(&["--producer", "p"], &lines(5)), 0);
    assert_code(&server.send(&["--stream", "other"], "x\n"), 0);
    let before = names(&data);
    for args in [
        &["log", "info"][..],
        &["log", "check"],
        &["log", "dump", "--records"],
        &["log", "streams"],
        &["read", "--raw"],
    ] {
        let output = run(&[args, &["--data", &data]].concat());
        assert_code(&output, 0);
        let shown = stdout(&output);
        match args[1] {
            "info" => assert!(shown.contains("in use"), "{shown}"),
            "streams" => assert_eq!(shown, "0 5 \"default\"\n0 1 \"other\"\n"),
            "--raw" => assert_eq!(shown, lines(5)),
            _ => {}
        }
    }
    assert_eq!(names(&data), before, "something was made");
    // The server was not disturbed.
    assert_code(&server.send(&["--producer", "p"], "6\n"), 0);
    server.stop();

    // Not even the right to write is needed.
    let files = names(&data);
    for name in &files {
        fs::set_permissions(Path::new(&data).join(name), Permissions::from_mode(0o444)).unwrap();
    }
    fs::set_permissions(&data, Permissions::from_mode(0o555)).unwrap();
    let output = run(&["read", "--raw", "--from", "5", "--data", &data]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "6\n");
    assert_code(&run(&["log", "check", "--data", &data]), 0);
    assert_eq!(names(&data), files);
    fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn nothing_is_made_where_there_is_no_log() {
    let place = Place::new();
    let empty = place.path("empty");
    fs::create_dir(&empty).unwrap();
    for command in ["info", "check", "dump", "streams", "repair"] {
        let output = run(&["log", command, "--data", &empty]);
        assert_code(&output, 1);
        assert!(
            stderr(&output).contains("no log there"),
            "{}",
            stderr(&output)
        );
        assert_code(&run(&["log", command, "--data", &place.path("none")]), 1);
    }
    assert_code(&run(&["read", "--data", &empty]), 1);
    assert_eq!(names(&empty), Vec::<String>::new());
    assert!(!Path::new(&place.path("none")).exists());
}

#[test]
fn what_does_not_exist_is_an_error() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&[], "1\n2\n"), 0);
    for (args, why) in [
        (&["--stream", "typo"][..], "\"typo\""),
        (&["--stream", "typo", "--follow"], "--wait"),
        (&["--from", "3"], "next position is 2"),
    ] {
        for place in [&["--to", &server.to][..], &["--data", &place.path("data")]] {
            if args.contains(&"--follow") && place[0] == "--data" {
                continue;
            }
            let output = run(&[&["read"], place, args].concat());
            assert_code(&output, 1);
            assert!(stderr(&output).contains(why), "{}", stderr(&output));
        }
    }
    assert_eq!(server.read(&["--raw", "--from", "2"]), "");
    let mut waiting = Running::start(&[
        "read", "--to", &server.to, "--raw", "--follow", "--wait", "--stream", "later",
    ]);
    assert_code(&server.send(&["--stream", "later"], "now\n"), 0);
    assert_eq!(waiting.line(), "now");
    server.stop();
}

/// `read --cursor | head -5` once moved the cursor over all that the pipe held.
#[test]
fn a_cursor_stands_where_the_output_was_taken() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&[], &lines(100_000)), 0);
    let args = ["read", "--to", &server.to, "--raw", "--cursor", "c"];
    let mut child = spawn(tidewire(&args));
    let mut pipe = BufReader::with_capacity(100, child.stdout.take().unwrap());
    let mut line = String::new();
    for n in 1..=5 {
        line.clear();
        pipe.read_line(&mut line).unwrap();
        assert_eq!(line, format!("line {n}\n"));
    }
    // `head` loses the bytes that it took and did not show, and no more.
    let took = pipe.buffer().to_vec();
    drop(pipe);
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    let whole = 5 + took.iter().filter(|&&byte| byte == b'\n').count();
    let rest = server.read(&["--raw", "--cursor", "c"]);
    let first = rest.lines().next().unwrap();
    assert_eq!(first, format!("line {}", whole + 1));
    assert_eq!(rest.lines().count(), 100_000 - whole);
    // All of that was taken.
    assert_eq!(server.read(&["--raw", "--cursor", "c"]), "");
    server.stop();
}

/// `read` once waited for ever until its output was taken, which could not be written.
#[test]
fn a_full_disk_ends_reading_and_the_cursor_stays() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&[], &lines(100)), 0);
    let mut command = tidewire(&["read", "--to", &server.to, "--raw", "--cursor", "c"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).output().unwrap();
    assert_code(&output, 1);
    assert!(
        stderr(&output).contains("No space left"),
        "{}",
        stderr(&output)
    );
    let first = server.read(&["--raw", "--cursor", "c", "--count", "1"]);
    assert_eq!(first, "line 1\n");
    server.stop();
}

#[test]
fn asking_what_a_repair_would_lose_changes_nothing() {
    let place = Place::new();
    let data = place.path("data");
    let server = Server::start(&place);
    assert_code(&server.send(&[], &lines(5)), 0);
    server.stop();
    // A copy of the segments alone, say from a backup: not even a lock is made there.
    fs::remove_file(Path::new(&data).join("LOCK")).unwrap();
    let before = names(&data);
    let output = run(&["log", "repair", "--data", &data]);
    assert_code(&output, 0);
    assert_eq!(
        stdout(&output),
        format!("messages    {data}\nnothing to repair\n")
    );
    assert_eq!(names(&data), before);
}

/// What a server may take says nothing about what its log has: it may have been allowed more, or restored here.
#[test]
fn records_above_what_is_taken_by_now_are_read() {
    let place = Place::new();
    let server = Server::start(&place);
    let large = format!("{}\n", "x".repeat(1_000_000));
    assert_code(&server.send(&[], &large), 0);
    server.stop();
    let less = ["--max-payload", "1024", "--log-payload", "1KiB"];
    let server = Server::with(&place, "ingest=0", &less);
    assert!(server.read(&["--raw"]) == large);
    server.stop();
}
