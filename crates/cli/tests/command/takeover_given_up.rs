//! A successor that was given the logs, or waits for them, and dies: connections of which something was read are served to their
//! end, beside what the first server serves then.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidewire_handover::Claim;

use crate::common::durable::Place;
use crate::common::handover::{Server, hello, resp};
use crate::common::{PATIENCE, engines};

/// A request of which the server has read the head and awaits the body.
fn under_way(to: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(to).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n";
    client.write_all(head.as_bytes()).unwrap();
    let mut go_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    client.read_exact(&mut go_on).unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100"));
    client
}

/// Sends its body, and is answered.
fn is_served(mut client: TcpStream, what: &str) {
    client.write_all(b"0123456789").unwrap();
    let mut answer = String::new();
    let end = client.read_to_string(&mut answer);
    assert!(
        answer.starts_with("HTTP/1.1 200 "),
        "{what}: {answer:?}, {end:?}"
    );
    assert!(answer.contains("0123456789"), "{what}: {answer:?}, {end:?}");
}

#[test]
fn a_request_under_way_is_served_though_a_successor_dies_with_the_logs() {
    for engine in engines() {
        let place = Place::new();
        let (control, data) = (place.path("control.sock"), place.path("data"));
        let services = [
            "serve", "ingest", "http", "--listen", "ingest=0", "--listen", "http=0",
        ];
        let settings = [
            "--engine",
            engine,
            "--segment",
            "8MiB",
            "--data",
            &data,
            "--control",
            &control,
        ];
        let patience = ["--whole-request", "600", "--stop-deadline", "600"];
        let server = Server::start(&[&services[..], &settings, &patience].concat(), 2);
        let to = server.addr(1);
        let dies = |times: usize| {
            let (claim, _, handed) = Claim::ask(control.as_ref(), hello()).unwrap();
            claim.take(PATIENCE).unwrap();
            drop((claim, handed));
            let began = Instant::now();
            while server
                .running
                .said()
                .matches("finished beside new ones")
                .count()
                < times
            {
                assert!(began.elapsed() < PATIENCE, "{}", server.running.said());
                thread::sleep(Duration::from_millis(5));
            }
        };
        let client = under_way(to);
        dies(1);
        // The present server serves new clients beside that.
        is_served(under_way(to), &format!("{engine}, a new client"));
        is_served(client, &format!("{engine}, a client of before"));
        // A stop of the present server waits for the one before it.
        let clients = [under_way(to), under_way(to)];
        dies(2);
        server.running.signal(Signal::TERM);
        for client in clients {
            is_served(client, engine);
        }
        server.ends();
    }
}

/// A reply that its client has not taken yet holds the logs: it is taken to its end before the first server goes on.
#[test]
fn a_reply_under_way_is_whole_though_a_successor_dies_that_waits_for_the_logs() {
    const LEN: usize = 30_000_000;
    for engine in engines() {
        let place = Place::new();
        let (control, data) = (place.path("control.sock"), place.path("data"));
        let service = [
            "serve",
            "kv/resp",
            "--durability",
            "sync",
            "--listen",
            "kv/resp=0",
        ];
        let settings = ["--engine", engine, "--data", &data, "--control", &control];
        let patience = ["--linger", "600", "--stop-deadline", "600"];
        let server = Server::start(&[&service[..], &settings, &patience].concat(), 1);
        let to = server.addr(0);
        let mut client = resp(
            to,
            &format!("SETRANGE k {} x\r\n", LEN - 1),
            &format!(":{LEN}\r\n"),
        );
        client.write_all(b"GET k\r\n").unwrap();
        let mut reply = vec![0; format!("${LEN}\r\n").len() + LEN + 2];
        client.read_exact(&mut reply[..1]).unwrap();
        let (claim, _, handed) = Claim::ask(control.as_ref(), hello()).unwrap();
        let waits = claim.take(Duration::from_millis(1));
        assert!(waits.is_err(), "{engine}: the logs were free: {waits:?}");
        drop((claim, handed));
        server
            .running
            .hear("once no connection from before needs the logs");
        client.read_exact(&mut reply[1..]).unwrap();
        assert!(reply.ends_with(b"x\r\n"), "{engine}");
        drop(client);
        drop(resp(to, "STRLEN k\r\n", &format!(":{LEN}\r\n")));
        server.stop();
    }
}
