//! TLS and the PROXY protocol in front of the services of `tidewire serve`, over real sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::pki::{Authority, Files, NAMES};
use crate::common::tls_client::{ask, config, secure, socket};
use crate::common::{PATIENCE, Running, addr, engines, run, stderr};
use rustix::process::Signal;
use tidewire_tls::rustls::HandshakeKind;

/// Starts a server; one address for each line that says where it listens.
fn serve(args: &[&str], lines: usize) -> (Running, Vec<String>) {
    // Listed services run, and no others.
    let listed = args.iter().filter_map(|arg| Some(arg.split_once('=')?.0));
    let named: Vec<&str> = listed.filter(|arg| !arg.starts_with('-')).collect();
    let mut server = Running::start(&[&["serve", "--workers", "2"], &named[..], args].concat());
    let lines: Vec<String> = (0..lines).map(|_| server.line()).collect();
    if lines.iter().any(String::is_empty) {
        panic!("{}", stderr(&server.end()));
    }
    (server, lines)
}

fn stop(server: Running) -> String {
    server.signal(Signal::TERM);
    let output = server.end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stderr(&output)
}

#[test]
fn every_service_speaks_tls_and_says_so() {
    let files = Files::new();
    let client = config(&files.issuer.pem(), None);
    let message: Vec<u8> = [&7u64.to_le_bytes()[..], &1u32.to_le_bytes(), b"x"].concat();
    let data = files.place.path().join("data");
    let unix = format!("echo=unix:{}", files.place.path().join("echo").display());
    for engine in engines() {
        let mut args = vec!["--engine", engine, "--data", data.to_str().unwrap()];
        for at in [
            "kv/resp=0",
            "kv/binary=0",
            "echo=0",
            "ack/sync=0",
            "ingest=0",
            "http=0",
            "echo=plain:0",
            &unix,
        ] {
            args.extend(["--listen", at]);
        }
        args.extend(files.serve());
        let (server, lines) = serve(&args, 8);
        let spoken = |line: &String| line.contains(" tls=on");
        assert_eq!(
            lines.iter().filter(|line| spoken(line)).count(),
            6,
            "{lines:?}"
        );
        assert!(!spoken(&lines[6]) && !spoken(&lines[7]), "{lines:?}");
        let open = |at: usize| secure(socket(addr(&lines[at])), &client);
        ask(&mut open(0), b"PING\r\n", b"+PONG\r\n").unwrap();
        ask(&mut open(1), b"\x01\x00\x02\x01k", b"\x03\0").unwrap();
        ask(&mut open(2), b"hello", b"hello").unwrap();
        ask(&mut open(3), &message, &7u64.to_le_bytes()).unwrap();
        let get = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        ask(&mut open(5), get, b"HTTP/1.1 200 OK\r\n").unwrap();
        ask(&mut socket(addr(&lines[6])), b"hello", b"hello").unwrap();
        // More than any buffer, both ways.
        let large = vec![b'x'; 3 << 20];
        let mut stream = open(2);
        for piece in large.chunks(64 << 10) {
            ask(&mut stream, piece, piece).unwrap();
        }
        // A client without TLS gets an alert and no service.
        let mut plain = socket(addr(&lines[0]));
        plain.write_all(b"PING\r\n").unwrap();
        let mut said = Vec::new();
        let _ = plain.read_to_end(&mut said);
        assert!(said.is_empty() || said[0] == 0x15, "{said:?}");
        drop((stream, plain));
        stop(server);
    }
}

#[test]
fn sessions_are_taken_up_again() {
    let files = Files::new();
    let client = config(&files.issuer.pem(), None);
    let (server, lines) = serve(&[&["--listen", "echo=0"][..], &files.serve()].concat(), 1);
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let mut stream = secure(socket(addr(&lines[0])), &client);
        ask(&mut stream, b"hello", b"hello").unwrap();
        assert_eq!(stream.conn.handshake_kind(), Some(kind));
    }
    stop(server);
}

