//! Reaching connections and loops from elsewhere: posts, reserved posts, closing by handle, signals,
//! broadcasts.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tidewire::{Closed, Input, Next, POSTS_MAX, RESERVED_MAX};

use crate::case::{Case, case};
use crate::fixture::{Server, Setup};
use crate::hosting::Hold;
use crate::probe::{Context, Message, Role};
use crate::record::Event;
use crate::roles::{Echo, Sink, echo};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(what_is_told_is_heard_before_the_peers_end),
        case!(posts_arrive_in_order),
        case!(posts_from_many_threads_all_arrive),
        case!(best_effort_says_full_and_reserved_is_not_refused),
        case!(places_beyond_the_most_are_refused_and_counted),
        case!(post_to_a_gone_connection_is_dropped_and_counted),
        case!(post_to_the_next_connection_of_the_same_place_is_not_misdelivered),
        case!(finish_by_handle),
        case!(abort_by_handle),
        case!(signals_coalesce_and_none_is_lost),
        case!(loops_are_numbered_from_zero),
        case!(signal_storm_from_several_threads),
        case!(broadcast_through_the_loop, on = |v| !v.is_threads()),
        case!(posts_pace_with_a_sleeping_loop),
    ]
}

/// Writes each note that is posted to it.
struct Notes;

impl Role for Notes {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        echo(input, cx)
    }
    fn posted(&mut self, note: u64, cx: &mut Context<'_>) {
        cx.link.write(&note.to_be_bytes());
    }
}

fn posts_arrive_in_order(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Notes);
    let mut client = server.connect();
    let handle = server.record.handle(0);
    for n in 0..1000u64 {
        assert!(handle.try_post(Message::Note(n)).is_ok());
    }
    for n in 0..1000u64 {
        client.expect(&n.to_be_bytes());
    }
    drop(client);
    server.cut();
}

fn posts_from_many_threads_all_arrive(v: Variant) {
    const EACH: u64 = 2000;
    let server = Setup::on(v).reachable().start(|| Notes);
    let mut clients = [server.connect(), server.connect()];
    let handles = [server.record.handle(0), server.record.handle(1)];
    let posters: Vec<_> = (0..4u64)
        .map(|poster| {
            let handles = handles.clone();
            world::spawn(move || {
                for n in 0..EACH {
                    let handle = &handles[(n % 2) as usize];
                    let permit = handle.reserve().expect("far fewer than may be reserved");
                    permit.post(Message::Note(poster * EACH + n));
                }
            })
        })
        .collect();
    let mut seen = Vec::new();
    for client in &mut clients {
        let mut last = [None; 4];
        for _ in 0..2 * EACH {
            let note = u64::from_be_bytes(client.take(8).try_into().expect("eight"));
            let poster = (note / EACH) as usize;
            assert!(last[poster] < Some(note), "in the order of posting");
            last[poster] = Some(note);
            seen.push(note);
        }
    }
    for poster in posters {
        poster.join().expect("a poster");
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..4 * EACH), "each exactly once");
    server.cut();
}

/// What keeps a loop busy until it is dropped.
enum Busy {
    Real { _go: std::sync::mpsc::Sender<()> },
    Simulated { _hold: Option<Hold> },
}

/// Keeps its loop busy.
fn block_loop(server: &Server, handle: &tidewire::Handle<Message>) -> Busy {
    if world::is_simulated() {
        let _hold = server.hold();
        return Busy::Simulated { _hold };
    }
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (entered, is_in) = std::sync::mpsc::channel();
    let posted = handle.try_post(Message::run(move |_| {
        let _ = entered.send(());
        let _ = wait.recv_timeout(Duration::from_secs(10));
    }));
    assert!(posted.is_ok());
    is_in
        .recv_timeout(Duration::from_secs(10))
        .expect("the loop runs");
    Busy::Real { _go: go }
}

