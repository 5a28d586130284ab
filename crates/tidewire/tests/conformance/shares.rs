//! What one turn of a loop sends and receives is bounded, however many connections the kernel would let it
//! serve to the last byte. Counted in turns and bytes, not in time.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tidewire::{EngineChoice, Input, Listen, Next, TcpOptions};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Message, Role};
use crate::record::Record;
use crate::roles::{Echo, noise};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(a_turn_makes_no_more_than_its_budget),
        case!(a_small_request_does_not_wait_for_what_others_asked_for),
        case!(a_turn_sends_no_more_than_its_budget),
        case!(what_is_set_for_a_turn_holds),
        case!(a_turn_receives_no_more_than_its_budget),
        case!(a_turn_receives_what_is_set),
    ]
}

/// What all may make in a turn, bytes; connections that made little before may make it once more.
pub(crate) const MAKE_TURN: usize = 256 << 10;
/// What one may make of that while others wait.
pub(crate) const MAKE_ONE: usize = 64 << 10;
/// What all may send in a turn; bytes.
const SEND_TURN: u64 = 1 << 20;
/// What does not count of it.
const SMALL: u64 = 16 << 10;
/// What many may be received from in a turn; bytes.
const RECEIVE_TURN: u64 = 4 << 20;

/// Has all connections do something in the same turn of their loop.
pub(crate) fn all_at_once(record: &Record, clients: usize, f: fn(&mut Context<'_>)) {
    let handles: Vec<_> = (0..clients as u64)
        .map(|conn| record.handle(conn))
        .collect();
    let first = handles[0].clone();
    let spread = Message::run(move |_| {
        for handle in &handles {
            assert!(handle.try_post(Message::run(f)).is_ok());
        }
    });
    assert!(first.try_post(spread).is_ok());
}

/// One of the pieces that a [`Giver`] makes; bytes.
pub(crate) const PIECE: usize = 20 << 10;

/// Looks away from the first byte on. Shown it again, gives as many bytes as it was made for, in pieces, as long as its link is not
/// full; and notes how many all have made by then.
pub(crate) struct Giver {
    left: usize,
    has_looked: bool,
    made: Arc<AtomicUsize>,
    /// Where to note what all had made when this one had given all.
    seen: Arc<AtomicUsize>,
}

impl Giver {
    pub(crate) fn new(left: usize, made: Arc<AtomicUsize>, seen: Arc<AtomicUsize>) -> Giver {
        Giver {
            left,
            has_looked: false,
            made,
            seen,
        }
    }

    fn give(&mut self, cx: &mut Context<'_>) {
        while self.left > 0 && !cx.link.full() {
            let n = self.left.min(PIECE);
            cx.link.write(&vec![7; n]);
            self.left -= n;
            let made = self.made.fetch_add(n, Relaxed) + n;
            self.seen.store(made, Relaxed);
        }
    }
}

impl Role for Giver {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if !std::mem::replace(&mut self.has_looked, true) {
            return Next::Paused;
        }
        input.consume(input.len());
        self.give(cx);
        Next::More
    }

    fn writable(&mut self, cx: &mut Context<'_>) {
        self.give(cx);
    }
}

/// Connections that have asked for so many bytes each, and are not looked at yet. Output marks
/// delay none of them.
fn givers(v: Variant, each: &[usize]) -> (Server, Vec<Client>, Arc<AtomicUsize>) {
    givers_of(Setup::on(v), each)
}

fn givers_of(setup: Setup, each: &[usize]) -> (Server, Vec<Client>, Arc<AtomicUsize>) {
    let (made, connections) = (Arc::<AtomicUsize>::default(), each.len());
    let seen: Vec<Arc<AtomicUsize>> = each.iter().map(|_| Arc::default()).collect();
    let last_seen = Arc::clone(seen.last().expect("some"));
    let (each, next) = (each.to_vec(), AtomicUsize::new(0));
    let server = setup
        .reachable()
        .limits(|l| (l.output_high, l.output_hard) = (32 << 20, 64 << 20))
        .start(move || {
            let n = next.fetch_add(1, Relaxed);
            Giver::new(each[n], made.clone(), seen[n].clone())
        });
    let mut clients = Vec::new();
    for n in 0..connections {
        let mut client = server.connect();
        client.send(b"?");
        server.until("the questions", |c| c.bytes_in > n as u64);
        clients.push(client);
    }
    (server, clients, last_seen)
}

