//! Proxies by `relay`: each end sees of the other what it would see without one in between.

use std::time::Duration;

use tidewire::relay::{Front, relay};
use tidewire::sim::ScriptedNames;
use tidewire::{Dial, Layered, Limits, Link, Service, Target};

use crate::case::{Case, case};
use crate::client::Client;
use crate::hosting::{Loops, host, host_with};
use crate::layers::{Inverts, inverted};
use crate::listener::{Listener, nobody};
use crate::process::eventually;
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(a_relay_passes_on_bytes_and_ends_of_sending),
        case!(a_relay_passes_on_resets),
        case!(a_relay_without_its_other_side_resets),
        case!(a_relay_gives_up_for_a_client_that_has_gone),
        case!(a_relay_holds_back_who_sends_to_a_stuck_side),
        case!(a_relay_inside_a_layer_passes_on),
    ]
}

struct To(Target);

impl Front for To {
    fn opened(&mut self, _: &mut Link<'_>) -> Option<Dial> {
        Some(Dial::to(&self.0))
    }
}

fn to(target: impl Into<Target>) -> impl Service {
    let target = target.into();
    relay(move |_| To(target.clone()))
}

fn pair(loops: &Loops<impl Service>, listener: &Listener) -> (Client, Client) {
    let client = loops.connect();
    let server = listener.accept();
    (client, server)
}

fn a_relay_passes_on_bytes_and_ends_of_sending(v: Variant) {
    let listener = Listener::new();
    let loops = host(v, to(listener.addr()), Limits::default());
    for client_ends_first in [true, false] {
        let (mut client, mut server) = pair(&loops, &listener);
        client.send(b"a question");
        server.expect(b"a question");
        let much: Vec<u8> = (0..300_000_u32).map(|i| (i / 7) as u8).collect();
        let (first, second) = match client_ends_first {
            true => (&mut client, &mut server),
            false => (&mut server, &mut client),
        };
        first.send(b"the last word");
        first.finish();
        second.expect(b"the last word");
        second.expect_end();
        // One direction has ended, the other goes on.
        second.send(&much);
        assert!(first.take(much.len()) == much);
        second.finish();
        first.expect_end();
    }
    eventually("all to end", || loops.counters().open == 0);
    let counters = loops.stop(Duration::from_secs(10));
    assert_eq!(
        (counters.closed_total(), counters.tells_undeliverable),
        (4, 0)
    );
}

fn a_relay_passes_on_resets(v: Variant) {
    let listener = Listener::new();
    let loops = host(v, to(listener.addr()), Limits::default());
    for client_resets in [true, false] {
        let (mut client, mut server) = pair(&loops, &listener);
        client.send(b"x");
        server.expect(b"x");
        match client_resets {
            true => {
                client.reset();
                server.expect_reset();
            }
            false => {
                server.reset();
                client.expect_reset();
            }
        }
    }
    eventually("all to end", || loops.counters().open == 0);
    loops.stop(Duration::from_secs(10));
}

fn a_relay_without_its_other_side_resets(v: Variant) {
    let loops = host(v, to(nobody()), Limits::default());
    Client::connect_to_be_reset(loops.addr());
    eventually("the end", || loops.counters().open == 0);
    loops.stop(Duration::from_secs(10));
}

fn a_relay_gives_up_for_a_client_that_has_gone(v: Variant) {
    let names = ScriptedNames::default();
    names.hold("one.test");
    let target = Target::host("one.test", 1).expect("a name");
    let loops = host_with(v, to(target), Limits::default(), &names);
    let client = loops.connect();
    eventually("a lookup", || loops.counters().lookups == 1);
    client.reset();
    eventually("the dial's end", || loops.counters().dial_failures == 1);
    assert!(names.held().iter().all(|lookup| !lookup.is_wanted()));
    let counters = loops.stop(Duration::from_secs(10));
    assert_eq!((counters.open, counters.dialled), (0, 0));
}

fn a_relay_holds_back_who_sends_to_a_stuck_side(v: Variant) {
    const MUCH: usize = 48 << 20;
    let listener = Listener::new();
    let limits = Limits {
        output_high: 64 << 10,
        output_low: 16 << 10,
        // Nothing of what is passed on may come near.
        output_hard: 8 << 20,
        ..Limits::default()
    };
    let loops = host(v, to(listener.addr()), limits);
    let (mut client, mut server) = pair(&loops, &listener);
    client.send(b"x");
    server.expect(b"x");
    let sender = crate::world::spawn(move || {
        let piece = vec![7; 1 << 20];
        for _ in 0..MUCH / piece.len() {
            server.send(&piece);
        }
        server.finish();
    });
    // The client reads late, and all is there.
    crate::world::sleep(Duration::from_millis(50));
    let mut left = MUCH;
    while left > 0 {
        let piece = client.take(left.min(1 << 20));
        assert!(piece.iter().all(|&byte| byte == 7));
        left -= piece.len();
    }
    client.expect_end();
    sender.join().expect("the sender");
    client.finish();
    eventually("all to end", || loops.counters().open == 0);
    let counters = loops.stop(Duration::from_secs(10));
    assert_eq!(counters.cut_unsent, 0);
}

fn a_relay_inside_a_layer_passes_on(v: Variant) {
    let listener = Listener::new();
    let service = Layered::new(
        Inverts,
        relay({
            let target = Target::from(listener.addr());
            move |_| To(target.clone())
        }),
    );
    let loops = host(v, service, Limits::default());
    let (mut client, mut server) = pair(&loops, &listener);
    // Both sides are inside the layer: what is turned over twice is as it was.
    client.send(b"a question");
    server.expect(&b"a question"[..]);
    server.send(&inverted(b"an answer"));
    client.expect(&inverted(b"an answer"));
    client.finish();
    server.expect_end();
    server.send(b"z");
    server.finish();
    client.expect(b"z");
    client.expect_end();
    eventually("all to end", || loops.counters().open == 0);
    loops.stop(Duration::from_secs(10));
}
