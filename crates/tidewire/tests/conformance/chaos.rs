//! Connections that do anything at any time, against peers that do the same: whatever happens, the
//! contracts hold, every connection ends, and the counters add up. Seeded, so that a failure names
//! what to try again.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidewire::{Input, Next};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Message, Role};
use crate::roles::{Rng, noise};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(anything_at_any_time),
        case!(anything_at_any_time_out_of_reach),
        case!(anything_with_busy_polling),
        case!(anything_with_few_small_buffers),
        case!(anything_while_stopping),
    ]
}

/// Does something else in each callback.
struct Fickle(Rng);

impl Fickle {
    fn act(&mut self, cx: &mut Context<'_>) {
        let rng = &mut self.0;
        match rng.between(0, 40) {
            0..=9 => cx.link.write(&noise(rng.next(), rng.between(1, 3000))),
            10 => cx.link.write(&noise(rng.next(), rng.between(1, 150_000))),
            11 => cx
                .link
                .write_shared(noise(rng.next(), rng.between(0, 9000)).into()),
            12..=14 => cx
                .link
                .set_timer_after(Duration::from_micros(rng.next() % 5000)),
            // A paused connection without a timer would wait for ever.
            15 if !cx.link.paused() => cx.link.clear_timer(),
            16 => cx
                .link
                .set_marks(rng.between(0, 100) as u32, rng.between(101, 9999) as u32),
            17..=18 => self.pause(cx),
            19..=20 => cx.link.resume(),
            21 => cx.link.finish(),
            22 => cx.link.finish_because("whim"),
            23 => cx.link.abort(),
            24..=25 => cx.wake_service(),
            _ => {}
        }
    }

    /// Always with a timer, so that it is resumed.
    fn pause(&mut self, cx: &mut Context<'_>) {
        cx.link.pause();
        cx.link
            .set_timer_after(Duration::from_micros(self.0.next() % 3000));
    }
}

impl Role for Fickle {
    fn opened(&mut self, cx: &mut Context<'_>) {
        self.act(cx);
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        let n = self.0.between(0, input.len());
        match self.0.between(0, 3) {
            0 if !cx.link.full() => cx.link.forward(input, n),
            1 => drop(input.take(n)),
            _ => input.consume(n),
        }
        self.act(cx);
        match self.0.between(0, 9) {
            0 => Next::AtLeast(self.0.between(0, 20_000)),
            1 => Next::AtLeast(input.len() + 1),
            2..=3 => Next::AfterDrain,
            4 => {
                self.pause(cx);
                Next::Paused
            }
            _ => Next::More,
        }
    }
    fn writable(&mut self, cx: &mut Context<'_>) {
        self.act(cx);
    }
    fn peer_finished(&mut self, _: usize, cx: &mut Context<'_>) {
        match self.0.between(0, 2) {
            0 => cx.link.finish(),
            1 => cx.link.set_timer_after(Duration::from_micros(500)),
            _ => self.act(cx),
        }
    }
    fn hung_up(&mut self, cx: &mut Context<'_>) {
        self.act(cx);
    }
    fn expired(&mut self, cx: &mut Context<'_>) {
        cx.link.resume();
        self.act(cx);
    }
    fn posted(&mut self, _: u64, cx: &mut Context<'_>) {
        self.act(cx);
    }
    fn draining(&mut self, cx: &mut Context<'_>) {
        if self.0.between(0, 1) == 0 {
            cx.link.finish();
        } else {
            self.act(cx);
        }
    }
}

/// A peer as fickle as the server. Errors are part of the game.
fn visit(client: Client, seed: u64) {
    let mut client = client;
    let mut rng = Rng(seed);
    client.patience(Duration::from_millis(5));
    let mut buffer = vec![0; 50_000];
    for _ in 0..rng.between(1, 30) {
        match rng.between(0, 11) {
            0..=3 => {
                let _ = client.write_all(&noise(seed, rng.between(1, 2000)));
            }
            4 => {
                let _ = client.write_all(&noise(seed, rng.between(1, 100_000)));
            }
            5..=7 => {
                let most = rng.between(1, buffer.len());
                let _ = client.read_exact(&mut buffer[..most]);
            }
            8 => world::sleep(Duration::from_micros(rng.next() % 3000)),
            9 if rng.between(0, 4) == 0 => {
                client.try_finish();
            }
            10 if rng.between(0, 4) == 0 => return client.reset(),
            _ => {}
        }
    }
}