#[test]
fn files_are_read_again_under_load_and_no_handshake_fails() {
    let files = Files::new();
    let client = config(&files.issuer.pem(), None);
    for engine in engines() {
        files
            .issuer
            .write(files.place.path(), "server", &NAMES, 4000);
        let args = [
            &["--listen", "echo=0", "--engine", engine][..],
            &files.serve(),
        ]
        .concat();
        let (server, lines) = serve(&args, 1);
        let at = addr(&lines[0]);
        let (over, made) = (AtomicBool::new(false), AtomicU32::new(0));
        let seen = || {
            let mut stream = secure(socket(at), &client);
            ask(&mut stream, b"hello", b"hello").unwrap();
            stream.conn.peer_certificates().unwrap()[0].to_vec()
        };
        let last = thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(SeqCst) {
                        seen();
                        made.fetch_add(1, SeqCst);
                    }
                });
            }
            let mut last = Vec::new();
            for _ in 0..20 {
                last = files
                    .issuer
                    .write(files.place.path(), "server", &NAMES, 4000);
                server.signal(Signal::HUP);
                let (before, start) = (made.load(SeqCst), Instant::now());
                while made.load(SeqCst) < before + 5 {
                    assert!(start.elapsed() < PATIENCE);
                    thread::yield_now();
                }
            }
            over.store(true, SeqCst);
            last
        });
        let start = Instant::now();
        while seen() != last {
            assert!(
                start.elapsed() < PATIENCE,
                "{engine}: the new certificate is not shown"
            );
        }
        // A bad file changes nothing, and is reported.
        std::fs::write(&files.key, "no key").unwrap();
        server.signal(Signal::HUP);
        server.hear("nothing has changed");
        assert_eq!(seen(), last);
        let said = stop(server);
        assert!(said.contains("were read again"), "{said}");
    }
}

#[test]
fn clients_show_certificates_where_an_authority_is_named() {
    let files = Files::new();
    let place = files.place.path();
    let clients = Authority::new();
    std::fs::write(place.join("clients.pem"), clients.pem()).unwrap();
    clients.write(place, "good", &["client"], 4000);
    clients.write(place, "old", &["client"], 2001);
    Authority::new().write(place, "foreign", &["client"], 4000);
    let ca = place.join("clients.pem");
    for engine in engines() {
        let mut args = vec!["--listen", "kv/resp=0", "--engine", engine];
        args.extend(files.serve());
        args.extend(["--tls-client-ca", ca.to_str().unwrap()]);
        // A server each: of failures in a row only the first has a line.
        for (stem, why_not) in [
            ("good", None),
            ("", Some("the peer sent no certificate")),
            ("old", Some("the peer's certificate has expired")),
            (
                "foreign",
                Some("the authority that signed the peer's certificate is not trusted"),
            ),
        ] {
            let (server, lines) = serve(&args, 1);
            assert!(lines[0].contains(" tls=client-certificates"), "{lines:?}");
            let [cert, key] = ["pem", "key"].map(|what| place.join(format!("{stem}.{what}")));
            let own = Some((cert.to_str().unwrap(), key.to_str().unwrap()));
            let own = own.filter(|_| !stem.is_empty());
            let mut stream = secure(socket(addr(&lines[0])), &config(&files.issuer.pem(), own));
            let answer = ask(&mut stream, b"PING\r\n", b"+PONG\r\n");
            assert_eq!(answer.is_ok(), why_not.is_none(), "{engine}: {stem:?}");
            drop(stream);
            let log = stop(server);
            let said = log.contains("a TLS handshake failed");
            assert_eq!(said, why_not.is_some(), "{engine}: {stem:?}: {log}");
            assert!(
                log.contains(why_not.unwrap_or("")),
                "{engine}: {stem:?}: {log}"
            );
        }
    }
}

/// Asks until the server closes or resets; what it said.
fn last_words(mut stream: TcpStream, question: &[u8]) -> Vec<u8> {
    let _ = stream.write_all(question);
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said
}

