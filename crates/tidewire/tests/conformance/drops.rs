//! What protocols and services hand to a loop may panic when the loop drops it: that costs one connection at most,
//! and is counted.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewire::fault::Faults;
use tidewire::{Closed, Counters, Handle, Input, Layered, Limits, Listen, Next, on_input};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Message, Probes, Role};
use crate::process::eventually;
use crate::record::{ON_PURPOSE, Record};
use crate::roles::echo;
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(an_owner_of_what_was_sent_may_panic),
        case!(owners_among_other_output_may_panic),
        case!(owners_of_what_is_never_sent_may_panic),
        case!(owners_of_what_is_held_may_panic),
        case!(an_owner_of_a_few_bytes_may_panic),
        case!(owners_inside_a_layer_may_panic),
        case!(what_a_panic_carries_may_panic),
        case!(a_message_to_a_closed_connection_may_panic),
        case!(a_service_may_panic_at_its_end),
    ]
}

/// Panics when it is dropped.
struct Bomb(Vec<u8>);

impl AsRef<[u8]> for Bomb {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "{ON_PURPOSE}");
    }
}

/// Enough bytes that they are queued as they are, and not copied.
const MUCH: usize = 1000;

fn owned(len: usize) -> Bytes {
    Bytes::from_owner(Bomb(vec![b'.'; len]))
}

/// Does what the first byte of its input says; else echoes.
#[derive(Default)]
struct Armed {
    /// To itself, for when it is gone.
    posts: Option<Handle<Message>>,
}

impl Role for Armed {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        let link = &mut cx.link;
        match input.bytes()[0] {
            b'O' => link.write_shared(owned(MUCH)),
            b'S' => {
                for _ in 0..3 {
                    link.write(b"between");
                    link.write_shared(owned(MUCH));
                }
            }
            b'A' => {
                link.write_shared(owned(MUCH));
                link.write_shared(owned(MUCH));
                link.abort();
            }
            b'H' => {
                link.write(b"held");
                link.hold_until(7);
                link.write_shared(owned(MUCH));
                link.write_shared(owned(MUCH));
            }
            b'F' => link.write_shared(owned(3)),
            b'P' => resume_unwind(Box::new(Bomb(Vec::new()))),
            b'M' => {
                self.posts = Some(cx.handle());
                cx.link.write(b"m");
            }
            _ => return echo(input, cx),
        }
        input.consume(input.len());
        Next::More
    }

    fn closed(&mut self, _: Closed) {
        if let Some(handle) = &self.posts {
            let bomb = Bomb(Vec::new());
            let post = Message::run(move |_| drop(bomb));
            assert!(handle.try_post(post).is_ok());
        }
    }
}

/// Has one of three connections do it; how the server's counters stand in the end.
fn armed(v: Variant, what: u8, then: impl FnOnce(&Server, Client)) -> Counters {
    let server = Setup::on(v).start(Armed::default);
    let mut others = [server.connect(), server.connect()];
    let mut victim = server.connect();
    for client in others.iter_mut().chain([&mut victim]) {
        client.send(b"x");
        client.expect(b"x");
    }
    victim.send(&[what]);
    then(&server, victim);
    server.until("the panic to be counted", |c| c.panics > 0);
    for client in &mut others {
        client.send(b"alive");
        client.expect(b"alive");
    }
    drop(others);
    server.until("all ends", |c| c.closed_total() == 3);
    let counters = server.stop();
    assert_eq!(counters.open, 0, "{counters}");
    counters
}

/// What of it has come to the peer before the reset, if anything, is not to be foretold.
fn until_reset(mut client: Client) {
    let mut all = Vec::new();
    let end = std::io::Read::read_to_end(&mut client, &mut all);
    assert!(end.is_err(), "an orderly end instead of a reset");
}

fn an_owner_of_what_was_sent_may_panic(v: Variant) {
    let counters = armed(v, b'O', |_, victim| until_reset(victim));
    let panicked = counters.closed_for(Closed::Panicked);
    assert_eq!((counters.panics, panicked), (1, 1), "{counters}");
}

fn owners_among_other_output_may_panic(v: Variant) {
    let counters = armed(v, b'S', |_, victim| until_reset(victim));
    assert_eq!(counters.closed_for(Closed::Panicked), 1, "{counters}");
}

fn owners_of_what_is_never_sent_may_panic(v: Variant) {
    let counters = armed(v, b'A', |_, victim| until_reset(victim));
    let aborted = counters.closed_for(Closed::Aborted);
    assert_eq!((counters.panics, aborted), (1, 1), "{counters}");
}

fn owners_of_what_is_held_may_panic(v: Variant) {
    let counters = armed(v, b'H', |_, mut victim| {
        victim.expect(b"held");
        victim.reset();
    });
    assert_eq!(counters.closed_for(Closed::Panicked), 0, "{counters}");
}

/// The bytes are copied, and the owner is dropped within the callback.
fn an_owner_of_a_few_bytes_may_panic(v: Variant) {
    let counters = armed(v, b'F', |_, victim| until_reset(victim));
    let panicked = counters.closed_for(Closed::Panicked);
    assert_eq!((counters.panics, panicked), (1, 1), "{counters}");
}

fn what_a_panic_carries_may_panic(v: Variant) {
    let counters = armed(v, b'P', |_, victim| until_reset(victim));
    let panicked = counters.closed_for(Closed::Panicked);
    assert_eq!((counters.panics, panicked), (1, 1), "{counters}");
}

fn a_message_to_a_closed_connection_may_panic(v: Variant) {
    let counters = armed(v, b'M', |_, mut victim| victim.expect(b"m"));
    assert_eq!(counters.panics, 1, "{counters}");
}

fn owners_inside_a_layer_may_panic(v: Variant) {
    let record = Arc::<Record>::default();
    let probes = Probes::new(record.clone(), Armed::default);
    let layered = Layered::new(Faults::none(1), probes);
    let mut builder = v.builder();
    let service = builder.service_with(layered, Limits::default());
    builder.listen(service, Listen::at("127.0.0.1:0"));
    let running = builder.start().expect("the server starts");
    let addr = running.addrs()[0].tcp().expect("TCP");
    // Taken by the layer; never taken.
    for (n, what) in [(1, b"S"), (2, b"H")] {
        let mut victim = Client::connect(addr);
        victim.send(what);
        match what {
            b"H" => {
                victim.expect(b"held");
                victim.reset();
            }
            _ => until_reset(victim),
        }
        eventually("its end", || running.counters().closed_total() == n);
        eventually("its being counted", || running.counters().panics >= n);
    }
    let mut other = Client::connect(addr);
    other.send(b"alive");
    other.expect(b"alive");
    drop(other);
    let counters = running.stop(Duration::from_secs(10));
    assert_eq!(counters.closed_for(Closed::Panicked), 1, "{counters}");
    record.check();
}

fn a_service_may_panic_at_its_end(v: Variant) {
    let bomb = Bomb(Vec::new());
    let echo = on_input(move |input, link| {
        assert!(bomb.0.is_empty());
        link.forward_all(input)
    });
    let mut builder = v.builder();
    let service = builder.service(echo);
    builder.listen(service, Listen::at("127.0.0.1:0"));
    let running = builder.start().expect("the server starts");
    drop(builder);
    let mut client = Client::connect(running.addrs()[0].tcp().expect("TCP"));
    client.send(b"alive");
    client.expect(b"alive");
    drop(client);
    let waiter = running.waiter();
    running.stop(Duration::from_secs(10));
    assert_eq!(waiter.wait(), Ok(()));
}
