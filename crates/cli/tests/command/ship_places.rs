//! What `tidewire ship` makes of files that were sent before, that have several names, that were moved, and that have holes: real ones.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;

use crate::common::durable::{Place, Server, assert_code};
use crate::common::{run, stderr};

/// Ships what is there and ends.
fn once(server: &Server, state: &str, more: &[&str]) -> Output {
    let common = ["ship", "--once", "--to", &server.to, "--state", state];
    run(&[&common, more].concat())
}

fn append(path: &str, text: &str) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// The lines of a file that was sent were stored twice without a word.
#[test]
fn a_file_that_was_sent_is_not_shipped_before_it_is_said_how() {
    let place = Place::new();
    let server = Server::start(&place);
    let log = place.file("app.log", "one\ntwo\nthree\n");
    let send = |more: &[&str]| run(&[&["send", "--to", &server.to, &log], more].concat());
    assert_code(&send(&["--producer", "job"]), 0);
    append(&log, "four\nfive\n");
    assert_code(&send(&["--producer", "job"]), 0);
    append(&log, "six\n");
    let state = place.path("state");
    let refused = once(&server, &state, &[&log]);
    assert_code(&refused, 1);
    let said = stderr(&refused);
    for part in [
        "stream default already (position 0), sent by producer job",
        "--sent-by job",
        "--from end",
        "--from start",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_code(&once(&server, &state, &[&log, "--sent-by", "other"]), 1);
    assert_code(&once(&server, &state, &[&log, "--sent-by", "job"]), 0);
    append(&log, "seven\n");
    // The state knows the file now.
    assert_code(&once(&server, &state, &[&log]), 0);
    assert_code(&once(&server, &state, &[&log, "--sent-by", "job"]), 2);
    let all = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";
    assert_eq!(server.read(&["--raw"]), all);

    // Without a name; into another stream; from the end; and again.
    let other = place.file("other.log", "a\nb\n");
    assert_code(&run(&["send", "--to", &server.to, &other]), 0);
    let state = place.path("state-2");
    assert_code(&once(&server, &state, &[&other]), 1);
    let elsewhere = place.path("state-3");
    let args = [&*other, "--stream", "elsewhere"];
    assert_code(&once(&server, &elsewhere, &args), 0);
    assert_code(&once(&server, &state, &[&other, "--from", "end"]), 0);
    append(&other, "c\n");
    assert_code(&once(&server, &state, &[&other]), 0);
    assert_eq!(server.read(&["--raw"]), format!("{all}a\nb\nc\n"));
    // A state that was lost: that is told, and everything is shipped.
    let again = once(
        &server,
        &place.path("state-4"),
        &["--stream", "elsewhere", &other],
    );
    assert_code(&again, 0);
    assert!(
        stderr(&again).contains("as another --state shipped them"),
        "{}",
        stderr(&again)
    );
    let fewer = place.file("fewer.log", "x\n");
    let args = [&*fewer, "--sent-by", "job"];
    let refused = once(&server, &place.path("state-5"), &args);
    assert_code(&refused, 1);
    assert!(stderr(&refused).contains("has fewer"));
    server.stop();
}

/// Lines were passed over that the producer had never sent, with status 0: as many as it had sent of another file, or of what had the
/// path before; and the rest of a line that was sent before it was whole.
#[test]
fn what_another_producer_has_sent_is_compared_with_the_file() {
    let place = Place::new();
    let server = Server::start(&place);
    let send = |stream: &str, more: &[&str]| {
        let common = ["send", "--to", &server.to, "--producer", "job"];
        assert_code(
            &run(&[&common[..], &["--stream", stream], more].concat()),
            0,
        );
    };
    let ship = |stream: &str, log: &str| {
        let more = [log, "--stream", stream, "--sent-by", "job"];
        once(&server, &place.path(&format!("state-{stream}")), &more)
    };
    let lines = |what: &str, from: usize, to: usize| -> String {
        (from..to).map(|n| format!("{what} {n}\n")).collect()
    };
    let refused = |output: &Output| {
        assert_code(output, 1);
        for part in [
            "of producer \"job\" is not line",
            "--from start",
            "--from end",
        ] {
            assert!(stderr(output).contains(part), "{}", stderr(output));
        }
    };
    // Two files at once, and one after the other.
    let first = place.file("first.log", lines("first", 0, 30));
    let second = place.file("second.log", lines("second", 0, 20));
    send("both", &[&first, &second]);
    send("append", &[&first]);
    send("append", &["--append", &second]);
    append(&second, &lines("second", 20, 100));
    refused(&ship("both", &second));
    refused(&ship("append", &second));
    // Another file has the name by now.
    let other = place.file("other.log", lines("other", 0, 10));
    send("other", &[&other]);
    fs::remove_file(&other).unwrap();
    fs::write(&other, lines("new", 0, 30)).unwrap();
    refused(&ship("other", &other));
    // The last line had no end.
    let cut = place.file("cut.log", "one\ntwo\nthr");
    send("cut", &[&cut]);
    append(&cut, "ee\nfour\n");
    let shipped = ship("cut", &cut);
    assert_code(&shipped, 0);
    assert!(
        stderr(&shipped).contains("line 3 of") && stderr(&shipped).contains("stored twice"),
        "{}",
        stderr(&shipped)
    );
    let stored = server.read(&["--raw", "--stream", "cut"]);
    assert_eq!(stored, "one\ntwo\nthr\nthree\nfour\n");
    server.stop();
}

/// It was told that the server was restored from a backup.
#[test]
fn a_state_that_is_used_with_another_stream_is_told() {
    let place = Place::new();
    let server = Server::start(&place);
    let (log, state) = (place.file("a.log", "one\n"), place.path("state"));
    assert_code(&once(&server, &state, &[&log, "--stream", "s1"]), 0);
    append(&log, "two\n");
    let shipped = once(&server, &state, &[&log, "--stream", "s2"]);
    assert_code(&shipped, 0);
    let said = stderr(&shipped);
    assert!(said.contains("the state is that of stream s1"), "{said}");
    assert!(!said.contains("backup"), "{said}");
    assert_eq!(server.read(&["--raw", "--stream", "s2"]), "one\ntwo\n");
    let again = once(&server, &state, &[&log, "--stream", "s2"]);
    assert!(!stderr(&again).contains("s1"), "{}", stderr(&again));
    server.stop();
}

#[test]
fn a_directory_that_was_renamed_and_a_file_with_several_names_are_shipped_once() {
    let place = Place::new();
    let server = Server::start(&place);
    let state = place.path("state");
    let (old, new) = (place.path("logs"), place.path("logs.old"));
    fs::create_dir(&old).unwrap();
    fs::write(format!("{old}/a.log"), "one\n").unwrap();
    fs::write(format!("{old}/b.log"), "two\n").unwrap();
    let pattern = format!("{old}/*.log");
    assert_code(&once(&server, &state, &[&pattern]), 0);
    fs::rename(&old, &new).unwrap();
    append(&format!("{new}/a.log"), "three\n");
    // Under the new name, under both, through a link to the directory, and through one to the file.
    let both = format!("{}/logs*/*.log", place.path(""));
    let links = place.path("links");
    std::os::unix::fs::symlink(&new, &links).unwrap();
    fs::hard_link(format!("{new}/b.log"), format!("{new}/c.log")).unwrap();
    for pattern in [&format!("{new}/*.log"), &both, &format!("{links}/*.log")] {
        let shipped = once(&server, &state, &[pattern]);
        assert_code(&shipped, 0);
    }
    append(&format!("{new}/c.log"), "four\n");
    assert_code(
        &once(&server, &state, &[&both, &format!("{links}/*.log")]),
        0,
    );
    let read = server.read(&["--raw"]);
    let mut lines: Vec<&str> = read.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["four", "one", "three", "two"]);
    server.stop();
}

