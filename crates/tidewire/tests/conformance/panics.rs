//! A panic in any callback ends that one connection and nothing else.

use tidewire::{Closed, Conns, Input, Next, Refusal};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Message, OnLoop, Probe, Role};
use crate::record::ON_PURPOSE;
use crate::roles::echo;
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(panic_in_opened),
        case!(panic_in_received),
        case!(panic_in_received_after_a_write),
        case!(panic_in_writable),
        case!(panic_in_peer_finished),
        case!(panic_in_hung_up),
        case!(panic_in_expired),
        case!(panic_in_idle),
        case!(panic_in_posted),
        case!(panic_in_draining),
        case!(panic_in_closed),
        case!(panic_when_the_protocol_is_dropped),
        case!(panic_in_accept),
        case!(panic_in_woken),
        case!(panic_in_woken_in_one_of_each),
        case!(panic_in_woken_with_one),
    ]
}

/// Echoes, unless its input says where to panic.
#[derive(Default)]
struct Fragile {
    at: u8,
}

impl Fragile {
    fn here(&self, place: u8) {
        assert!(self.at != place, "{ON_PURPOSE}");
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        self.here(b'D');
    }
}

impl Role for Fragile {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        match input.bytes() {
            [b'!', at, ..] => {
                self.at = *at;
                input.consume(2);
                cx.link.write(b"ok");
                if *at == b'R' {
                    panic!("{ON_PURPOSE}");
                }
                if *at == b't' {
                    cx.link.set_timer_after(std::time::Duration::from_millis(1));
                }
                if *at == b'w' {
                    cx.link.write(&vec![0; 1 << 20]);
                }
                if *at == b'h' {
                    Next::Paused
                } else {
                    Next::More
                }
            }
            _ => {
                self.here(b'r');
                echo(input, cx)
            }
        }
    }
    fn writable(&mut self, _: &mut Context<'_>) {
        self.here(b'w');
    }
    fn peer_finished(&mut self, _: usize, cx: &mut Context<'_>) {
        self.here(b'e');
        cx.link.finish();
    }
    fn hung_up(&mut self, _: &mut Context<'_>) {
        self.here(b'h');
    }
    fn expired(&mut self, _: &mut Context<'_>) {
        self.here(b't');
    }
    fn idle(&mut self, _: &mut Context<'_>) {
        self.here(b'i');
    }
    fn posted(&mut self, _: u64, _: &mut Context<'_>) {
        self.here(b'p');
    }
    fn draining(&mut self, cx: &mut Context<'_>) {
        self.here(b'd');
        cx.link.finish();
    }
    fn closed(&mut self, _: Closed) {
        self.here(b'c');
    }
}

/// Panics at `place` in connection 1, then checks that its neighbours live on.
fn panics_at(v: Variant, place: u8, provoke: impl FnOnce(&Server, &mut Client)) {
    let idle = (place == b'i').then_some(std::time::Duration::from_millis(40));
    let mut setup = Setup::on(v).limits(|l| l.idle = idle);
    if place == b'p' {
        setup = setup.reachable();
    }
    let server = setup.start(Fragile::default);
    let mut before = server.connect();
    before.send(b"one");
    before.expect(b"one");
    let mut victim = server.connect();
    let mut after = server.connect();
    after.send(b"two");
    after.expect(b"two");
    victim.send(&[b'!', place]);
    if place != b'R' {
        victim.expect(b"ok");
    }
    server.record.until("all open", |r| r.opened() == 3);
    provoke(&server, &mut victim);
    server.until("the panic", |c| c.closed_for(Closed::Panicked) == 1);
    server.until("its being counted", |c| c.panics == 1);
    if place != b'w' {
        victim.expect_reset();
    }
    for client in [&mut before, &mut after] {
        client.send(b"alive");
        client.expect(b"alive");
    }
    drop((before, after));
    server.until("the neighbours' ends", |c| c.open == 0);
    let counters = server.stop();
    assert_eq!(counters.closed_for(Closed::Panicked), 1);
}

fn panic_in_received(v: Variant) {
    panics_at(v, b'r', |_, victim| victim.send(b"x"));
}

fn panic_in_received_after_a_write(v: Variant) {
    panics_at(v, b'R', |_, _| {});
}

fn panic_in_writable(v: Variant) {
    panics_at(v, b'w', |_, victim| {
        // Reads until the output has drained far enough, and then the reset.
        victim.expect_reset();
    });
}

fn panic_in_peer_finished(v: Variant) {
    panics_at(v, b'e', |_, victim| victim.finish());
}

fn panic_in_hung_up(v: Variant) {
    panics_at(v, b'h', |_, victim| victim.finish());
}

fn panic_in_expired(v: Variant) {
    panics_at(v, b't', |_, _| {});
}

fn panic_in_idle(v: Variant) {
    panics_at(v, b'i', |_, _| {});
}

fn panic_in_posted(v: Variant) {
    panics_at(v, b'p', |server, _| {
        let handles = server.record.lock().handles.clone();
        for (_, handle) in handles {
            assert!(handle.try_post(Message::Note(0)).is_ok());
        }
    });
}