#[test]
fn a_handshake_and_a_header_have_a_deadline() {
    let files = Files::new();
    for engine in engines() {
        let mut args = vec!["--engine", engine, "--handshake", "200ms", "--idle", "0"];
        args.extend(["--listen", "echo=0", "--listen", "echo=plain:0"]);
        args.extend(["--proxy-from", "127.0.0.0/8"]);
        args.extend(files.serve());
        let (server, lines) = serve(&args, 2);
        // Dripping helps as little as silence.
        let mut dripping = socket(addr(&lines[0]));
        dripping
            .write_all(b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n\x16\x03\x01\x02")
            .unwrap();
        let cut = (0..1500).any(|_| {
            thread::sleep(Duration::from_millis(20));
            dripping.write_all(&[0]).is_err()
        });
        assert!(cut);
        for line in &lines {
            assert_eq!(last_words(socket(addr(line)), b"PROXY"), b"", "{engine}");
        }
        let said = stop(server);
        assert!(
            said.contains("the_PROXY_protocol_header_took_too_long=2"),
            "{said}"
        );
    }
}

#[test]
fn a_listed_proxy_speaks_for_others_and_no_other_does() {
    let claim = b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n";
    let list = b"CLIENT LIST\r\n";
    let files = Files::new();
    let client = config(&files.issuer.pem(), None);
    for engine in engines() {
        let usual = ["--engine", engine, "--listen", "kv/resp=0", "--open"];
        let (server, lines) = serve(&[&usual[..], &["--proxy-from", "127.0.0.1"]].concat(), 1);
        assert!(lines[0].contains(" proxy-from=127.0.0.1/32"), "{lines:?}");
        let quit = [&claim[..], list, b"QUIT\r\n"].concat();
        let said = last_words(socket(addr(&lines[0])), &quit);
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(" addr=192.0.2.7:5000 "), "{engine}: {said}");
        // The certificate is required.
        assert_eq!(
            last_words(socket(addr(&lines[0])), b"PING\r\n"),
            b"",
            "{engine}"
        );
        let warned = stop(server);
        let line = warned.lines().find(|line| line.contains("cutting a proxy"));
        let line = line.unwrap_or_else(|| panic!("{engine}: {warned}"));
        assert!(line.contains("no PROXY protocol header"), "{line}");

        let (server, lines) = serve(&[&usual[..], &["--proxy-from", "10.0.0.0/8"]].concat(), 1);
        let said = last_words(socket(addr(&lines[0])), &quit);
        let said = String::from_utf8_lossy(&said);
        assert!(!said.contains("192.0.2.7:5000 "), "{engine}: {said}");
        stop(server);

        // The client's admission follows from both: the socket's address and the claimed one.
        let usual = ["--engine", engine, "--listen", "kv/resp=0"];
        let (server, lines) = serve(&[&usual[..], &["--proxy-from", "127.0.0.1"]].concat(), 1);
        let said = last_words(socket(addr(&lines[0])), &quit);
        assert!(said.starts_with(b"-DENIED"), "{engine}");
        stop(server);

        // The header comes before TLS.
        let args = [
            &usual[..],
            &["--open", "--proxy-from", "127.0.0.1"],
            &files.serve(),
        ]
        .concat();
        let (server, lines) = serve(&args, 1);
        let mut through = socket(addr(&lines[0]));
        through.write_all(claim).unwrap();
        ask(&mut secure(through, &client), b"PING\r\n", b"+PONG\r\n").unwrap();
        stop(server);
    }
}

