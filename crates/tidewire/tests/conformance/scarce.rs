//! Too few descriptors: accepting pauses, nothing spins, and all recovers.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use tidewire::{Input, Next};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::probe::{Context, Message};
use crate::process::{descriptors, eventually};
use crate::record::Event;
use crate::roles::{Echo, Receives, Sink};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(
            descriptor_exhaustion_and_recovery,
            alone,
            on = |v| !v.direct
        ),
        case!(
            direct_connections_have_no_descriptors,
            alone,
            on = |v| v.direct
        ),
        case!(posts_arrive_without_a_descriptor_to_spare, alone),
        case!(ends_arrive_without_a_descriptor_to_spare, alone),
    ]
}

fn descriptor_exhaustion_and_recovery(v: Variant) {
    const CLIENTS: usize = 30;
    let sockets: Vec<Socket> = (0..CLIENTS)
        .map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket"))
        .collect();
    // Before the server starts: an accept operation keeps the limit that it was started with.
    let limit = getrlimit(Resource::Nofile);
    let most = descriptors() + 60;
    let scarce = Rlimit {
        current: Some(most as u64),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, scarce).expect("a lower limit");
    let server = Setup::on(v).start(|| Echo);
    let mut early = server.connect();
    early.send(b"early");
    early.expect(b"early");
    // The clients have their sockets; the server may have a few more.
    let mut fill = Vec::new();
    while descriptors() + CLIENTS / 3 < most {
        fill.push(std::fs::File::open("/dev/null").expect("a descriptor"));
    }
    let mut clients: Vec<Client> = sockets
        .into_iter()
        .map(|socket| {
            socket
                .connect(&server.addr().into())
                .expect("the queue has room");
            Client::adopt(socket.into()).expect("socket options")
        })
        .collect();
    for client in &mut clients {
        client.send(b"x");
    }
    server.until("accepting pauses", |c| c.accept_pauses > 0);
    let before = server.counters();
    std::thread::sleep(Duration::from_millis(500));
    let after = server.counters();
    assert!(
        after.accepted < CLIENTS as u64 + 1,
        "there were not enough for all"
    );
    let turns = after.turns - before.turns;
    assert!(turns < 200, "{turns} turns in half a second: it spins");
    assert!(after.accept_pauses - before.accept_pauses < 50, "{after}");
    early.send(b"served");
    early.expect(b"served");
    // An answered client leaves, which makes room for the others, on whichever loop they wait.
    for client in &mut clients {
        client.patience(Duration::ZERO);
    }
    eventually("an answer to each", || {
        clients.retain_mut(|client| match client.read(&mut [0]) {
            Ok(n) => {
                assert_eq!(n, 1, "answered before the end");
                false
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}");
                true
            }
        });
        clients.is_empty()
    });
    drop(fill);
    let mut late = server.connect();
    late.send(b"late");
    late.expect(b"late");
    drop((early, late));
    server.until("all ends", |c| c.open == 0);
    assert_eq!(server.stop().accepted, CLIENTS as u64 + 2);
}

fn direct_connections_have_no_descriptors(v: Variant) {
    const CLIENTS: usize = 100;
    let server = Setup::on(v).start(|| Echo);
    let before = descriptors();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"here");
    }
    for client in &mut clients {
        client.expect(b"here");
    }
    assert_eq!(server.counters().open, CLIENTS as u64);
    let more = descriptors() - before;
    // The clients have theirs.
    assert_eq!(more, CLIENTS);
    drop(clients);
    server.until("all ends", |c| c.open == 0);
    assert_eq!(server.stop().accepted, CLIENTS as u64);
}

/// The last descriptor goes to the connection itself, so none is left to wake it with.
fn posts_arrive_without_a_descriptor_to_spare(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Sink);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: Some(descriptors() as u64 + 40),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, most).expect("a lower limit");
    let mut fill = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        fill.push(file);
    }
    fill.pop();
    socket
        .connect(&server.addr().into())
        .expect("the queue has room");
    let handle = server.record.handle(0);
    for n in 0..3 {
        assert!(handle.try_post(Message::Note(n)).is_ok());
        let note = Event::Posted(n);
        server.record.until("the note", |r| r.has(0, &note));
    }
    drop((fill, socket));
    server.record.why_closed(0);
    server.stop();
}

/// Direct connections have none, and none can be made for them.
fn ends_arrive_without_a_descriptor_to_spare(v: Variant) {
    let server = Setup::on(v)
        // Much longer than the client waits for its end.
        .limits(|l| l.linger = Duration::from_secs(3600))
        .start(|| {
            Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
                match input.bytes()[0] {
                    b'f' => cx.link.finish(),
                    b'a' => cx.link.abort(),
                    _ => cx.link.write(b"here"),
                }
                input.consume(input.len());
                Next::More
            })
        });
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"?");
        client.expect(b"here");
    }
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: Some(descriptors() as u64 + 20),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, most).expect("a lower limit");
    let mut fill = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        fill.push(file);
    }
    for pair in clients.chunks_mut(2) {
        pair[0].send(b"f");
        pair[0].expect_end();
        pair[1].send(b"a");
        pair[1].expect_reset();
    }
    drop((fill, clients));
    server.until("all ends", |c| c.open == 0);
    server.stop();
}
