//! What all connections hold together is limited, too.

use tidewire::{Closed, Input, Next, Refusal};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Role};
use crate::roles::echo;
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(short_memory_refuses_then_closes_the_greediest),
        case!(short_memory_holds_back_who_holds_much),
    ]
}

const LIMIT: usize = 8 << 20;
/// Four of these are more than seven eighths of the limit, five more than all of it.
const MUCH: usize = 1900 << 10;

/// Holds much after `h`, for ever, and echoes everything else.
struct Holds;

impl Role for Holds {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if input.bytes()[0] != b'h' {
            return echo(input, cx);
        }
        cx.link.hold_until(1);
        for _ in 0..MUCH >> 10 {
            cx.link.write(&[1; 1 << 10]);
        }
        input.consume(input.len());
        Next::More
    }
}

fn server(v: Variant) -> Server {
    Setup::on(v)
        .tune(|b| {
            b.memory(LIMIT);
        })
        .limits(|l| (l.output_low, l.output_high) = (1 << 20, 4 << 20))
        .start(|| Holds)
}

fn short_memory_refuses_then_closes_the_greediest(v: Variant) {
    let server = server(v);
    let mut innocent = server.connect();
    // Taken in before memory is short: a thread of its own may be late.
    innocent.send(b"e");
    innocent.expect(b"e");
    let mut greedy: Vec<Client> = (0..5).map(|_| server.connect()).collect();
    for client in &mut greedy {
        client.send(b"e");
        client.expect(b"e");
    }
    for client in &mut greedy[..4] {
        client.send(b"h");
    }
    server.until("it to be held", |c| c.memory >= 4 * MUCH as u64);
    Client::connect_to_be_reset(server.addr());
    server.until("the refusal", |c| c.refused_for(Refusal::MemoryLimit) == 1);
    assert_eq!(server.counters().closed_for(Closed::MemoryLimit), 0);
    innocent.send(b"still here");
    innocent.expect(b"still here");
    greedy[4].send(b"h");
    server.until("the greediest", |c| c.closed_for(Closed::MemoryLimit) >= 1);
    server.until("room", |c| c.memory <= LIMIT as u64);
    innocent.send(b"and now");
    innocent.expect(b"and now");
    greedy.into_iter().for_each(Client::reset);
    server.until("all to be free", |c| c.memory == 0);
    let mut late = server.connect();
    late.send(b"late");
    late.expect(b"late");
    drop((late, innocent));
    server.stop();
}

fn short_memory_holds_back_who_holds_much(v: Variant) {
    let server = server(v);
    let mut innocent = server.connect();
    let mut stuck: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut stuck {
        client.0.set_nonblocking(true).expect("an option");
    }
    // They send and do not read: what is echoed stays with the server.
    let piece = vec![b'.'; 64 << 10];
    server.until("one to be held back", |c| {
        for client in &mut stuck {
            let _ = std::io::Write::write(&mut client.0, &piece);
        }
        c.memory_pauses > 0
    });
    innocent.send(b"served");
    innocent.expect(b"served");
    let counters = server.counters();
    assert_eq!(counters.closed_for(Closed::MemoryLimit), 0, "{counters}");
    // When most of them have gone, the last may go on.
    let last = stuck.pop().expect("four came");
    stuck.into_iter().for_each(Client::reset);
    last.0.set_nonblocking(false).expect("an option");
    let mut writer = last.second();
    let sender = std::thread::spawn(move || {
        writer.send(b"END");
        writer.finish();
    });
    let mut last = last;
    assert!(last.rest().ends_with(b"END"));
    sender.join().expect("the sender");
    drop((last, innocent));
    server.stop();
}
