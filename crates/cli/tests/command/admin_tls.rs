//! The admin listener of `serve` over TLS, and `info` and `top`, which ask it.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::pki::{Authority, Files, NAMES};
use crate::common::tls_client::{config, secure, socket};
use crate::common::{PATIENCE, Running, addr, run, stderr, stdout, tidewire};
use rustix::process::Signal;

/// A server with this admin listener; its last line.
fn serve(files: &Files, more: &[&str]) -> (Running, String) {
    let own = ["serve", "echo", "--listen", "echo=0"];
    let mut server = Running::start(&[&own[..], &files.serve(), more].concat());
    loop {
        let line = server.line();
        if line.is_empty() {
            panic!("{}", stderr(&server.end()));
        }
        if line.contains("service=admin") {
            return (server, line);
        }
    }
}

fn stop(server: Running) -> String {
    server.signal(Signal::TERM);
    let output = server.end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stderr(&output)
}

fn token(files: &Files) -> String {
    let path = files.place.path().join("token");
    std::fs::write(&path, "s3cret\n").unwrap();
    path.display().to_string()
}

/// `info` of the server there.
fn info(at: &str, more: &[&str]) -> Output {
    run(&[&["info", "--admin", at], more].concat())
}

fn get(at: SocketAddr, files: &Files, path: &str, fields: &str) -> std::io::Result<String> {
    let mut stream = secure(socket(at), &config(&files.issuer.pem(), None));
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A listener that other hosts reach has TLS by default, and asks for the token.
#[test]
fn beyond_loopback_it_speaks_tls_where_there_is_a_certificate() {
    let files = Files::new();
    let token = token(&files);
    let secret = ["--admin-token-file", &token];
    let (server, line) = serve(&files, &[&["--admin", "0.0.0.0:0"], &secret[..]].concat());
    assert!(line.ends_with(" tls=on"), "{line}");
    let port = addr(&line).port();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    assert!(get(at, &files, "/health", "").unwrap().contains(" 200 "));
    assert!(get(at, &files, "/metrics", "").unwrap().contains(" 401 "));
    let bearer = "Authorization: Bearer s3cret\r\n";
    let page = get(at, &files, "/metrics", bearer).unwrap();
    assert!(page.contains("tidewire_ready 1"), "{page}");
    let here = format!("localhost:{port}");
    let ca = ["--tls-ca", files.authority()];
    for place in [here.clone(), format!("https://{here}/"), at.to_string()] {
        let asked = info(&place, &[&secret[..], &ca].concat());
        assert!(asked.status.success(), "{place}: {}", stderr(&asked));
        assert!(stdout(&asked).contains("serving"), "{}", stdout(&asked));
    }
    // Each mistake is said in words that help.
    let said = |status, place: &str, more: &[&str], word: &str| {
        let asked = info(place, &[&secret[..], more].concat());
        assert_eq!(asked.status.code(), Some(status), "{place} {more:?}");
        assert!(stderr(&asked).contains(word), "{word}: {}", stderr(&asked));
    };
    said(2, &format!("http://{here}"), &ca, "https://");
    said(2, &format!("ftp://{here}"), &[], "HOST:PORT");
    let wrong = |place: &str, more: &[&str], word: &str| said(1, place, more, word);
    wrong(&here, &[], "--tls");
    let other = files.place.path().join("other.pem");
    std::fs::write(&other, Authority::new().pem()).unwrap();
    wrong(&here, &["--tls-ca", other.to_str().unwrap()], "authority");
    wrong(
        &here,
        &[&ca[..], &["--tls-name", "it.example"]].concat(),
        "another name",
    );
    let asked = info(&here, &ca);
    assert!(
        stderr(&asked).contains("--admin-token-file"),
        "{}",
        stderr(&asked)
    );
    let said = stop(server);
    assert!(!said.contains("in the clear"), "{said}");
}

#[test]
fn an_expired_certificate_is_refused_in_words() {
    let files = Files::new();
    files
        .issuer
        .write(files.place.path(), "server", &NAMES, 2001);
    let (server, line) = serve(&files, &["--admin", "tls:0"]);
    let at = format!("localhost:{}", addr(&line).port());
    let asked = info(&at, &["--tls-ca", files.authority()]);
    assert_eq!(asked.status.code(), Some(1));
    assert!(stderr(&asked).contains("expired"), "{}", stderr(&asked));
    stop(server);
}

/// On loopback it stays as it is unless that is said; a token that crosses the network is warned of.
#[test]
fn what_is_spoken_there_can_be_said() {
    let files = Files::new();
    let token = token(&files);
    for (admin, ends, warned) in [
        ("127.0.0.1:0", "engine=epoll", false),
        ("tls:127.0.0.1:0", "tls=on", false),
        ("plain:0.0.0.0:0", "engine=epoll", true),
    ] {
        let (server, line) = serve(&files, &["--admin", admin, "--admin-token-file", &token]);
        assert!(line.ends_with(ends), "{admin}: {line}");
        let said = stop(server);
        assert_eq!(said.contains("in the clear"), warned, "{admin}: {said}");
    }
    let refused = run(&["serve", "echo", "--listen", "echo=0", "--admin", "tls:0"]);
    assert!(
        stderr(&refused).contains("--tls-cert"),
        "{}",
        stderr(&refused)
    );
}

/// The admin listener has its own files, in the configuration file; clients' certificates; and the
/// files are read again with the files of all listeners.
#[test]
fn the_file_gives_it_its_own() {
    let (files, others) = (Files::new(), Files::new());
    let clients = Authority::new();
    let place = files.place.path();
    std::fs::write(place.join("clients.pem"), clients.pem()).unwrap();
    clients.write(place, "me", &["me"], 4000);
    let path = place.join("serve.toml");
    let text = format!(
        "[admin]\ntls-cert = '{}'\ntls-key = '{}'\ntls-client-ca = '{}'\n",
        others.cert.display(),
        others.key.display(),
        place.join("clients.pem").display(),
    );
    std::fs::write(&path, text).unwrap();
    let config = ["--config", path.to_str().unwrap()];
    let (server, line) = serve(&files, &[&config[..], &["--admin", "127.0.0.1:0"]].concat());
    assert!(line.ends_with(" tls=client-certificates"), "{line}");
    let at = format!("localhost:{}", addr(&line).port());
    let [cert, key] = ["me.pem", "me.key"].map(|name| place.join(name).display().to_string());
    let own = ["--tls-cert", &cert, "--tls-key", &key];
    let ca = ["--tls-ca", others.authority()];
    let asked = info(&at, &[&ca[..], &own].concat());
    assert!(asked.status.success(), "{}", stderr(&asked));
    assert_eq!(info(&at, &ca).status.code(), Some(1), "without one");
    // The certificate is another one from now on, of another authority.
    files
        .issuer
        .write(others.place.path(), "server", &NAMES, 4000);
    server.signal(Signal::HUP);
    let ca = ["--tls-ca", files.authority()];
    let begin = Instant::now();
    while !info(&at, &[&ca[..], &own].concat()).status.success() {
        assert!(begin.elapsed() < PATIENCE, "it is not shown");
        std::thread::sleep(Duration::from_millis(20));
    }
    stop(server);
}

/// `top` draws on a terminal only; `script` makes one.
#[test]
fn top_is_drawn_over_tls() {
    let files = Files::new();
    let (server, line) = serve(&files, &["--admin", "tls:0"]);
    let at = format!("localhost:{}", addr(&line).port());
    let program = tidewire(&["top"]).get_program().to_owned();
    let program = program.to_str().unwrap();
    let ca = files.authority();
    let top = format!("stty rows 50 cols 160; {program} top --admin {at} --tls-ca {ca}");
    let script = std::process::Command::new("script")
        .args(["-qec", &top, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut script) = script else {
        println!("skipped: there is no script (Debian: bsdutils)");
        return;
    };
    let mut drawn = Vec::new();
    let mut out = script.stdout.take().unwrap();
    let mut bytes = [0; 4096];
    while !String::from_utf8_lossy(&drawn).contains("serving") {
        let read = out.read(&mut bytes).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&drawn));
        drawn.extend_from_slice(&bytes[..read]);
    }
    script.stdin.take().unwrap().write_all(b"q").unwrap();
    let _ = out.read_to_end(&mut drawn);
    assert!(script.wait().unwrap().success());
    stop(server);
}
