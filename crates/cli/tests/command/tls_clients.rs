//! `send` and `read` over TLS, and which servers they refuse.

use crate::common;
use std::fs;
use std::net::SocketAddr;

use crate::common::pki::{Authority, Files, NAMES};
use crate::common::{Running, addr, engines, run, stderr, stdout};
use rustix::process::Signal;

/// `serve ingest` behind TLS.
fn serve(files: &Files, more: &[&str]) -> (Running, SocketAddr) {
    let data = files.place.path().join("data");
    let mut args = vec!["serve", "ingest", "--listen", "ingest=0"];
    args.extend(["--data", data.to_str().unwrap()]);
    args.extend(files.serve());
    args.extend(more);
    let mut server = Running::start(&args);
    let line = server.line();
    assert!(line.starts_with("listening "), "{}", stderr(&server.end()));
    (server, addr(&line))
}

fn stop(server: Running) {
    server.signal(Signal::TERM);
    let output = server.end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn what_is_sent_over_tls_is_read_over_tls() {
    let files = Files::new();
    let text: String = (0..200_000).map(|n| format!("message {n}\n")).collect();
    let input = files.place.path().join("input");
    fs::write(&input, &text).unwrap();
    for engine in engines() {
        let (server, at) = serve(&files, &["--engine", engine]);
        let to = format!("localhost:{}", at.port());
        let stream = [
            "--to",
            &to,
            "--stream",
            engine,
            "--tls-ca",
            files.authority(),
        ];
        let send = run(&[&["send", input.to_str().unwrap()], &stream[..]].concat());
        assert!(send.status.success(), "{engine}: {}", stderr(&send));
        let read = run(&[&["read", "--raw"], &stream[..]].concat());
        assert!(read.status.success(), "{engine}: {}", stderr(&read));
        assert!(
            stdout(&read) == text,
            "{engine}: {} bytes",
            read.stdout.len()
        );
        let cursor = run(&[
            &["read", "--raw", "--cursor", "c", "--count", "3"],
            &stream[..],
        ]
        .concat());
        assert!(cursor.status.success(), "{engine}: {}", stderr(&cursor));
        let rest = run(&[
            &["read", "--raw", "--cursor", "c", "--count", "1"],
            &stream[..],
        ]
        .concat());
        assert_eq!(
            stdout(&rest),
            "message 3\n",
            "{engine}: the cursor's move has arrived"
        );
        stop(server);
    }
}

#[test]
fn a_server_with_another_name_is_refused_at_once_and_in_words() {
    let files = Files::new();
    let place = files.place.path();
    let other = Authority::new();
    let foreign = place.join("foreign.pem");
    fs::write(&foreign, other.pem()).unwrap();
    let (server, at) = serve(&files, &[]);
    let to = at.to_string();
    let refused = |args: &[&str], word: &str| {
        for command in ["send", "read"] {
            let output = run(&[&[command, "--to", &to], args].concat());
            assert_eq!(output.status.code(), Some(1), "{args:?}");
            let said = stderr(&output);
            assert!(
                said.contains(word) && !said.contains("trying again"),
                "{said}"
            );
        }
    };
    let ca = files.authority();
    refused(
        &["--tls-ca", foreign.to_str().unwrap()],
        "the authority that signed the peer's certificate is not trusted",
    );
    refused(
        &["--tls-ca", ca, "--tls-name", "other.example"],
        "for another name",
    );
    files.issuer.write(place, "server", &NAMES, 2001);
    server.signal(Signal::HUP);
    // The signal is on its way.
    let start = std::time::Instant::now();
    while !stderr(&run(&["read", "--to", &to, "--tls-ca", ca])).contains("expired") {
        assert!(start.elapsed() < common::PATIENCE);
    }
    refused(&["--tls-ca", ca], "has expired");
    stop(server);
}

#[test]
fn a_server_that_asks_for_certificates_gets_them() {
    let files = Files::new();
    let place = files.place.path();
    files.issuer.write(place, "client", &["client"], 4000);
    let own = ["client.pem", "client.key"].map(|name| place.join(name).display().to_string());
    let (server, at) = serve(&files, &["--tls-client-ca", files.authority()]);
    let to = at.to_string();
    let usual = ["--to", &to, "--tls-ca", files.authority()];
    let shown = ["--tls-cert", &own[0], "--tls-key", &own[1]];
    let output = run(&[&["send", "/dev/null"], &usual[..], &shown].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let output = run(&[&["send", "/dev/null"], &usual[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("requires a client certificate"), "{said}");
    assert!(said.contains("--tls-cert and --tls-key"), "{said}");
    assert!(!said.contains("is `tidewire serve` running"), "{said}");
    stop(server);
}
