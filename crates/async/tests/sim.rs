//! Futures on the simulated network: every split, half-closes, timers, wakers, limits.

#![allow(
    clippy::disallowed_methods,
    reason = "wakers are woken from other threads"
)]

#[path = "../../log/tests/simulated/twice.rs"]
mod twice;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use futures_util::{AsyncReadExt, AsyncWriteExt, StreamExt};
use tidewire::sim::chunking::{self, Feed};
use tidewire::sim::{Conditions, Outcome, Pair, PlainState, Sim, seeds};
use tidewire::{Around, Closed, Input, Layer, Layered, Limits, Next, Peer, Refusal, Service, Wrap};
use tidewire_async::{Sleep, Stream, serve};

async fn echo(mut stream: Stream) {
    let mut buffer = [0; 700];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

#[test]
fn splits_do_not_show() {
    let input: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    for seed in seeds(40) {
        let splits = chunking::splits(seed, input.len());
        for window in [100, 5_000, usize::MAX] {
            let limits = Limits {
                output_low: 1_000,
                output_high: 4_000,
                ..Limits::default()
            };
            let got = Feed::new(&input)
                .splits(&splits)
                .half_close(true)
                .window(window)
                .limits(limits)
                .run(serve(echo));
            assert!(
                got.output == input,
                "seed {seed}: {} bytes",
                got.output.len()
            );
            assert_eq!(got.closed, Some(Closed::Finished));
        }
    }
}

/// A client and a server that are both futures, on every kind of network; both directions at once,
/// both half-closed.
#[test]
fn both_ends_are_futures() {
    let said: Arc<[u8]> = (0..40_000u32).map(|i| (i % 253) as u8).collect();
    for seed in seeds(40) {
        let (said, got) = (said.clone(), Arc::<Mutex<Vec<u8>>>::default());
        let (expected, heard) = (said.clone(), got.clone());
        let client = serve(move |stream: Stream| {
            let (mut reader, mut writer) = (stream.clone(), stream);
            let (said, got) = (said.clone(), got.clone());
            async move {
                let write = async {
                    writer.write_all(&said).await.unwrap();
                    writer.close().await.unwrap();
                    assert!(writer.write_all(b"x").await.is_err(), "closed");
                };
                let mut all = Vec::new();
                let (_, read) = join(write, reader.read_to_end(&mut all)).await;
                read.unwrap();
                *got.lock().unwrap() = all;
            }
        });
        let limits = || Limits {
            idle: None,
            linger: Duration::from_secs(1000),
            ..Limits::default()
        };
        let conditions = Conditions::from_seed(seed);
        let server = (serve(echo), limits());
        let mut pair = Pair::under(seed, conditions, server, (client, limits()));
        assert_eq!(pair.run(Duration::from_secs(3600)), Outcome::Idle);
        assert!(*heard.lock().unwrap() == *expected, "seed {seed}");
        let (server, client) = (pair.server_counters(), pair.client_counters());
        assert_eq!(
            server.closed_for(Closed::Finished),
            1,
            "seed {seed}: {server}"
        );
        assert_eq!(
            client.closed_for(Closed::Finished),
            1,
            "seed {seed}: {client}"
        );
    }
}

/// One peer of a service on a calm network.
struct World {
    sim: Sim,
    at: tidewire::sim::LoopId,
    peer: tidewire::sim::PlainId,
}

fn world<F, R>(f: F) -> World
where
    F: Fn(Stream) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + 'static,
{
    let mut sim = Sim::under(1, Conditions::calm());
    let at = sim.add_loop();
    let service = sim.service(at, serve(f), Limits::default());
    let addr = sim.listen(service);
    let peer = sim.plain(addr);
    sim.run_for(Duration::from_millis(10));
    World { sim, at, peer }
}

#[test]
fn input_is_bounded_while_the_future_does_not_read() {
    let mut world = world(|mut stream: Stream| async move {
        stream.clock().sleep(Duration::from_secs(5)).await;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        stream.write_all(&all.len().to_be_bytes()).await.unwrap();
    });
    world.sim.send(world.peer, &vec![1; 3 << 20]);
    world.sim.finish(world.peer);
    world.sim.run_for(Duration::from_secs(2));
    let came = world.sim.counters(world.at).bytes_in;
    assert!(came < 300_000, "{came} bytes were taken for nobody");
    world.sim.run_for(Duration::from_secs(10));
    let got = world.sim.received(world.peer);
    assert_eq!(got, (3usize << 20).to_be_bytes());
}

#[test]
fn output_is_bounded_while_the_peer_does_not_read() {
    thread_local!(static WRITTEN: Cell<usize> = const { Cell::new(0) });
    let mut world = world(|mut stream: Stream| async move {
        stream.clock().sleep(Duration::from_millis(20)).await;
        while stream.write_all(&[7; 10_000]).await.is_ok() {
            WRITTEN.set(WRITTEN.get() + 10_000);
        }
    });
    world.sim.reading(world.peer, false);
    world.sim.run_for(Duration::from_secs(2));
    let written = WRITTEN.get();
    assert!(written < 2 << 20, "{written} bytes were written for nobody");
    world.sim.reading(world.peer, true);
    world.sim.run_for(Duration::from_millis(100));
    assert!(WRITTEN.get() > written, "goes on");
}

#[test]
fn timers_fire_in_order_and_dropped_ones_do_not() {
    let mut world = world(|mut stream: Stream| async move {
        let clock = stream.clock();
        let start = clock.now();
        drop(clock.sleep(Duration::from_millis(1)));
        let late = async {
            clock.sleep(Duration::from_secs(20)).await;
            clock.now().since(start).as_secs()
        };
        let soon = async {
            clock.sleep(Duration::from_secs(5)).await;
            clock.now().since(start).as_secs()
        };
        let (late, soon) = join(late, soon).await;
        let text = format!("{soon} {late}");
        stream.write_all(text.as_bytes()).await.unwrap();
    });
    world.sim.run_for(Duration::from_secs(30));
    assert_eq!(world.sim.received(world.peer), b"5 20");
}

/// Ready again and again: others get their turn, and the future loses none.
#[test]
fn a_future_that_wakes_itself_does_not_keep_the_loop() {
    let mut world = world(|mut stream: Stream| async move {
        for _ in 0..1000 {
            let mut yielded = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut yielded, true) {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
        stream.write_all(b"done").await.unwrap();
    });
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(world.sim.received(world.peer), b"done");
    assert!(world.sim.counters(world.at).turns > 20);
}

/// What a timer of the network, another thread or another connection would do.
#[test]
fn a_waker_works_from_outside() {
    static WAKER: Mutex<Option<Waker>> = Mutex::new(None);
    let mut world = world(|mut stream: Stream| async move {
        let mut polls = 0;
        poll_fn(|cx| {
            *WAKER.lock().unwrap() = Some(cx.waker().clone());
            polls += 1;
            if polls == 3 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        stream.write_all(b"woken").await.unwrap();
    });
    for _ in 0..2 {
        assert_eq!(world.sim.received(world.peer), b"");
        let waker = WAKER.lock().unwrap().clone().unwrap();
        std::thread::scope(|s| {
            s.spawn(|| (0..100).for_each(|_| waker.wake_by_ref()));
        });
        world.sim.run_for(Duration::from_millis(1));
    }
    assert_eq!(world.sim.received(world.peer), b"woken");
    // After the end the waker wakes nothing, and does no harm.
    WAKER.lock().unwrap().take().unwrap().wake();
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(world.sim.state(world.peer), PlainState::Ended);
}

#[test]
fn a_stop_finishes_and_an_end_drops_the_future() {
    thread_local!(static DROPPED: Cell<u32> = const { Cell::new(0) });
    struct Counts(Rc<()>);
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPPED.set(DROPPED.get() + 1);
        }
    }
    for ending in 0..3 {
        let mut world = world(|mut stream: Stream| {
            let counts = Counts(Rc::new(()));
            async move {
                let mut byte = [0];
                let end = pin!(stream.read_exact(&mut byte));
                let _ = end.await;
                drop(counts.0.clone());
            }
        });
        match ending {
            0 => world.sim.stop(world.at, Duration::from_secs(1)),
            1 => world.sim.close(world.peer, true),
            _ => world.sim.finish(world.peer),
        }
        world.sim.run_for(Duration::from_secs(20));
        assert_eq!(DROPPED.get(), ending + 1);
        assert_eq!(world.sim.counters(world.at).open, 0);
    }
}

/// Each that waits for a stop may have a waker of its own, such as within a set of futures.
#[test]
fn a_stop_wakes_all_that_wait_for_it() {
    let mut world = world(|mut stream: Stream| async move {
        // A connection to which nothing was written, and that was not read, is served before it is told of a stop.
        let _ = stream.write_all(b"hello ").await;
        let mut all: FuturesUnordered<_> = (0..3).map(|_| stream.stopping()).collect();
        while all.next().await.is_some() {
            let _ = stream.write_all(b"x").await;
        }
    });
    world.sim.run_for(Duration::from_secs(1));
    world.sim.stop(world.at, Duration::from_secs(1));
    world.sim.run_for(Duration::from_secs(5));
    assert_eq!(world.sim.received(world.peer), b"hello xxx");
}

/// A waker may be the last that holds a future of its connection, which takes the lock when it goes.
#[test]
fn a_waker_that_is_replaced_may_drop_a_future() {
    struct Holds(Sleep);
    impl Wake for Holds {
        fn wake(self: Arc<Self>) {}
    }
    let mut world = world(|mut stream: Stream| async move {
        let clock = stream.clock();
        let hour = Duration::from_secs(3600);
        let holds = || {
            let mut holds = Holds(clock.sleep(hour));
            let _ = pin!(&mut holds.0).poll(&mut Context::from_waker(Waker::noop()));
            Waker::from(Arc::new(holds))
        };
        let waits_twice = |mut is_pending: Box<dyn FnMut(&mut Context<'_>) -> bool>| {
            for waker in [holds(), holds()] {
                assert!(is_pending(&mut Context::from_waker(&waker)));
            }
        };
        let mut reader = stream.clone();
        waits_twice(Box::new(move |cx| {
            pin!(reader.read(&mut [0])).poll(cx).is_pending()
        }));
        // Values that are moved in go with the closure, and so does their second waker.
        let mut sleep = clock.sleep(hour);
        waits_twice(Box::new(move |cx| pin!(&mut sleep).poll(cx).is_pending()));
        let mut stopping = stream.stopping();
        waits_twice(Box::new(move |cx| {
            pin!(&mut stopping).poll(cx).is_pending()
        }));
        let _ = stream.write(&[b'x'; 1 << 20]).await;
        let mut writer = stream.clone();
        waits_twice(Box::new(move |cx| {
            pin!(writer.write(b"y")).poll(cx).is_pending()
        }));
    });
    world.sim.run_for(Duration::from_secs(5));
    assert_eq!(world.sim.received(world.peer), [b'x'; 64 << 10]);
}

#[test]
fn a_panic_ends_one_connection() {
    let mut world = world(|_: Stream| async { panic!("on purpose") });
    world.sim.run_for(Duration::from_secs(1));
    assert!(matches!(world.sim.state(world.peer), PlainState::Failed(_)));
    assert_eq!(world.sim.counters(world.at).closed_for(Closed::Panicked), 1);
}

/// Passes everything on, and never takes the end for the peer's word.
struct Doubts;

impl Wrap for Doubts {
    type Layer = Doubts;

    fn wrap(&self, _: &Peer) -> Result<Option<Doubts>, Refusal> {
        Ok(Some(Doubts))
    }
}

impl Layer for Doubts {
    fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let peer = at.peer().clone();
        let _ = at.accept(peer);
    }

    fn received<S: Service>(
        &mut self,
        input: &mut Input<'_>,
        at: &mut Around<'_, '_, S, Self>,
    ) -> Next {
        if at.wants_input() {
            at.received(input.bytes());
            input.consume(input.len());
        }
        Next::More
    }

    fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        at.take_output(|link, bytes| {
            link.write(bytes);
            bytes.len()
        });
    }

    fn peer_finished<S: Service>(&mut self, _: usize, at: &mut Around<'_, '_, S, Self>) {
        at.cut_short("who knows");
    }
}

