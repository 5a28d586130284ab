//! `serve http` behind TLS with real clients, as far as they are installed: curl, and the HTTP
//! clients of three languages (`clients/http`), which do over TLS what they do without. What is
//! left out is said.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use crate::common::pki::Files;
use crate::common::{Running, addr, engines, stderr, stdout};

/// Runs `f` against a server on every engine; all that was asked was understood.
fn on_every_engine(files: &Files, f: impl Fn(SocketAddr)) {
    for engine in engines() {
        let args = ["serve", "http", "--listen", "http=0", "--engine", engine];
        let mut server = Running::start(&[&args[..], &files.serve()].concat());
        let line = server.line();
        assert!(line.contains(" tls=on"), "{line}");
        f(addr(&line));
        server.signal(Signal::TERM);
        let log = stderr(&server.end());
        assert!(log.contains(" malformed=0 "), "{engine}: {log}");
    }
}

fn is_there(program: &str, ask: &str) -> bool {
    let asked = Command::new(program)
        .arg(ask)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let there = asked.is_ok_and(|status| status.success());
    if !there {
        eprintln!("left out: there is no {program} here");
    }
    there
}

fn good(output: &Output) {
    let said = stdout(output) + &stderr(output);
    assert!(output.status.success(), "{}\n{said}", output.status);
}

/// Runs a program of `clients/http`, which is told by `trust` and by its last argument which
/// authority to trust.
fn check(program: &str, before: &[&str], name: &str, trust: Option<&str>, last: Option<&str>) {
    let files = Files::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/http");
    on_every_engine(&files, |at| {
        let mut command = Command::new(program);
        command.args(before).arg(source.join(name));
        command.args([at.ip().to_string(), at.port().to_string()]);
        command.arg(last.unwrap_or(files.authority()));
        if let Some(name) = trust {
            command.env(name, files.authority());
        }
        let output = command.env("GOFLAGS", "-mod=mod").output().unwrap();
        good(&output);
        assert_eq!(stdout(&output).trim(), "good");
    });
}

#[test]
fn python_http_client() {
    if is_there("python3", "--version") {
        check("python3", &[], "check.py", None, None);
    }
}

#[test]
fn node_fetch() {
    if is_there("node", "--version") {
        let trust = Some("NODE_EXTRA_CA_CERTS");
        check("node", &[], "check.mjs", trust, Some("https"));
    }
}

#[test]
fn go_net_http() {
    if is_there("go", "version") {
        check(
            "go",
            &["run"],
            "check.go",
            Some("SSL_CERT_FILE"),
            Some("https"),
        );
    }
}

#[test]
fn curl() {
    if !is_there("curl", "--version") {
        return;
    }
    let files = Files::new();
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n >> 5) as u8).collect();
    let file = files.place.path().join("body");
    fs::write(&file, &body).unwrap();
    let upload = file.to_str().unwrap();
    let asked = |at: SocketAddr, args: &[&str], path: &str| {
        Command::new("curl")
            .args(["-sS", "--noproxy", "*", "--max-time", "60"])
            .args(args)
            .arg(format!("https://{at}{path}"))
            .output()
            .unwrap()
    };
    on_every_engine(&files, |at| {
        let curl = |args: &[&str], path: &str| {
            let trusting = [&["--cacert", files.authority()], args].concat();
            let output = asked(at, &trusting, path);
            good(&output);
            output.stdout
        };
        assert_eq!(curl(&[], "/"), b"Hello, World!");
        for tls in ["1.2", "1.3"] {
            let version = ["--tls-max", tls, &format!("--tlsv{tls}")];
            assert_eq!(curl(&version, "/bytes/77").len(), 77, "{tls}");
        }
        assert!(curl(&["-T", upload], "/echo") == body);
        let chunked = ["-T", upload, "-H", "Transfer-Encoding: chunked"];
        assert!(curl(&chunked, "/echo") == body);
        let head = curl(&["-I"], "/bytes/77");
        assert!(String::from_utf8_lossy(&head).contains("content-length: 77"));
        let counting = ["-o", "/dev/null", "-w", "%{num_connects} "];
        let connections = curl(&counting, "/bytes/[1-5]");
        assert_eq!(connections, b"1 0 0 0 0 ", "one connection for all");
        // Without its authority the server has no identity.
        assert!(!asked(at, &[], "/").status.success());
    });
}
