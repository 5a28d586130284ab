//! Timers with keys: each once, in order, movable both ways, gone when cleared and when the connection finishes, beside the one
//! that has no key; inside a layer too.

use std::sync::Arc;
use std::time::Duration;

use tidewire::{Closed, Input, Instant, Layered, Limits, Next, Peer};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::hosting::host;
use crate::layers::{Inverts, inverted};
use crate::probe::{Context, Probes, Role};
use crate::record::{Event, Record};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(keyed_timers_fire_in_order),
        case!(keyed_timers_inside_a_layer_fire_in_order),
        case!(keyed_timers_are_moved_and_cleared),
        case!(keyed_timers_inside_a_layer_are_moved_and_cleared),
        case!(keyed_timers_of_the_past_fire_and_let_others_live),
        case!(many_keyed_timers_are_counted_as_held),
        case!(keyed_timers_end_with_their_connection),
    ]
}

/// For each pair of input, a key and a number of milliseconds, sets a timer; with 255 it is cleared, and key 0 is the timer that
/// has none. Says the key of each one that fires.
#[derive(Default)]
struct Keyed {
    due: Vec<(u8, Instant)>,
}

const CLEAR: u8 = 255;

impl Keyed {
    fn fired(&mut self, key: u8, cx: &mut Context<'_>) {
        let at = self.due.iter().position(|&(k, _)| k == key);
        let (_, at) = self.due.swap_remove(at.expect("it was set"));
        assert!(cx.link.now() >= at, "never early");
        assert_eq!(cx.link.keyed_timer(key.into()), None);
        cx.link.write(&[key]);
    }
}

impl Role for Keyed {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        while let &[key, millis, ..] = input.bytes() {
            input.consume(2);
            self.due.retain(|&(k, _)| k != key);
            let at = cx.link.now() + Duration::from_millis(millis.into());
            match (key, millis) {
                (0, CLEAR) => cx.link.clear_timer(),
                (0, _) => cx.link.set_timer(at),
                (_, CLEAR) => cx.link.clear_keyed_timer(key.into()),
                _ => cx.link.set_keyed_timer(key.into(), at),
            }
            let set = match key {
                0 => cx.link.timer(),
                _ => cx.link.keyed_timer(key.into()),
            };
            assert_eq!(set, (millis != CLEAR).then_some(at));
            if millis != CLEAR {
                self.due.push((key, at));
            }
        }
        Next::More
    }

    fn expired(&mut self, cx: &mut Context<'_>) {
        assert_eq!(cx.link.timer(), None);
        self.fired(0, cx);
    }

    fn timer_expired(&mut self, key: u64, cx: &mut Context<'_>) {
        self.fired(key as u8, cx);
    }
}

/// Serves `Keyed`, plain or inside a layer, to a client that says `asks`: it is answered so.
fn answers(v: Variant, is_inside: bool, says: &[(&[u8], &[u8])]) {
    if !is_inside {
        let server = Setup::on(v).start(Keyed::default);
        let mut client = server.connect();
        for (asks, answer) in says {
            client.send(asks);
            client.expect(answer);
        }
        return drop(server.cut());
    }
    let record = Arc::<Record>::default();
    let probes = Probes {
        record: record.clone(),
        make: Box::new(|_: &Peer| Ok(Box::new(Keyed::default()) as Box<dyn Role>)),
        woken: None,
        keep_handles: false,
    };
    let loops = host(v, Layered::new(Inverts, probes), Limits::default());
    let mut client = loops.connect();
    for (asks, answer) in says {
        client.send(&inverted(asks));
        client.expect(&inverted(answer));
    }
    loops.stop(Duration::ZERO);
    record.check();
}

const IN_ORDER: [(&[u8], &[u8]); 2] = [
    (&[1, 30, 2, 10, 3, 20, 0, 15, 4, 25], &[2, 0, 3, 4, 1]),
    // Again, and with the one that has no key at either end.
    (&[9, 20, 0, 10, 8, 30, 7, 40], &[0, 9, 8, 7]),
];

