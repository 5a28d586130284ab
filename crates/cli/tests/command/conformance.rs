//! `clients/ingest/conformance`, which knows nothing but docs/formats/protocol.md, against `serve`, `send` and `read`.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::durable::{Place, Server};
use crate::common::{Running, stderr, stdout};

/// Runs the program, which must pass all its cases; how many there were. `None` without Python.
fn conformance(args: &[&str]) -> Option<usize> {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        eprintln!("left out: no python3 here");
        return None;
    }
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/ingest");
    let child = Command::new("python3")
        .arg("-B")
        .arg(clients.join("conformance"))
        .args(args)
        .env_remove("TIDEWIRE_TOKEN")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = Running::from(child).end();
    let shown = stdout(&output);
    assert!(output.status.success(), "{shown}{}", stderr(&output));
    Some(shown.lines().filter(|line| line.starts_with("ok")).count())
}

#[test]
fn the_server_does_what_the_protocol_says() {
    let place = Place::new();
    let server = Server::start(&place);
    if let Some(cases) = conformance(&["server", &server.to]) {
        assert!(cases >= 20, "{cases} cases");
    }
    server.stop();
}

#[test]
fn the_client_does_what_the_protocol_says() {
    let tidewire = env!("CARGO_BIN_EXE_tidewire");
    let send = [
        "client",
        tidewire,
        "send",
        "--to",
        "{addr}",
        "--producer",
        "p",
    ];
    if let Some(cases) = conformance(&send) {
        assert!(cases >= 40, "{cases} cases");
    }
}

#[test]
fn the_reader_does_what_the_protocol_says() {
    let tidewire = env!("CARGO_BIN_EXE_tidewire");
    let read = ["reader", tidewire, "read", "--to", "{addr}", "--raw"];
    if let Some(cases) = conformance(&read) {
        assert!(cases >= 20, "{cases} cases");
    }
    let read = [
        "cursor", tidewire, "read", "--to", "{addr}", "--raw", "--cursor", "c",
    ];
    if let Some(cases) = conformance(&read) {
        assert!(cases >= 2, "{cases} cases");
    }
}