fn best_effort_says_full_and_reserved_is_not_refused(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Notes);
    let mut client = server.connect();
    let handle = server.record.handle(0);
    let permit = handle.reserve().expect("a place");
    let go = block_loop(&server, &handle);
    for n in 0..POSTS_MAX as u64 {
        assert!(handle.try_post(Message::Note(n)).is_ok(), "post {n}");
    }
    assert!(handle.try_post(Message::Note(0)).is_err(), "one too many");
    permit.post(Message::Note(POSTS_MAX as u64));
    drop(go);
    for n in 0..=POSTS_MAX as u64 {
        client.expect(&n.to_be_bytes());
    }
    assert!(
        handle.try_post(Message::Note(7)).is_ok(),
        "there is room again"
    );
    client.expect(&7u64.to_be_bytes());
    assert_eq!(server.counters().posts_refused, 1);
    server.cut();
}

/// Places are refused and counted even where nothing else wakes the loop.
fn places_beyond_the_most_are_refused_and_counted(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Notes);
    let mut client = server.connect();
    let handle = server.record.handle(0);
    let mut places: Vec<_> = (0..RESERVED_MAX)
        .map(|_| handle.reserve().expect("a place"))
        .collect();
    assert!(handle.reserve().is_err() && handle.reserve().is_err());
    server.until("both to be counted", |c| c.places_refused == 2);
    // One place is given back, and one is used.
    drop(places.pop());
    let place = handle.reserve().expect("the place that was given back");
    assert!(handle.reserve().is_err());
    place.post(Message::Note(1));
    client.expect(&1u64.to_be_bytes());
    drop(handle.reserve().expect("the place of what was delivered"));
    server.until("the third", |c| c.places_refused == 3);
    drop(places);
    server.cut();
}

fn post_to_a_gone_connection_is_dropped_and_counted(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Notes);
    let client = server.connect();
    let handle = server.record.handle(0);
    let permit = handle.reserve().expect("a place");
    drop(client);
    server.record.why_closed(0);
    assert!(handle.try_post(Message::Note(1)).is_ok());
    permit.post(Message::Note(2));
    handle.finish();
    handle.abort();
    if !v.is_threads() {
        // A thread ends with its connection: nothing is left there to count.
        server.until("two counted", |c| c.posts_undeliverable == 2);
    }
    let mut next = server.connect();
    next.send(b"x");
    next.expect(b"x");
    server.cut();
}

fn post_to_the_next_connection_of_the_same_place_is_not_misdelivered(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Notes);
    drop(server.connect());
    let stale = server.record.handle(0);
    server.record.why_closed(0);
    // Takes the table's freed place.
    let mut next: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for (i, client) in next.iter_mut().enumerate() {
        server.record.handle(i as u64 + 1);
        assert!(stale.try_post(Message::Note(99)).is_ok());
        stale.abort();
        client.send(b"still mine");
        client.expect(b"still mine");
    }
    assert_eq!(server.record.lock().count(&Event::Posted(99)), 0);
    server.cut();
}

fn finish_by_handle(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Notes);
    let mut client = server.connect();
    let handle = server.record.handle(0);
    assert!(handle.try_post(Message::Note(5)).is_ok());
    handle.finish();
    client.expect(&5u64.to_be_bytes());
    client.expect_end();
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

fn abort_by_handle(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Echo);
    let mut client = server.connect();
    server.record.handle(0).abort();
    client.expect_reset();
    assert_eq!(server.record.why_closed(0), Closed::Aborted);
    server.stop();
}

fn signals_coalesce_and_none_is_lost(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Sink);
    let client = server.connect();
    let handle = server.record.handle(0);
    let loops = server.record.lock().loops.clone();
    let go = block_loop(&server, &handle);
    let before = server.record.woken();
    for _ in 0..1000 {
        loops.iter().for_each(|l| l.signal());
    }
    drop(go);
    let all = loops.len() as u64;
    server.record.until("every loop woken", |_| {
        server.record.woken() >= before + all
    });
    assert!(handle.try_post(Message::Note(0)).is_ok());
    server
        .record
        .until("the note", |r| r.has(0, &Event::Posted(0)));
    if all == 1 {
        assert_eq!(server.record.woken(), before + 1, "a thousand became one");
    }
    drop(client);
    server.cut();
}