#[test]
fn a_table_of_the_file_gives_a_listener_its_own() {
    let (files, others) = (Files::new(), Files::new());
    let path = files.place.path().join("serve.toml");
    let [cert, key] = [&others.cert, &others.key].map(|path| path.display().to_string());
    let [usual_cert, usual_key] = [&files.cert, &files.key].map(|path| path.display().to_string());
    std::fs::write(
        &path,
        format!(
            "services = ['echo']\n[tls]\ncert = '{usual_cert}'\nkey = '{usual_key}'\n\
             [[listen]]\nservice = 'echo'\nat = '127.0.0.1:0'\n\
             [[listen]]\nservice = 'echo'\nat = '127.0.0.1:0'\ntls-cert = '{cert}'\ntls-key = '{key}'\n\
             [[listen]]\nservice = 'echo'\nat = '127.0.0.1:0'\ntls = false\n"
        ),
    )
    .unwrap();
    let (server, lines) = serve(&["--config", path.to_str().unwrap()], 3);
    for (line, files) in lines.iter().zip([&files, &others]) {
        let client = config(&files.issuer.pem(), None);
        ask(&mut secure(socket(addr(line)), &client), b"hello", b"hello").unwrap();
    }
    ask(&mut socket(addr(&lines[2])), b"hello", b"hello").unwrap();
    stop(server);
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    let (files, others) = (Files::new(), Files::new());
    let refused = |args: &[&str]| {
        let output = run(&[&["serve", "echo", "--listen", "echo=0"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        stderr(&output)
    };
    let [_, cert, _, key] = files.serve();
    let [_, _, _, foreign] = others.serve();
    assert!(refused(&["--tls-cert", cert]).contains("--tls-key"));
    assert!(refused(&["--tls-key", key]).contains("--tls-cert"));
    assert!(refused(&["--tls-client-ca", cert]).contains("--tls-cert"));
    assert!(refused(&["--listen", "echo=tls:0"]).contains("--tls-cert"));
    let message = refused(&["--tls-cert", cert, "--tls-key", foreign]);
    assert!(message.contains(foreign), "{message}");
    let message = refused(&["--tls-cert", "/nonexistent/x.pem", "--tls-key", key]);
    assert!(message.contains("/nonexistent/x.pem"), "{message}");
    let message = refused(&["--proxy-from", "everybody"]);
    assert!(message.contains("10.0.0.0/8"), "{message}");
}

#[test]
fn openssl_agrees() {
    let files = Files::new();
    let (server, lines) = serve(&[&["--listen", "echo=0"][..], &files.serve()].concat(), 1);
    let at = addr(&lines[0]).to_string();
    for version in ["-tls1_2", "-tls1_3"] {
        let child = Command::new("openssl")
            .args([
                "s_client",
                "-quiet",
                "-no_ign_eof",
                version,
                "-verify_return_error",
                "-connect",
                &at,
            ])
            .args(["-CAfile", files.authority()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(e) => {
                eprintln!("skipped: openssl: {e}");
                break;
            }
        };
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"hello\n").unwrap();
        let mut said = [0; 6];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut said)
            .unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert_eq!(&said, b"hello\n", "{version}: {}", stderr(&output));
        assert!(output.status.success(), "{version}: {}", stderr(&output));
    }
    stop(server);
}

/// The operator learns why peers are not let in.
#[test]
fn peers_that_are_not_let_in_are_logged_with_the_reason() {
    let files = Files::new();
    let client = config(&files.issuer.pem(), None);
    for engine in engines() {
        let authority = files.authority.to_str().unwrap();
        let mut args = vec![
            "--engine",
            engine,
            "--listen",
            "echo=0",
            "--tls-client-ca",
            authority,
        ];
        args.extend(files.serve());
        let (server, lines) = serve(&args, 1);
        let nobody = socket(addr(&lines[0]));
        assert!(ask(&mut secure(nobody, &client), b"hello", b"hello").is_err());
        let log = stop(server);
        assert!(log.contains("a TLS handshake failed"), "{log}");
        assert!(log.contains("the peer sent no certificate"), "{log}");
    }
}

#[test]
fn what_is_wrong_with_the_files_is_said_in_words() {
    let files = Files::new();
    let place = |name: &str, text: &str| {
        let path = files.place.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let given = files.serve();
    let (cert, key) = (given[1].to_owned(), given[3].to_owned());
    let text = std::fs::read_to_string(&cert).unwrap();
    let cut = place("cut.pem", &text[..text.len() / 2]);
    let sealed =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let sealed = place("sealed.pem", sealed);
    for (cert, key, words) in [
        (&cut, &key, "a part of it is missing"),
        (&cert, &sealed, "the key is encrypted"),
        (&cert, &cert, "there is a certificate instead"),
    ] {
        let args = ["serve", "echo", "--listen", "echo=0", "--tls-cert", cert];
        let output = run(&[&args[..], &["--tls-key", key]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{words}: {said}");
    }
    let output = run(&["serve", "echo", "--handshake", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--handshake 0"));
}
