//! What one turn of a loop sends and receives is bounded, however many connections the kernel would let it
//! serve to the last byte. Counted in turns and bytes, not in time.

use std::io::Write;
use std::time::Duration;

use tidewire::{Input, Listen, Next, TcpOptions};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Message, Role};
use crate::roles::{Echo, noise};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(a_turn_sends_no_more_than_its_budget),
        case!(a_turn_receives_no_more_than_its_budget),
    ]
}

/// What all may send in a turn; bytes.
const SEND_TURN: u64 = 1 << 20;
/// What does not count of it.
const SMALL: u64 = 16 << 10;
/// What many may be received from in a turn; bytes.
const RECEIVE_TURN: u64 = 4 << 20;

/// Has all connections do something in the same turn of their loop.
fn all_at_once(server: &Server, clients: usize, f: fn(&mut Context<'_>)) {
    let handles: Vec<_> = (0..clients as u64)
        .map(|conn| server.record.handle(conn))
        .collect();
    let first = handles[0].clone();
    let spread = Message::run(move |_| {
        for handle in &handles {
            assert!(handle.try_post(Message::run(f)).is_ok());
        }
    });
    assert!(first.try_post(spread).is_ok());
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
    all_at_once(&server, CLIENTS, |cx| cx.link.write(&vec![7; EACH]));
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
    // Of each there is a chunk at the least, so this many have the budget and no more.
    const CLIENTS: usize = 64;
    let options = TcpOptions {
        receive_buffer: Some(4 << 20),
        ..TcpOptions::default()
    };
    let server = Setup::on(v)
        .reachable()
        .limits(|l| l.turn_bytes = 64 << 20)
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
    all_at_once(&server, CLIENTS, |cx| cx.link.resume());
    // To the end: while bytes come, turns go by between the reading of one counter and of the next.
    // (On io_uring some of it was there before they looked on.)
    let all = CLIENTS as u64 + written;
    server.until("all of it", |c| c.bytes_in >= all);
    let (received, turns) = (
        all - before.bytes_in,
        server.counters().turns - before.turns,
    );
    // The last turn of a loop may not have been counted when its bytes were.
    let most = (turns + v.loops as u64) * RECEIVE_TURN;
    assert!(
        v.is_threads() || received <= most,
        "{received} bytes in {turns} turns"
    );
    server.cut();
}
