//! Outgoing connections: established, refused, given up, tried again.

use std::any::Any;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tidewire::{Closed, Dial, Input, Next, Origin, Refusal};

use crate::case::{Case, case};
use crate::client::{Client, lonely};
use crate::fixture::Setup;
use crate::listener::{Listener, nobody};
use crate::probe::{Context, Role};
use crate::roles::{Echo, Sink, echo};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(dial_succeeds),
        case!(dialled_peer_that_speaks_first_is_heard),
        case!(dialled_peer_that_leaves_at_once),
        case!(dial_refused_is_tried_as_often_as_asked),
        case!(dial_succeeds_once_a_listener_is_there),
        case!(dial_without_an_answer_times_out),
        case!(dial_from_a_given_address),
        case!(dial_that_reaches_itself_has_failed),
        case!(dial_of_ipv6),
        case!(dial_through_a_loop_handle),
        case!(dialled_connection_refused_by_the_service),
        case!(dialled_and_accepted_on_the_same_loops),
    ]
}

fn dial_succeeds(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let listener = Listener::new();
    server.dial(Dial::to(listener.addr()).token(77));
    let mut peer = listener.accept();
    peer.send(b"hello");
    peer.expect(b"hello");
    assert_eq!(server.record.lock().origins, [Origin::Dialled(77)]);
    drop(peer);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    let counters = server.stop();
    assert_eq!(
        (counters.dialled, counters.dial_failures, counters.accepted),
        (1, 0, 0)
    );
}

/// The peer's greeting may be there together with the news that the connection is.
fn dialled_peer_that_speaks_first_is_heard(v: Variant) {
    const DIALS: u64 = 200;
    let server = Setup::on(v).start(|| Sink);
    let listener = Listener::new();
    let addr = listener.addr();
    let greeter = world::spawn(move || {
        let greeted: Vec<_> = (0..DIALS)
            .map(|_| {
                let mut peer = listener.accept();
                peer.send(b"welcome");
                peer
            })
            .collect();
        greeted
    });
    for token in 0..DIALS {
        server.dial(Dial::to(addr).token(token));
    }
    let greeted = greeter.join().expect("the greeter");
    let all = DIALS * 7;
    server
        .record
        .until("every greeting", |_| server.record.consumed() == all);
    drop(greeted);
    server.stop();
}

fn dialled_peer_that_leaves_at_once(v: Variant) {
    const DIALS: u64 = 50;
    let server = Setup::on(v).start(|| Sink);
    let listener = Listener::new();
    let addr = listener.addr();
    let leaver = world::spawn(move || {
        for i in 0..DIALS {
            let peer = listener.accept();
            if i % 2 == 0 {
                peer.reset();
            }
        }
    });
    for _ in 0..DIALS {
        server.dial(Dial::to(addr));
    }
    leaver.join().expect("the leaver");
    // A reset may come so early that the attempt fails instead.
    server.until("all over", |c| c.closed_total() + c.dial_failures == DIALS);
    let counters = server.stop();
    assert!(counters.closed_for(Closed::Finished) >= DIALS / 2);
}

fn dial_refused_is_tried_as_often_as_asked(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let dial = Dial::to(nobody())
        .attempts(4)
        .backoff(Duration::from_millis(4), Duration::from_millis(8))
        .token(5);
    server.dial(dial);
    server
        .record
        .until("the last word", |r| !r.dials_failed.is_empty());
    let (token, error) = server.record.lock().dials_failed[0].clone();
    assert_eq!(token, 5);
    assert!(error.contains("refused"), "{error}");
    server.until("four failures", |c| c.dial_failures == 4);
    let record = server.record.clone();
    assert_eq!(server.stop().dial_failures, 4);
    assert_eq!(record.lock().dials_failed.len(), 1, "told once");
}

fn dial_succeeds_once_a_listener_is_there(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let addr = nobody();
    let dial = Dial::to(addr)
        .attempts(u32::MAX)
        .backoff(Duration::from_millis(2), Duration::from_millis(10));
    server.dial(dial);
    server.until("some failures", |c| c.dial_failures >= 3);
    let listener = Listener::at(addr);
    let mut peer = listener.accept();
    peer.send(b"x");
    peer.expect(b"x");
    drop(peer);
    assert_eq!(server.stop().dialled, 1);
}

/// A listener whose queue is full, and what fills it.
pub(crate) fn deaf() -> (SocketAddr, Box<dyn Any>) {
    if world::is_simulated() {
        let listener = Listener::simulated(lonely().into(), 1);
        let crowd = Client::connect(listener.addr());
        return (listener.addr(), Box::new((listener, crowd)));
    }
    let deaf = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    deaf.bind(&any.into()).expect("a port");
    deaf.listen(0).expect("listening");
    let addr = deaf.local_addr().expect("bound");
    let crowd: Vec<Socket> = (0..4)
        .map(|_| {
            let one = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            one.set_nonblocking(true).expect("an option");
            // In progress; some of them stay so.
            let _ = one.connect(&addr);
            one
        })
        .collect();
    std::thread::sleep(Duration::from_millis(20));
    (
        addr.as_socket().expect("an address"),
        Box::new((deaf, crowd)),
    )
}