fn a_turn_makes_no_more_than_its_budget(v: Variant) {
    const CLIENTS: usize = 24;
    const EACH: usize = 2 << 20;
    let (server, mut clients, _) = givers(v, &[EACH; CLIENTS]);
    let before = server.counters();
    all_at_once(&server.record, CLIENTS, |cx| cx.link.resume());
    for client in &mut clients {
        assert!(client.take(EACH).iter().all(|&byte| byte == 7));
    }
    let made = CLIENTS * EACH;
    server.until("all to be counted", |c| {
        c.bytes_out - before.bytes_out >= made as u64
    });
    let turns = (server.counters().turns - before.turns) as usize;
    // Each turn ends with a share and a piece, and the first of each loop belongs to connections
    // that made little before.
    let most = (turns + 1 + v.loops) * (MAKE_TURN + MAKE_ONE + PIECE);
    assert!(
        v.is_threads() || made <= most,
        "{made} bytes in {turns} turns"
    );
    server.cut();
}

fn a_small_request_does_not_wait_for_what_others_asked_for(v: Variant) {
    const CLIENTS: usize = 24;
    const EACH: usize = 2 << 20;
    let mut each = [EACH; CLIENTS];
    each[CLIENTS - 1] = 5;
    let (server, mut clients, seen) = givers(v, &each);
    all_at_once(&server.record, CLIENTS, |cx| cx.link.resume());
    assert_eq!(clients[CLIENTS - 1].take(5), [7; 5]);
    // All were asked in one turn, and nothing is known of any: each one before it has a share at
    // most.
    let most = 2 * (MAKE_TURN + PIECE) + CLIENTS * (MAKE_ONE + PIECE);
    let made = seen.load(Relaxed);
    // Where loops are several, or one for each connection, the others are not told in the same turn.
    let is_one_loop = v.loops == 1 && !v.is_threads();
    assert!(!is_one_loop || made <= most, "{made} bytes were made first");
    for (client, each) in clients.iter_mut().zip(&each[..CLIENTS - 1]) {
        client.take(*each);
    }
    server.cut();
}

fn a_turn_sends_no_more_than_its_budget(v: Variant) {
    const CLIENTS: usize = 24;
    const EACH: usize = 2 << 20;
    let server = Setup::on(v)
        .reachable()
        .limits(|l| l.output_hard = 4 * EACH)
        .start(|| Echo);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"hello");
        client.expect(b"hello");
    }
    server.until("the greetings", |c| c.bytes_out >= 5 * CLIENTS as u64);
    let before = server.counters();
    all_at_once(&server.record, CLIENTS, |cx| cx.link.write(&vec![7; EACH]));
    for client in &mut clients {
        assert!(client.take(EACH).iter().all(|&byte| byte == 7));
    }
    let sent = (CLIENTS * EACH) as u64;
    server.until("all to be counted", |c| {
        c.bytes_out - before.bytes_out >= sent
    });
    let turns = server.counters().turns - before.turns;
    let most = turns * SEND_TURN + CLIENTS as u64 * SMALL;
    assert!(sent <= most, "{sent} bytes in {turns} turns");
    server.cut();
}