fn loops_are_numbered_from_zero(v: Variant) {
    const CLIENTS: usize = 3;
    let server = Setup::on(v).reachable().start(|| Sink);
    let clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    let all_open = |r: &crate::record::Inner| r.opened() == CLIENTS as u64;
    server.record.until("all are open", all_open);
    let loops = server.record.lock().loops.clone();
    let mut numbers: Vec<usize> = loops.iter().map(|at| at.number() as usize).collect();
    numbers.sort_unstable();
    let all = if v.is_threads() { 1 + CLIENTS } else { v.loops };
    assert_eq!(numbers, (0..all).collect::<Vec<_>>());
    drop((clients, loops));
    server.cut();
}

/// A watermark that several threads raise: whatever is raised last must be seen.
fn signal_storm_from_several_threads(v: Variant) {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    let mark = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(AtomicU64::new(0));
    let (theirs, shown) = (mark.clone(), seen.clone());
    let server = Setup::on(v)
        .reachable()
        .woken(move |_, _| {
            shown.fetch_max(theirs.load(SeqCst), SeqCst);
        })
        .start(|| Sink);
    let client = server.connect();
    server.record.handle(0);
    for round in 0..50 {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let at = server.record.lock().loops[0].clone();
                let mark = mark.clone();
                world::spawn(move || {
                    for _ in 0..200 {
                        mark.fetch_add(1, SeqCst);
                        at.signal();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("a signaller");
        }
        let raised = (round + 1) * 800;
        server
            .record
            .until("the last mark", |_| seen.load(SeqCst) == raised);
    }
    drop(client);
    server.cut();
}

/// What one connection says is written to all connections of its loop.
fn broadcast_through_the_loop(v: Variant) {
    struct Speaks;
    impl Role for Speaks {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
            input.consume(input.len());
            for _ in 0..3 {
                cx.wake_service();
            }
            Next::More
        }
    }
    let server = Setup::on(v)
        .woken(|local, all| {
            let mut ids = Vec::new();
            all.each(local, |_, cx| {
                cx.link.write(b"heard");
                ids.push(cx.link.id());
            });
            for id in ids {
                let again = all.with(id, local, |_, cx| cx.link.write(b";"));
                assert!(again.is_some());
            }
        })
        .start(|| Speaks);
    let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
    server.record.until("all open", |r| r.opened() == 20);
    for speaker in 0..clients.len() {
        clients[speaker].send(b"!");
        if v.is_one_loop() {
            clients.iter_mut().for_each(|c| c.expect(b"heard;"));
        } else {
            // The speaker is on its own loop in any case.
            clients[speaker].expect(b"heard;");
        }
    }
    server.cut();
}

/// Each post finds the loop asleep and must wake it.
fn posts_pace_with_a_sleeping_loop(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Notes);
    let mut client = server.connect();
    let handle = server.record.handle(0);
    for n in 0..2000u64 {
        assert!(handle.try_post(Message::Note(n)).is_ok());
        client.expect(&n.to_be_bytes());
    }
    server.cut();
}

/// Looks away at first. Shown its input again, tells itself to answer.
#[derive(Default)]
struct TellsItself {
    has_looked: bool,
}

impl Role for TellsItself {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if !std::mem::replace(&mut self.has_looked, true) {
            return Next::Paused;
        }
        input.consume(input.len());
        let me = cx.link.id();
        let answer = Message::run(|cx| cx.link.write(b"heard"));
        assert!(cx.tell(me, answer).is_ok());
        Next::More
    }
}

/// The end is there already when the last input is offered.
fn what_is_told_is_heard_before_the_peers_end(v: Variant) {
    let server = Setup::on(v).reachable().start(TellsItself::default);
    let mut client = server.connect();
    client.send(b"?");
    client.finish();
    server
        .record
        .until("the hang-up", |r| r.has(0, &Event::HungUp));
    let handle = server.record.handle(0);
    assert!(handle.try_post(Message::run(|cx| cx.link.resume())).is_ok());
    client.expect(b"heard");
    client.expect_end();
    drop(client);
    server.record.why_closed(0);
    server.stop();
}