fn setup(v: Variant) -> Setup {
    Setup::on(v).limits(|l| {
        l.idle = Some(Duration::from_millis(100));
        l.linger = Duration::from_millis(50);
        (l.output_low, l.output_high, l.output_hard) = (4 << 10, 32 << 10, 1 << 20);
        l.carried = 1 << 20;
        l.turn_bytes = 32 << 10;
    })
}

fn fickle() -> impl Fn() -> Fickle + Send + Sync {
    let seed = AtomicU64::new(0);
    move || Fickle(Rng(seed.fetch_add(1, SeqCst)))
}

fn visits(server: &Server, visitors: u64, each: u64) {
    let addr = server.addr();
    let threads: Vec<_> = (0..visitors)
        .map(|visitor| {
            world::spawn(move || {
                for i in 0..each {
                    // May be refused or reset while a stop is under way.
                    if let Ok(client) = Client::try_connect(addr) {
                        visit(client, visitor * 10_000 + i);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a visitor");
    }
}

fn anything_at_any_time(v: Variant) {
    let server = setup(v)
        .reachable()
        .woken(|local, all| all.each(local, |_, cx| cx.link.write(b"all")))
        .start(fickle());
    let over = Arc::new(AtomicBool::new(false));
    let (record, stop) = (server.record.clone(), over.clone());
    let poster = world::spawn(move || {
        let mut rng = Rng(99);
        while !stop.load(SeqCst) {
            let handle = {
                let inner = record.lock();
                let n = inner.handles.len();
                // Mostly the ones that have just come.
                (n > 0).then(|| {
                    inner.handles[n - 1 - rng.between(0, n.min(8) - 1)]
                        .1
                        .clone()
                })
            };
            if let Some(handle) = handle {
                match rng.between(0, 20) {
                    0 => handle.finish(),
                    1 => handle.abort(),
                    2 => handle.reserve().expect("a place").post(Message::Note(1)),
                    _ => drop(handle.try_post(Message::Note(0))),
                }
            }
            world::sleep(Duration::from_micros(rng.next() % 400));
        }
    });
    visits(&server, 6, 25);
    server.until("every end", |c| c.open == 0);
    over.store(true, SeqCst);
    poster.join().expect("the poster");
    let counters = server.stop();
    assert_eq!(counters.accepted, counters.closed_total());
}

fn endures(setup: Setup) {
    let server = setup.start(fickle());
    visits(&server, 6, 40);
    server.until("every end", |c| c.open == 0);
    let counters = server.stop();
    assert_eq!(counters.accepted, counters.closed_total());
}

fn anything_at_any_time_out_of_reach(v: Variant) {
    endures(setup(v));
}

fn anything_with_busy_polling(v: Variant) {
    endures(setup(v).tune(|b| {
        b.busy_poll(Duration::from_micros(300));
    }));
}

fn anything_with_few_small_buffers(v: Variant) {
    endures(setup(v).small_buffers().buffers(2).chunk(1024));
}

fn anything_while_stopping(v: Variant) {
    for _ in 0..3 {
        let server = setup(v).start(fickle());
        let addr = server.addr();
        let visitors: Vec<_> = (0..6u64)
            .map(|visitor| {
                world::spawn(move || {
                    for i in 0..8 {
                        if let Ok(client) = Client::try_connect(addr) {
                            visit(client, visitor * 100 + i);
                        }
                    }
                })
            })
            .collect();
        server.until("some visitors", |c| c.accepted >= 10);
        let counters = server.stop_within(Duration::from_secs(30));
        assert_eq!(
            counters.closed_for(tidewire::Closed::StopDeadline),
            0,
            "{counters}"
        );
        for visitor in visitors {
            visitor.join().expect("a visitor");
        }
    }
}
