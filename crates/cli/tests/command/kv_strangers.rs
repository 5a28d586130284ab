//! Clients that connect to a key-value server with a secret and never log in: they take nothing from the log, and are closed after a
//! time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::common::durable::Place;
use crate::common::kv::{Client, Reply};
use crate::common::{PATIENCE, Running, addr, tidewire};

fn ok() -> Reply {
    Reply::Line("OK".into())
}

/// As many as there are descriptors for connect first; then the log needs new files.
#[test]
fn silent_strangers_take_no_descriptor_from_the_log() {
    let place = Place::new();
    let secret = place.file("secret", "a-secret\n");
    let data = place.path("data");
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 200 && exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_tidewire"))
        .args([
            "serve",
            "kv/resp",
            "--listen",
            "kv/resp=0",
            "--admin",
            "off",
            "--control",
            "off",
        ])
        .args([
            "--durability",
            "sync",
            "--workers",
            "1",
            "--segment",
            "8MiB",
        ])
        .args(["--kv-password-file", &secret, "--data", &data])
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut server = Running::from(command.spawn().unwrap());
    let at = addr(&server.line());
    let mut client = Client::connect(at).unwrap();
    assert_eq!(client.ask("AUTH a-secret").unwrap(), ok());
    // Beyond the limit of connections they are refused, and beyond that of the backlog not even that.
    let strangers: Vec<TcpStream> = (0..600)
        .map_while(|_| TcpStream::connect_timeout(&at, PATIENCE / 60).ok())
        .collect();
    assert!(strangers.len() >= 200, "{}", strangers.len());
    let value = "x".repeat(100_000);
    for n in 0..400 {
        let reply = client.ask(&format!("SET key:{} {value}", n % 50)).unwrap();
        assert_eq!(reply, ok(), "{n}");
    }
    // A snapshot has its file as well.
    assert_eq!(client.ask("SAVE").unwrap(), ok());
    drop(strangers);
}

#[test]
fn a_login_has_a_deadline() {
    let place = Place::new();
    let secret = place.file("secret", "a-secret\n");
    let args = [
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--kv-password-file",
        &secret,
        "--kv-login",
        "300ms",
    ];
    let mut server = Running::from(
        tidewire(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let at = addr(&server.line());
    let mut client = Client::connect(at).unwrap();
    assert_eq!(client.ask("AUTH a-secret").unwrap(), ok());
    // A client that says nothing, and clients that say something else.
    for says in [&b""[..], b"PING\r\n", b"AUTH wrong\r\n"] {
        let mut stranger = TcpStream::connect(at).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        stranger.write_all(says).unwrap();
        let mut said = Vec::new();
        stranger
            .read_to_end(&mut said)
            .expect("the connection ends");
        assert_eq!(
            said.is_empty(),
            says.is_empty(),
            "{:?}",
            String::from_utf8_lossy(&said)
        );
    }
    server.hear("closing connections that have not logged in in time");
    let Reply::Bulk(Some(info)) = client.ask("INFO stats").unwrap() else {
        panic!("no INFO");
    };
    assert!(info.contains("clients_not_logged_in_in_time:3"), "{info}");
}
