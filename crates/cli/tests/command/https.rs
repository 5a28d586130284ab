//! `serve http` behind TLS with real clients, as far as they are installed: curl, and the HTTP
//! clients of three languages (`clients/http`), which do over TLS what they do without. What is
//! left out is said.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use rustix::process::Signal;
use tidewire_tls::rustls::{AlertDescription, ClientConfig, Error};

use crate::common::pki::Files;
use crate::common::tls_client::{config, secure, socket};
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

/// What a client that offers these gets of HTTP: the protocol that was agreed upon, or why there was no handshake.
fn agreed(at: SocketAddr, files: &Files, offers: &[&str]) -> Result<Option<Vec<u8>>, io::Error> {
    let mut client = ClientConfig::clone(&config(&files.issuer.pem(), None));
    client.alpn_protocols = offers.iter().map(|name| name.as_bytes().to_vec()).collect();
    let mut stream = secure(socket(at), &Arc::new(client));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    Ok(stream.conn.alpn_protocol().map(<[u8]>::to_vec))
}

/// A client that speaks HTTP/2 alone is told so by TLS, and not by a parser. It stays so when the files were read again.
#[test]
fn http_1_1_is_agreed_upon_where_it_is_offered() {
    let files = Files::new();
    for engine in engines() {
        let admin = ["--admin", "tls:127.0.0.1:0"];
        let args = ["serve", "http", "--listen", "http=0", "--engine", engine];
        let mut server = Running::start(&[&args[..], &admin, &files.serve()].concat());
        let lines = [server.line(), server.line()];
        let listeners = lines.each_ref().map(|line| addr(line));
        for is_again in [false, true] {
            if is_again {
                server.signal(Signal::HUP);
                server.hear("were read again");
            }
            let http = Some(b"http/1.1".to_vec());
            for (at, line) in listeners.iter().zip(&lines) {
                let what = format!("{engine}, again: {is_again}, {line}");
                let offered = |offers: &[&str]| agreed(*at, &files, offers);
                assert_eq!(offered(&["h2", "http/1.1"]).unwrap(), http, "{what}");
                assert_eq!(offered(&["http/1.1"]).unwrap(), http, "{what}");
                assert_eq!(offered(&["http/1.0", "http/1.1"]).unwrap(), http, "{what}");
                let old = Some(b"http/1.0".to_vec());
                assert_eq!(offered(&["http/1.0"]).unwrap(), old, "{what}");
                assert_eq!(offered(&[]).unwrap(), None, "{what}");
                let refused = offered(&["h2"]).expect_err(&what);
                let refused = refused.downcast::<Error>().expect(&what);
                let none = Error::AlertReceived(AlertDescription::NoApplicationProtocol);
                assert_eq!(refused, none, "{what}");
            }
        }
        server.signal(Signal::TERM);
        stderr(&server.end());
    }
}

/// How a client says that it has said all.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The connection has not ended.
    Open,
    /// By TLS, and then by TCP.
    Farewell,
    /// By TCP alone.
    Fin,
}

/// The reply is whole even where the server is stopped meanwhile.
#[test]
fn a_long_reply_is_whole_whoever_has_said_all() {
    const LENGTH: usize = 8 << 20;
    let files = Files::new();
    let client = config(&files.issuer.pem(), None);
    for engine in engines() {
        for (end, is_stopped) in [
            (End::Farewell, false),
            (End::Fin, false),
            (End::Open, true),
            (End::Farewell, true),
            (End::Fin, true),
        ] {
            let what = format!("{engine}, {end:?}, stopped: {is_stopped}");
            let args = ["serve", "http", "--listen", "http=0", "--engine", engine];
            let mut server = Running::start(&[&args[..], &files.serve()].concat());
            let mut stream = secure(socket(addr(&server.line())), &client);
            let asks = format!("GET /bytes/{LENGTH} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream.write_all(asks.as_bytes()).unwrap();
            if let End::Farewell = end {
                stream.conn.send_close_notify();
            }
            stream.flush().unwrap();
            if !matches!(end, End::Open) {
                stream.sock.shutdown(Shutdown::Write).unwrap();
            }
            let mut answer = vec![0; 1 << 10];
            stream.read_exact(&mut answer).expect(&what);
            if is_stopped {
                server.signal(Signal::TERM);
            }
            let mut rest = Vec::new();
            let read = stream.read_to_end(&mut rest);
            assert!(read.is_ok(), "{what}: {read:?}");
            let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
            let body = answer.len() + rest.len() - head.expect(&what) - 4;
            assert_eq!(body, LENGTH, "{what}");
            if !is_stopped {
                server.signal(Signal::TERM);
            }
            assert_eq!(server.end().status.code(), Some(0), "{what}");
        }
    }
}