/// A future reads all that came, then an error instead of the end; what it has written and still writes is sent.
#[test]
fn a_stream_that_was_cut_is_an_error_behind_its_last_byte() {
    async fn reads(mut stream: Stream) {
        let mut got = Vec::new();
        let end = stream.read_to_end(&mut got).await;
        let said = format!("{} bytes, then {:?}", got.len(), end.map_err(|e| e.kind()));
        stream.write_all(said.as_bytes()).await.unwrap();
    }
    let mut sim = Sim::under(1, Conditions::calm());
    let addr = sim.serve(Layered::new(Doubts, serve(reads)), Limits::default());
    let peer = sim.plain(addr);
    sim.send(peer, &[7; 5000]);
    sim.finish(peer);
    sim.run_for(Duration::from_secs(1));
    let said = String::from_utf8_lossy(sim.received(peer)).into_owned();
    assert_eq!(said, "5000 bytes, then Err(UnexpectedEof)");
}

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "both_ends_are_futures",
        "timers_fire_in_order_and_dropped_ones_do_not",
    ];
    for test in tests {
        (0..4).for_each(|seed| twice::says_the_same(test, seed, "network: "));
    }
}

/// A connection whose two ends were told is over, and its future with it: not before that has read all.
#[test]
fn what_is_read_slowly_behind_an_end_of_writing_is_whole() {
    for peer_first in [true, false] {
        let all = Arc::new(Mutex::new(Vec::new()));
        let seen = all.clone();
        let slow = serve(move |mut stream: Stream| {
            let seen = seen.clone();
            async move {
                if !peer_first {
                    let _ = stream.close().await;
                }
                stream.clock().sleep(Duration::from_secs(1)).await;
                let _ = stream.close().await;
                let mut buffer = [0; 700];
                while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                    seen.lock().unwrap().extend_from_slice(&buffer[..n]);
                    stream.clock().sleep(Duration::from_millis(1)).await;
                }
            }
        });
        let mut sim = Sim::under(7, Conditions::calm());
        let addr = sim.serve(slow, Limits::default());
        let peer = sim.plain(addr);
        let sent: Vec<u8> = (0..150_000u32).map(|i| (i % 251) as u8).collect();
        sim.send(peer, &sent);
        sim.finish(peer);
        let _ = sim.run_until_idle(Duration::from_secs(60));
        assert!(
            *all.lock().unwrap() == sent,
            "{} bytes",
            all.lock().unwrap().len()
        );
        assert_eq!(sim.state(peer), PlainState::Ended);
    }
}
