//! Logs that fail: no client may believe that all is well.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::common::durable::{Place, Server, assert_code};
use crate::common::{PATIENCE, Running, stderr};
use rustix::process::Signal;

#[test]
fn a_failed_log_ends_the_server_with_an_error() {
    let place = Place::new();
    let server = Server::that_may_fail(&place, &[]);
    assert_code(&server.send(&[], "before\n"), 0);
    server.forbid_writing();
    let output = server.send(&["--retry", "0"], "after\n");
    assert_code(&output, 2);
    let message = stderr(&output);
    assert!(
        message.contains("log failed") && message.contains("0 messages were acknowledged"),
        "{message}"
    );
    // No signal asked it to end.
    let output = server.running.end();
    assert_code(&output, 2);
    let message = stderr(&output);
    assert!(
        message.contains("has stopped for good")
            && message.contains("tidewire: the durable log in"),
        "{message}"
    );
}

#[test]
fn a_server_that_is_to_go_on_refuses_and_serves_what_is_stored() {
    let place = Place::new();
    let server = Server::that_may_fail(&place, &["--on-log-failure", "refuse"]);
    assert_code(&server.send(&[], "before\n"), 0);
    server.forbid_writing();
    assert_code(&server.send(&["--retry", "0"], "after\n"), 2);
    // For longer than it takes to notice.
    let begin = Instant::now();
    for _ in 0..3 {
        let output = server.send(&["--retry", "0"], "again\n");
        assert_code(&output, 1);
        assert!(
            stderr(&output).contains("log failed"),
            "{}",
            stderr(&output)
        );
        assert_eq!(server.read(&["--raw"]), "before\n");
        std::thread::sleep(std::time::Duration::from_millis(600));
        assert!(begin.elapsed() < PATIENCE);
    }
    server.running.signal(Signal::TERM);
    assert_code(&server.running.end(), 2);
}

#[test]
fn why_no_room_can_be_reserved_is_told() {
    let place = Place::new();
    let server = Server::that_may_fail(&place, &[]);
    // Not a full disk: fallocate says EFBIG.
    server.limit_files(1 << 20);
    let input = format!("{}\n", "x".repeat(1 << 17)).repeat(16);
    let sent = std::thread::scope(|scope| {
        let sending = scope.spawn(|| server.send(&["--retry", "60s"], &input));
        // For longer than it takes to notice.
        std::thread::sleep(std::time::Duration::from_secs(4));
        server.limit_files(1 << 40);
        sending.join().expect("it ends")
    });
    assert_code(&sent, 0);
    assert_eq!(server.read(&["--raw"]), input);
    // The sender is told what it waits for.
    let told = stderr(&sent);
    assert!(
        told.contains("waiting") && told.contains("File too large"),
        "{told}"
    );
    let said = stderr(&server.stop());
    assert!(
        said.contains("accepts no messages for now") && said.contains("File too large"),
        "{said}"
    );
    assert!(!said.contains("full"), "{said}");
}

/// Where blocks are copied when they are written no room can be held: the start says that a full disk may end the log.
#[test]
fn where_no_room_can_be_held_the_start_says_so() {
    const PROMISE: &str = "disk space cannot be reserved";
    let place = Place::new();
    assert!(!stderr(&Server::start(&place).stop()).contains(PROMISE));

    let (image, at) = (place.path("btrfs.img"), place.path("btrfs"));
    fs::create_dir(&at).unwrap();
    File::create(&image).unwrap().set_len(150 << 20).unwrap();
    let done = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        output.is_ok_and(|output| output.status.success())
    };
    let mount = "mount -o loop \"$1\" \"$2\"";
    let works = done("mkfs.btrfs", &["-q", "-f", &image])
        && done("unshare", &["-m", "sh", "-c", mount, "sh", &image, &at]);
    if !works {
        eprintln!(
            "skipped: no btrfs can be made and mounted here (mkfs.btrfs, loop devices, root)"
        );
        return;
    }
    let serve = format!("{mount} && shift 2 && exec \"$@\"");
    let command = Command::new("unshare")
        .args(["-m", "sh", "-c", &serve, "sh", &image, &at])
        .arg(env!("CARGO_BIN_EXE_tidewire"))
        .args(["serve", "ingest", "--listen", "ingest=0", "--data", &at])
        .args(["--admin", "off", "--control", "off"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut running = Running::from(command.unwrap());
    let line = running.line();
    assert!(line.contains(" addr="), "{line}");
    running.signal(Signal::TERM);
    let output = running.end();
    assert_code(&output, 0);
    assert!(stderr(&output).contains(PROMISE), "{}", stderr(&output));
}
