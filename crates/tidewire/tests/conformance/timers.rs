//! Timers: once, movable both ways, gone when cleared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidewire::{Input, Instant, Next};

use crate::case::{Case, case};
use crate::fixture::Setup;
use crate::probe::{Context, Role};
use crate::record::Event;
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(timer_fires_once),
        case!(timer_moved_closer),
        case!(timer_moved_away),
        case!(timer_cleared),
        case!(timer_of_the_past_fires_at_once),
        case!(timer_set_again_in_expired),
        case!(timers_of_many_connections_fire_each_once),
        case!(time_is_given),
        case!(timers_are_finer_than_a_millisecond),
    ]
}

/// Sets its timer as each byte of input says, and writes `!` when it fires.
struct Timed {
    set_at: Option<Instant>,
    for_long: Duration,
    early: Arc<AtomicU64>,
}

fn timed() -> Timed {
    Timed {
        set_at: None,
        for_long: Duration::ZERO,
        early: Arc::default(),
    }
}

const NEAR: Duration = Duration::from_millis(30);
const FAR: Duration = Duration::from_secs(3600);

impl Role for Timed {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        for byte in input.bytes() {
            let now = cx.link.now();
            match byte {
                b'n' => self.for_long = NEAR,
                b'f' => self.for_long = FAR,
                b'p' => cx.link.set_timer(Instant::from_nanos(1)),
                b'c' => cx.link.clear_timer(),
                other => panic!("no command {other}"),
            }
            if b"nf".contains(byte) {
                self.set_at = Some(now);
                cx.link.set_timer_after(self.for_long);
                assert_eq!(cx.link.timer(), Some(now + self.for_long));
            }
        }
        input.consume(input.len());
        cx.link.write(b".");
        Next::More
    }

    fn expired(&mut self, cx: &mut Context<'_>) {
        if self
            .set_at
            .is_some_and(|t| cx.link.now().since(t) < self.for_long)
        {
            self.early.fetch_add(1, SeqCst);
        }
        assert_eq!(cx.link.timer(), None);
        cx.link.write(b"!");
    }
}

fn timer_fires_once(v: Variant) {
    let early = Arc::new(AtomicU64::new(0));
    let shared = early.clone();
    let server = Setup::on(v).start(move || Timed {
        early: shared.clone(),
        ..timed()
    });
    let mut client = server.connect();
    client.send(b"n");
    client.expect(b".!");
    world::sleep(NEAR * 2);
    client.finish();
    client.expect_end();
    drop(client);
    server.record.why_closed(0);
    assert_eq!(server.record.lock().count(&Event::Expired), 1);
    assert_eq!(early.load(SeqCst), 0, "never early");
    server.stop();
}

fn timer_moved_closer(v: Variant) {
    let server = Setup::on(v).start(timed);
    let mut client = server.connect();
    client.send(b"f");
    client.expect(b".");
    client.send(b"n");
    client.expect(b".!");
    server.cut();
}

fn timer_moved_away(v: Variant) {
    let server = Setup::on(v).start(timed);
    let mut client = server.connect();
    client.send(b"nf");
    client.expect(b".");
    world::sleep(NEAR * 3);
    assert_eq!(server.record.lock().count(&Event::Expired), 0);
    client.send(b"n");
    client.expect(b".!");
    server.cut();
}

fn timer_cleared(v: Variant) {
    let server = Setup::on(v).start(timed);
    let mut client = server.connect();
    client.send(b"nc");
    client.expect(b".");
    world::sleep(NEAR * 3);
    assert_eq!(server.record.lock().count(&Event::Expired), 0);
    client.send(b"n");
    client.expect(b".!");
    server.cut();
}

fn timer_of_the_past_fires_at_once(v: Variant) {
    let server = Setup::on(v).start(timed);
    let mut client = server.connect();
    for _ in 0..3 {
        client.send(b"p");
        client.expect(b".!");
    }
    server.cut();
}

fn timer_set_again_in_expired(v: Variant) {
    struct Ticks(u32);
    impl Role for Ticks {
        fn opened(&mut self, cx: &mut Context<'_>) {
            cx.link.set_timer_after(Duration::from_millis(2));
        }
        fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Next {
            Next::More
        }
        fn expired(&mut self, cx: &mut Context<'_>) {
            cx.link.write(&[b'0' + self.0 as u8]);
            self.0 += 1;
            match self.0 {
                10 => cx.link.finish(),
                n if n % 2 == 0 => cx.link.set_timer(cx.link.now()),
                _ => cx.link.set_timer_after(Duration::from_millis(2)),
            }
        }
    }
    let server = Setup::on(v).start(|| Ticks(0));
    let mut client = server.connect();
    client.expect(b"0123456789");
    client.expect_end();
    drop(client);
    server.stop();
}

fn timers_of_many_connections_fire_each_once(v: Variant) {
    let server = Setup::on(v).start(timed);
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"n");
    }
    for client in &mut clients {
        client.expect(b".!");
    }
    assert_eq!(server.record.lock().count(&Event::Expired), 100);
    server.cut();
}

fn time_is_given(v: Variant) {
    struct Looks;
    impl Role for Looks {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            input.consume(input.len());
            let (turn, clock) = (cx.link.now(), cx.link.clock());
            assert!(clock >= turn, "a turn's time is not ahead of the clock");
            assert!(
                clock.since(turn) < Duration::from_secs(10),
                "nor far behind"
            );
            assert!(cx.link.wall() > Duration::from_secs(1_600_000_000));
            let random: Vec<u64> = (0..4).map(|_| cx.link.random()).collect();
            assert!(random.iter().any(|&n| n != random[0]));
            cx.link.write(b"ok");
            Next::More
        }
    }
    let server = Setup::on(v).start(|| Looks);
    let mut client = server.connect();
    client.send(b"?");
    client.expect(b"ok");
    server.cut();
}

/// How many timers of a tenth of a millisecond, one after the other, expire in a time; rounded up
/// to milliseconds it can never be more than one for each millisecond. A busy machine may lose a
/// race, not all.
fn timers_are_finer_than_a_millisecond(v: Variant) {
    const TENTH: Duration = Duration::from_micros(100);
    const TIME: Duration = Duration::from_millis(40);
    struct Ticks {
        began: Instant,
        ticks: u64,
        best: Arc<AtomicU64>,
    }
    impl Role for Ticks {
        fn opened(&mut self, cx: &mut Context<'_>) {
            self.began = cx.link.clock();
            cx.link.set_timer_after(TENTH);
        }
        fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Next {
            Next::More
        }
        fn expired(&mut self, cx: &mut Context<'_>) {
            let now = cx.link.clock();
            self.ticks += 1;
            if now.since(self.began) >= TIME {
                self.best.fetch_max(self.ticks - 1, SeqCst);
                (self.began, self.ticks) = (now, 0);
            }
            cx.link.set_timer(now + TENTH);
        }
    }
    let best = Arc::<AtomicU64>::default();
    let theirs = best.clone();
    let server = Setup::on(v).start(move || Ticks {
        began: Instant::from_nanos(0),
        ticks: 0,
        best: theirs.clone(),
    });
    let client = server.connect();
    server
        .record
        .until("more than one a millisecond", |_| best.load(SeqCst) > 60);
    drop(client);
    server.cut();
}