fn what_is_set_for_a_turn_holds(v: Variant) {
    const CLIENTS: usize = 12;
    const EACH: usize = 1 << 20;
    const TURN: usize = 64 << 10;
    let setup = Setup::on(v).tune(|b| {
        b.turn_output(TURN).turn_send(TURN);
    });
    let (server, mut clients, _) = givers_of(setup, &[EACH; CLIENTS]);
    let before = server.counters();
    all_at_once(&server.record, CLIENTS, |cx| cx.link.resume());
    for client in &mut clients {
        assert!(client.take(EACH).iter().all(|&byte| byte == 7));
    }
    let all = CLIENTS * EACH;
    server.until("all to be counted", |c| {
        c.bytes_out - before.bytes_out >= all as u64
    });
    let counters = server.counters();
    let turns = (counters.turns - before.turns) as usize;
    let make = (turns + 1 + v.loops) * (TURN + TURN / 4 + PIECE);
    let send = (turns + 1) * TURN + (turns + 1) * CLIENTS * SMALL as usize;
    assert!(
        v.is_threads() || all <= make && all <= send,
        "{all} bytes in {turns} turns"
    );
    // A connection that is alone on its loop has a whole turn, and then the next.
    assert!(v.is_threads() || counters.turn_pauses > 0, "{counters}");
    assert!(counters.send_pauses > 0, "{counters}");
    server.cut();
}

/// Looks away from the first byte on; shown it again, takes all that comes.
#[derive(Default)]
struct LooksAway {
    has_looked: bool,
}

impl Role for LooksAway {
    fn received(&mut self, input: &mut Input<'_>, _: &mut Context<'_>) -> Next {
        if !std::mem::replace(&mut self.has_looked, true) {
            return Next::Paused;
        }
        input.consume(input.len());
        Next::More
    }
}

fn a_turn_receives_no_more_than_its_budget(v: Variant) {
    // Chunks of 64 KiB, so that 64 connections have the default budget.
    let setup = Setup::on(v).tune(|b| {
        b.chunk(64 << 10);
    });
    receives_at_most(v, RECEIVE_TURN, setup);
}

fn a_turn_receives_what_is_set(v: Variant) {
    const TURN: usize = 1 << 20;
    let setup = Setup::on(v).tune(|b| {
        b.turn_receive(TURN).chunk(16 << 10).buffers(64);
    });
    receives_at_most(v, TURN as u64, setup);
}

/// `turn` bytes, which are a chunk from each of 64 connections.
fn receives_at_most(v: Variant, turn: u64, setup: Setup) {
    // Each sends a chunk at the least, so this many have the budget and no more.
    const CLIENTS: usize = 64;
    let options = TcpOptions {
        receive_buffer: Some(4 << 20),
        ..TcpOptions::default()
    };
    let server = setup
        .reachable()
        // Up to sixteen, as are left when others had less to say, share nothing: what each may have is less than that.
        .limits(|l| l.turn_bytes = turn as usize / 32)
        .listen(Listen::at(([127, 0, 0, 1], 0)).options(options))
        .start(LooksAway::default);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"x");
    }
    server.until("the first bytes", |c| c.bytes_in >= CLIENTS as u64);
    let flood = noise(3, 8 << 20);
    let mut written = 0;
    for client in &mut clients {
        client.patience(Duration::ZERO);
        let mut left = &flood[..];
        while let Ok(n @ 1..) = client.write(left) {
            left = &left[n..];
            written += n as u64;
        }
    }
    assert!(
        written >= 4 * RECEIVE_TURN,
        "only {written} bytes are there"
    );
    let before = server.counters();
    all_at_once(&server.record, CLIENTS, |cx| cx.link.resume());
    // To the end: while bytes come, turns go by between the reading of one counter and of the next.
    // (On io_uring some of it was there before they looked on.)
    let all = CLIENTS as u64 + written;
    server.until("all of it", |c| c.bytes_in >= all);
    let (received, turns) = (
        all - before.bytes_in,
        server.counters().turns - before.turns,
    );
    // The last turn of a loop may not have been counted when its bytes were.
    let most = (turns + v.loops as u64) * turn;
    assert!(
        v.is_threads() || received <= most,
        "{received} bytes in {turns} turns"
    );
    let pauses = server.counters().receive_pauses;
    assert_eq!(pauses > 0, v.engine == EngineChoice::Epoll, "{pauses}");
    server.cut();
}