/// Nothing was written between the lines, as a writer leaves it that does not append.
#[test]
fn holes_of_a_real_file_are_not_stored() {
    let place = Place::new();
    let server = Server::start(&place);
    let state = place.path("state");
    let log = place.file("a.log", "one\nhalf");
    let file = OpenOptions::new().write(true).open(&log).unwrap();
    file.write_all_at(b"two\n", 50 << 20).unwrap();
    file.set_len(60 << 20).unwrap();
    let shipped = once(&server, &state, &[&log]);
    assert_code(&shipped, 0);
    let said = stderr(&shipped);
    assert!(
        said.contains("52428792 bytes of zeros from byte 8 on"),
        "{said}"
    );
    assert!(said.contains("has a hole of 10485756 bytes"), "{said}");
    file.write_all_at(b"three\n", (50 << 20) + 4).unwrap();
    assert_code(&once(&server, &state, &[&log]), 0);
    let rotated = format!("{log}.1");
    fs::rename(&log, &rotated).unwrap();
    File::create(&log).unwrap();
    let shipped = once(&server, &state, &[&log, "--rotate-wait", "50ms"]);
    assert_code(&shipped, 0);
    assert!(Path::new(&rotated).exists());
    assert_eq!(server.read(&["--raw"]), "one\nhalf\ntwo\nthree\n");
    server.stop();
}

/// An empty name went to the stream `default`, and other names met the server first.
#[test]
fn names_that_no_server_takes_are_refused_at_once() {
    let place = Place::new();
    let log = place.file("a.log", "one\n");
    let long = "x".repeat(256);
    // No server listens there, and nothing waits for one.
    let to = ["--to", "127.0.0.1:1"];
    for name in ["", "a\tb", &long] {
        for command in [&["send", &log][..], &["ship", &log], &["read"]] {
            let output = run(&[command, &to, &["--stream", name]].concat());
            assert_code(&output, 2);
            assert!(stderr(&output).contains("--stream"), "{}", stderr(&output));
        }
        let output = run(&[&["stream", "set", name, "--retain-age", "1d"], &to[..]].concat());
        assert_code(&output, 2);
    }
    let output = run(&[&["read", "--cursor", "@home"], &to[..]].concat());
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains("the server's own"),
        "{}",
        stderr(&output)
    );
}