fn keyed_timers_fire_in_order(v: Variant) {
    answers(v, false, &IN_ORDER);
}

fn keyed_timers_inside_a_layer_fire_in_order(v: Variant) {
    answers(v, true, &IN_ORDER);
}

const MOVED: [(&[u8], &[u8]); 3] = [
    // Moved away, moved closer, cleared; what is not set may be cleared too.
    (
        &[
            1, 5, 2, 90, 3, 10, 0, 1, 1, 60, 2, 20, 3, CLEAR, 0, CLEAR, 6, CLEAR, 4, 80,
        ],
        &[2, 1, 4],
    ),
    (&[3, 10], &[3]),
    (&[0, 10], &[0]),
];

fn keyed_timers_are_moved_and_cleared(v: Variant) {
    answers(v, false, &MOVED);
}

fn keyed_timers_inside_a_layer_are_moved_and_cleared(v: Variant) {
    answers(v, true, &MOVED);
}

/// Sets its timers for the past again and again, which keeps neither its others nor other connections from their turn.
fn keyed_timers_of_the_past_fire_and_let_others_live(v: Variant) {
    struct Restless(u32);
    impl Role for Restless {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            input.consume(input.len());
            for key in 0..600 {
                cx.link.set_keyed_timer(key, Instant::from_nanos(1));
            }
            cx.link.set_keyed_timer(1000, cx.link.now());
            Next::More
        }

        fn timer_expired(&mut self, key: u64, cx: &mut Context<'_>) {
            match key {
                1000 => cx.link.write(b"late"),
                _ if self.0 < 100_000 => {
                    self.0 += 1;
                    cx.link.set_keyed_timer(key, Instant::from_nanos(1));
                }
                _ => {}
            }
        }
    }
    let server = Setup::on(v).start(|| Restless(0));
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"x");
    }
    for client in &mut clients {
        client.expect(b"late");
    }
    server.cut();
}

fn many_keyed_timers_are_counted_as_held(v: Variant) {
    const MANY: u64 = 10_000;
    struct Sets;
    impl Role for Sets {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            for &byte in input.bytes() {
                for key in 0..MANY {
                    match byte {
                        b's' => cx
                            .link
                            .set_keyed_timer_after(key, Duration::from_secs(3600)),
                        _ => cx.link.clear_keyed_timer(key),
                    }
                }
            }
            input.consume(input.len());
            cx.link.write(b".");
            Next::More
        }
    }
    let server = Setup::on(v).start(|| Sets);
    let mut client = server.connect();
    for _ in 0..2 {
        client.send(b"s");
        client.expect(b".");
        server.until("the timers to count", |c| c.memory >= MANY * 100);
        client.send(b"c");
        client.expect(b".");
        server.until("nothing to count", |c| c.memory < MANY);
    }
    server.cut();
}

fn keyed_timers_end_with_their_connection(v: Variant) {
    struct Ends;
    impl Role for Ends {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            input.consume(input.len());
            for key in 0..10 {
                cx.link.set_keyed_timer(key, cx.link.now());
            }
            cx.link.set_timer(cx.link.now());
            Next::More
        }

        fn timer_expired(&mut self, key: u64, cx: &mut Context<'_>) {
            // The others were due as well.
            if key == 4 {
                cx.link.finish();
                cx.link.set_keyed_timer(11, cx.link.now());
                assert_eq!(cx.link.keyed_timer(5), None);
                assert_eq!(cx.link.keyed_timer(11), None);
            }
        }
    }
    let server = Setup::on(v).start(|| Ends);
    let mut client = server.connect();
    client.send(b"x");
    client.expect_end();
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    for key in 0..12 {
        let fired = server.record.lock().count(&Event::TimerExpired(key));
        assert_eq!(fired, usize::from(key < 5), "{key}");
    }
    server.stop();
}