/// A listener whose queue is full does not answer.
fn dial_without_an_answer_times_out(v: Variant) {
    let (addr, deaf) = deaf();
    let server = Setup::on(v).start(|| Echo);
    let dial = Dial::to(addr)
        .attempts(2)
        .timeout(Duration::from_millis(60))
        .backoff(Duration::from_millis(1), Duration::from_millis(1))
        .token(3);
    server.dial(dial);
    server
        .record
        .until("the last word", |r| !r.dials_failed.is_empty());
    let (token, error) = server.record.lock().dials_failed[0].clone();
    assert_eq!(token, 3);
    assert!(error.contains("timed out"), "{error}");
    assert_eq!(server.stop().dial_failures, 2);
    drop(deaf);
}

fn dial_from_a_given_address(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let listener = Listener::new();
    let from: SocketAddr = ([127, 0, 0, 5], 0).into();
    server.dial(Dial::to(listener.addr()).from(from));
    let (stream, seen) = listener.accept_from();
    assert_eq!(seen.ip(), Some(from.ip()));
    drop(stream);
    server.record.why_closed(0);
    server.stop();
}

/// TCP lets a socket connect to its own port. A client that tries a port until a server comes up
/// there would connect to itself one day, and keep the server from coming up.
fn dial_that_reaches_itself_has_failed(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let addr = nobody();
    server.dial(Dial::to(addr).from(addr).token(8));
    server
        .record
        .until("the last word", |r| !r.dials_failed.is_empty());
    let (token, error) = server.record.lock().dials_failed[0].clone();
    assert!(token == 8 && error.contains("refused"), "{error}");
    let counters = server.stop();
    assert_eq!((counters.dialled, counters.dial_failures), (0, 1));
}

fn dial_of_ipv6(v: Variant) {
    let (ip, port) = match world::is_simulated() {
        true => (Ipv6Addr::LOCALHOST, world::unused_port()),
        false if TcpListener::bind("[::1]:0").is_err() => return eprintln!("no IPv6 here"),
        false => (Ipv6Addr::LOCALHOST, 0),
    };
    let listener = Listener::at((ip, port));
    let server = Setup::on(v).start(|| Echo);
    server.dial(Dial::to(listener.addr()));
    let mut peer = listener.accept();
    peer.send(b"six");
    peer.expect(b"six");
    drop(peer);
    server.record.why_closed(0);
    server.stop();
}

fn dial_through_a_loop_handle(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Echo);
    let listener = Listener::new();
    // The threads engine has a loop for as long as a connection lives.
    let client = server.connect();
    server.record.handle(0);
    let loops = server.record.lock().loops.clone();
    for (i, at) in loops.iter().enumerate() {
        let dialled = at.dial(Dial::to(listener.addr()).token(i as u64));
        dialled.expect("room for a dial");
        let mut peer = listener.accept();
        peer.send(b"x");
        peer.expect(b"x");
    }
    drop(client);
    server.cut();
}

fn dialled_connection_refused_by_the_service(v: Variant) {
    let server = Setup::on(v).start_with(|_| Err(Refusal::ByService("not today")));
    let listener = Listener::new();
    server.dial(Dial::to(listener.addr()).token(6));
    listener.accept().expect_reset();
    server
        .record
        .until("the last word", |r| !r.dials_failed.is_empty());
    let (token, error) = server.record.lock().dials_failed[0].clone();
    assert!(token == 6 && error.contains("not today"), "{error}");
    server.until("the refusal", |c| {
        c.refused_for(Refusal::ByService("")) == 1
    });
    let counters = server.stop();
    assert_eq!(counters.closed_total(), 0, "never opened, so never closed");
}

/// A client and its server in one: requests go out and replies come back on the same loops.
fn dialled_and_accepted_on_the_same_loops(v: Variant) {
    const REQUESTS: u64 = 500;
    /// Sends a number, waits for it to come back, sends the next.
    struct Asks {
        next: u64,
        done: Arc<AtomicU64>,
    }
    impl Role for Asks {
        fn opened(&mut self, cx: &mut Context<'_>) {
            cx.link.write(&self.next.to_be_bytes());
        }
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            while let Some(reply) = input.bytes().first_chunk::<8>() {
                assert_eq!(*reply, self.next.to_be_bytes());
                input.consume(8);
                self.next += 1;
                if self.next == REQUESTS {
                    self.done.fetch_add(1, SeqCst);
                    cx.link.finish();
                    return Next::More;
                }
                cx.link.write(&self.next.to_be_bytes());
            }
            Next::AtLeast(8)
        }
    }
    struct Answers;
    impl Role for Answers {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            echo(input, cx)
        }
    }
    let done = Arc::new(AtomicU64::new(0));
    let theirs = done.clone();
    let server = Setup::on(v).start_with(move |peer| {
        Ok(match peer.origin {
            Origin::Accepted(_) => Box::new(Answers),
            Origin::Dialled(_) => Box::new(Asks {
                next: 0,
                done: theirs.clone(),
            }),
        })
    });
    for token in 0..10 {
        server.dial(Dial::to(server.addr()).token(token));
    }
    server
        .record
        .until("all asked", |_| done.load(SeqCst) == 10);
    server.record.until("all ends", |r| r.closed() == 20);
    let counters = server.stop();
    assert_eq!(counters.closed_for(Closed::Finished), 20);
    assert_eq!(counters.bytes_in, counters.bytes_out);
}