fn panic_in_opened(v: Variant) {
    struct Stillborn;
    impl Role for Stillborn {
        fn opened(&mut self, _: &mut Context<'_>) {
            panic!("{ON_PURPOSE}");
        }
        fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Next {
            Next::More
        }
    }
    let server = Setup::on(v).start(|| Stillborn);
    for i in 0..5 {
        Client::connect_to_be_reset(server.addr());
        assert_eq!(server.record.why_closed(i), Closed::Panicked);
    }
    assert_eq!(server.stop().closed_for(Closed::Panicked), 5);
}

fn panic_in_draining(v: Variant) {
    let server = Setup::on(v).start(Fragile::default);
    let mut victim = server.connect();
    victim.send(b"!d");
    victim.expect(b"ok");
    let mut other = server.connect();
    other.send(b"x");
    other.expect(b"x");
    // The client closes as soon as it sees the end; the server waits for that.
    let end = world::spawn(move || other.expect_end());
    let counters = server.stop();
    victim.expect_reset();
    end.join().expect("an orderly end");
    assert_eq!(counters.closed_for(Closed::Panicked), 1);
}

fn panic_in_closed(v: Variant) {
    panic_at_the_end(v, b'c');
}

fn panic_when_the_protocol_is_dropped(v: Variant) {
    panic_at_the_end(v, b'D');
}

fn panic_at_the_end(v: Variant, place: u8) {
    let server = Setup::on(v).start(Fragile::default);
    let mut victim = server.connect();
    victim.send(&[b'!', place]);
    victim.expect(b"ok");
    drop(victim);
    server.record.why_closed(0);
    let mut other = server.connect();
    other.send(b"x");
    other.expect(b"x");
    drop(other);
    server.record.why_closed(1);
    let counters = server.stop();
    assert_eq!((counters.open, counters.panics), (0, 1));
}

fn panic_in_accept(v: Variant) {
    let server = Setup::on(v).start_with(|_| panic!("{ON_PURPOSE}"));
    for _ in 0..3 {
        Client::connect_to_be_reset(server.addr());
    }
    let counters = server.stop();
    assert_eq!(counters.refused_for(Refusal::Panicked), 3);
}

fn panic_in_woken(v: Variant) {
    let server = Setup::on(v)
        .reachable()
        .woken(|_, _| panic!("{ON_PURPOSE}"))
        .start(Fragile::default);
    let mut client = server.connect();
    server.record.handle(0);
    let loops = server.record.lock().loops.clone();
    loops.iter().for_each(|l| l.signal());
    server
        .record
        .until("a call", |_| server.record.woken() >= 1);
    client.send(b"alive");
    client.expect(b"alive");
    server.cut();
}

/// A service that is woken goes round its connections, and one of them panics halfway through a
/// write.
fn panic_in_woken_in_one_of_each(v: Variant) {
    half_written(v, |local, all| {
        all.each(local, |_, cx| half_write(cx));
    });
}

fn panic_in_woken_with_one(v: Variant) {
    half_written(v, |local, all| {
        let mut ids = Vec::new();
        all.each(local, |_, cx| ids.push(cx.link.id()));
        for id in ids {
            let done = all.with(id, local, |_, cx| half_write(cx));
            assert!(done.is_none() || all.with(id, local, |_, _| ()).is_some());
        }
    });
}

/// Writes to every connection, and panics in the middle of it for one with marks of its own.
fn half_write(cx: &mut Context<'_>) {
    let victim = cx.link.full();
    cx.link.write_with(1000, |block| {
        block[..4].copy_from_slice(b"tick");
        if victim {
            panic!("{ON_PURPOSE}");
        }
        4
    });
}

fn half_written(v: Variant, woken: fn(&mut OnLoop, &mut Conns<'_, Probe>)) {
    /// Echoes; after `v` its output counts as full as soon as there is any, and there is.
    struct Marked;
    impl Role for Marked {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            if input.bytes() == b"v" {
                cx.link.write(&vec![b'.'; 16 << 20]);
            }
            echo(input, cx)
        }
    }
    let server = Setup::on(v)
        .limits(|l| l.idle = None)
        .reachable()
        .woken(woken)
        .start(|| Marked);
    let mut clients: Vec<Client> = (0..7).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"x");
        client.expect(b"x");
    }
    // The victim does not read what it is sent, so its output stays full.
    let mut victim = clients.remove(3);
    victim.send(b"v");
    victim.expect(b".");
    let loops = server.record.lock().loops.clone();
    loops.iter().for_each(|l| l.signal());
    server.until("the panic", |c| c.closed_for(Closed::Panicked) == 1);
    server.until("its being counted", |c| c.panics == 1);
    let mut all = Vec::new();
    let cut = std::io::Read::read_to_end(&mut victim, &mut all);
    assert!(cut.is_err(), "an orderly end instead of a reset");
    assert!(all.iter().all(|&b| b == b'.'), "half of a write was sent");
    for client in &mut clients {
        client.expect(b"tick");
        client.send(b"alive");
        client.expect(b"alive");
    }
    drop(clients);
    server.until("the neighbours' ends", |c| c.open == 0);
    assert_eq!(server.stop().closed_for(Closed::Panicked), 1);
}
