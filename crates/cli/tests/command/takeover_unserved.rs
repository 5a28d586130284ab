//! Takeovers and stops under clients that have connected and said nothing yet.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use tidewire_tls::{Client, Roots};

use crate::common::durable::{Place, assert_code};
use crate::common::handover::{Server, resp, with};
use crate::common::pki::Files;
use crate::common::{PATIENCE, engines, run, stderr};

/// Clients of each service.
const SILENT: usize = 5;

/// What a client says first, and what it is answered.
const SERVICES: [(&str, &[u8], &[u8]); 4] = [
    (
        "http=0",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"HTTP/1.1 200 ",
    ),
    ("kv/resp=0", b"GET k\r\n", b"$1\r\nv\r\n"),
    (
        "ack/request-reply=0",
        b"12345678\0\0\0\x05hello",
        b"12345678",
    ),
    ("echo=0", b"hello", b"hello"),
];

fn connect(to: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(to).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

/// The server has taken in all its clients once it has taken in one that came behind them.
fn settled(server: &Server, line: usize) {
    drop(resp(server.addr(line), "PING\r\n", "+PONG\r\n"));
}

fn is_served(client: &mut (impl Read + Write), asks: &[u8], answer: &[u8], what: &str) {
    client.write_all(asks).unwrap();
    let mut back = vec![0; answer.len()];
    let read = client.read_exact(&mut back);
    assert!(
        read.is_ok() && back == answer,
        "{what}: {read:?}, {:?}",
        String::from_utf8_lossy(&back)
    );
}

#[test]
fn silent_clients_are_served_through_a_takeover() {
    for engine in engines() {
        for placement in ["shared", "acceptor"] {
            let place = Place::new();
            let (control, data) = (place.path("control.sock"), place.path("data"));
            let mut args = vec!["serve", "http", "kv/resp", "ack/request-reply", "echo"];
            args.extend([
                "--engine",
                engine,
                "--placement",
                placement,
                "--workers",
                "2",
            ]);
            args.extend([
                "--durability",
                "sync",
                "--data",
                &data,
                "--control",
                &control,
            ]);
            for (listen, _, _) in SERVICES {
                args.extend(["--listen", listen]);
            }
            let old = Server::start(&args, SERVICES.len());
            drop(resp(old.addr(1), "SET k v\r\n", "+OK\r\n"));
            let all = (0..SERVICES.len()).flat_map(|i| vec![i; SILENT]);
            let mut clients: Vec<_> = all.map(|i| (connect(old.addr(i)), SERVICES[i])).collect();
            settled(&old, 1);
            let new = Server::start(&with(&args, &["--takeover"]), SERVICES.len());
            for (client, (listen, asks, answer)) in &mut clients {
                is_served(
                    client,
                    asks,
                    answer,
                    &format!("{engine} {placement} {listen}"),
                );
            }
            drop(clients);
            old.ends();
            new.stop();
        }
    }
}

#[test]
fn silent_clients_are_served_through_a_takeover_inside_tls() {
    for engine in engines() {
        let (place, files) = (Place::new(), Files::new());
        let control = place.path("control.sock");
        let args = [
            "serve",
            "http",
            "--engine",
            engine,
            "--listen",
            "http=0",
            "--control",
            &control,
        ];
        let args = with(&args, &files.serve());
        let (_, asks, answer) = SERVICES[0];
        let roots = Roots::from_pem(&fs::read(files.authority()).unwrap()).unwrap();
        let tls = Client::new(&roots).build().unwrap();
        let hello = |socket| {
            tls.connect(socket, "localhost", PATIENCE)
                .expect("a handshake")
        };
        let old = Server::start(&args, 1);
        let to = old.addr(0);
        let silent: Vec<TcpStream> = (0..SILENT).map(|_| connect(to)).collect();
        let mut greeted: Vec<_> = (0..SILENT).map(|_| hello(connect(to))).collect();
        let new = Server::start(&with(&args, &["--takeover"]), 1);
        for stream in &mut greeted {
            is_served(
                stream,
                asks,
                answer,
                &format!("{engine}: behind a handshake"),
            );
        }
        for socket in silent {
            is_served(
                &mut hello(socket),
                asks,
                answer,
                &format!("{engine}: before a handshake"),
            );
        }
        drop(greeted);
        old.ends();
        new.stop();
    }
}

/// The store is there, or the first server goes on.
#[test]
fn a_successor_that_would_leave_the_store_behind_is_refused() {
    let place = Place::new();
    let (control, data, other) = (
        place.path("control.sock"),
        place.path("data"),
        place.path("other"),
    );
    let args = [
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--control",
        &control,
    ];
    let durable = ["--durability", "sync", "--data", &data];
    let old = Server::start(&with(&args, &durable), 1);
    let to = old.addr(0);
    drop(resp(to, "SET k v\r\n", "+OK\r\n"));
    let elsewhere = ["--durability", "sync", "--data", &other, "--takeover"];
    for wrong in [&elsewhere[..], &["--takeover"]] {
        let refused = run(&with(&args, wrong));
        assert_code(&refused, 1);
        let why = stderr(&refused);
        assert!(
            why.contains("the key-value store in ") && why.contains("--takeover-forget"),
            "{why}"
        );
        drop(resp(to, "GET k\r\n", "$1\r\nv\r\n"));
    }
    let new = Server::start(&with(&args, &["--takeover", "--takeover-forget"]), 1);
    old.ends();
    drop(resp(to, "GET k\r\n", "$-1\r\n"));
    new.stop();
}

/// A log of keys, messages or both: a successor is to keep it where it is, however it names the directory, and the next one
/// is asked as well. One that does not serve what its predecessor does is refused for that.
#[test]
fn what_would_be_left_behind_is_known_by_its_directory() {
    let place = Place::new();
    let (control, data) = (place.path("control.sock"), place.path("data"));
    let (other, link) = (place.path("other"), place.path("link"));
    fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink(&data, &link).unwrap();
    let around = place.path("data/../data/");
    let all = ["kv/resp=0", "ingest=0"];
    let keys = ["kv/resp=0"];
    let messages = ["ingest=0"];
    let none = ["echo=0"];
    let args = |listen: &[&'static str], data: &str, more: &[&str]| -> Vec<String> {
        let mut args = vec!["serve".to_owned()];
        args.extend(
            listen
                .iter()
                .map(|at| at.split_once('=').unwrap().0.to_owned()),
        );
        args.extend(
            listen
                .iter()
                .flat_map(|at| ["--listen".to_owned(), (*at).to_owned()]),
        );
        args.extend(["--control", &control, "--data", data].map(str::to_owned));
        args.extend(more.iter().map(|&more| more.to_owned()));
        if listen.contains(&keys[0]) {
            args.extend(["--durability", "sync"].map(str::to_owned));
        }
        args
    };
    let start = |args: &[String], lines: usize| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Server::start(&args, lines)
    };
    for (serves, wrong) in [
        // A predecessor keeps both logs; the successor would leave the keys, the messages, or both.
        (
            &all[..],
            vec![
                (&messages[..], &data),
                (&keys, &data),
                (&none, &data),
                (&all, &other),
            ],
        ),
        (
            &keys,
            vec![(&messages[..], &data), (&none, &data), (&keys, &other)],
        ),
        (
            &messages,
            vec![(&keys[..], &data), (&none, &data), (&messages, &other)],
        ),
    ] {
        let mut old = start(&args(serves, &data, &[]), serves.len());
        // The second successor is asked as the first was.
        for named in [&data, &link, &around] {
            for (listen, at) in &wrong {
                let wrong = args(listen, at, &["--takeover"]);
                let refused = run(&wrong.iter().map(String::as_str).collect::<Vec<_>>());
                assert_code(&refused, 1);
                let why = stderr(&refused);
                let says = match *listen == serves {
                    true => "--takeover-forget",
                    false => "and these settings do not",
                };
                assert!(why.contains(says), "{serves:?}, {listen:?} in {at}: {why}");
            }
            let new = start(&args(serves, named, &["--takeover"]), serves.len());
            old.ends();
            old = new;
        }
        old.stop();
    }
}
