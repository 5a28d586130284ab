//! Whatever connections wait for, waiting costs nothing: no loop turns while nothing happens.

use std::io::Write;
use std::time::Duration;

use tidewire::{Input, Next};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Role};
use crate::record::Event;
use crate::roles::noise;
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(idle_connections_are_quiet),
        case!(paused_connections_are_quiet),
        case!(paused_connections_whose_peers_have_finished_are_quiet),
        case!(half_closed_connections_are_quiet),
        case!(connections_with_stuck_output_are_quiet),
        case!(finishing_connections_with_stuck_output_are_quiet),
        case!(lingering_connections_are_quiet),
        case!(connections_that_wait_for_a_frame_are_quiet),
        case!(a_stop_that_waits_is_quiet),
    ]
}

/// Waits in the way that the first byte it gets says.
struct Waits;

impl Role for Waits {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        match input.bytes()[0] {
            b'p' => return Next::Paused,
            b'f' => return Next::AtLeast(1000),
            b'l' => {
                cx.link.write(b"bye");
                cx.link.finish();
            }
            b's' => {
                if cx.link.full() {
                    return Next::AfterDrain;
                }
                cx.link.write(&vec![0; 8 << 20]);
                return Next::AfterDrain;
            }
            b'S' => {
                cx.link.write(&vec![0; 8 << 20]);
                cx.link.finish();
            }
            _ => input.consume(input.len()),
        }
        Next::More
    }
    fn peer_finished(&mut self, _: usize, _: &mut Context<'_>) {}
    fn draining(&mut self, _: &mut Context<'_>) {}
}

const CONNECTIONS: usize = 5;

/// Connections that have each said `word`, on a server that has no deadline near.
fn waiting(v: Variant, word: &[u8]) -> (Server, Vec<Client>) {
    let server = Setup::on(v)
        .limits(|l| {
            l.idle = None;
            l.linger = Duration::from_secs(120);
        })
        .start(|| Waits);
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(word);
    }
    let all = (CONNECTIONS * word.len()) as u64;
    server.until("the words", |c| c.bytes_in >= all);
    (server, clients)
}

/// Fails if the loops keep turning.
fn expect_quiet(server: &Server) {
    // What is on its way gets there meanwhile.
    world::sleep(Duration::from_millis(50));
    let before = server.counters().turns;
    world::sleep(Duration::from_millis(200));
    let turns = server.counters().turns - before;
    assert!(turns < 10 * CONNECTIONS as u64, "{turns} turns for nothing");
}

fn idle_connections_are_quiet(v: Variant) {
    let (server, clients) = waiting(v, b"x");
    expect_quiet(&server);
    drop(clients);
    server.cut();
}

fn paused_connections_are_quiet(v: Variant) {
    let (server, mut clients) = waiting(v, b"p");
    for client in &mut clients {
        client.send(&noise(1, 100_000));
    }
    expect_quiet(&server);
    drop(clients);
    server.cut();
}

fn paused_connections_whose_peers_have_finished_are_quiet(v: Variant) {
    let (server, mut clients) = waiting(v, b"p");
    for client in &mut clients {
        client.send(b"unseen");
        client.finish();
    }
    let told = |r: &crate::record::Inner| r.count(&Event::HungUp) == CONNECTIONS;
    server.record.until("the hang-ups", told);
    expect_quiet(&server);
    drop(clients);
    server.cut();
}

fn half_closed_connections_are_quiet(v: Variant) {
    let (server, clients) = waiting(v, b"x");
    clients.iter().for_each(Client::finish);
    let told = |r: &crate::record::Inner| r.count(&Event::PeerFinished(0)) == CONNECTIONS;
    server.record.until("the ends", told);
    expect_quiet(&server);
    drop(clients);
    server.cut();
}

fn connections_with_stuck_output_are_quiet(v: Variant) {
    let (server, mut clients) = waiting(v, b"s");
    for client in &mut clients {
        client.patience(Duration::ZERO);
        // More than is read, and then the end behind it.
        let _ = client.write(&noise(2, 200_000));
        client.finish();
    }
    expect_quiet(&server);
    drop(clients);
    server.cut();
}

fn finishing_connections_with_stuck_output_are_quiet(v: Variant) {
    let (server, clients) = waiting(v, b"S");
    clients.iter().for_each(Client::finish);
    expect_quiet(&server);
    drop(clients);
    server.cut();
}

fn lingering_connections_are_quiet(v: Variant) {
    let (server, mut clients) = waiting(v, b"l");
    for client in &mut clients {
        client.expect(b"bye");
        client.expect_end();
    }
    expect_quiet(&server);
    drop(clients);
    server.cut();
}

fn connections_that_wait_for_a_frame_are_quiet(v: Variant) {
    let (server, mut clients) = waiting(v, b"f");
    for client in &mut clients {
        client.send(&[0; 900]);
    }
    expect_quiet(&server);
    drop(clients);
    server.cut();
}

/// Connections of every kind that all stay when a stop has told them.
fn a_stop_that_waits_is_quiet(v: Variant) {
    let (server, mut clients) = waiting(v, b"x");
    for word in [b"p", b"f", b"s"] {
        let mut client = server.connect();
        client.send(word);
        clients.push(client);
    }
    server.until("the words", |c| c.bytes_in >= CONNECTIONS as u64 + 3);
    let (stopper, record) = (server.stopper(), server.record.clone());
    let stopping = world::spawn(move || server.stop_within(Duration::from_secs(60)));
    // The one whose output is stuck is told only when that has drained.
    // One that has consumed nothing and sent nothing is served first.
    record.until("all told", |r| r.count(&Event::Draining) >= CONNECTIONS);
    world::sleep(Duration::from_millis(250));
    stopper.stop_now();
    let counters = stopping.join().expect("the stop");
    assert!(counters.turns < 300, "{} turns", counters.turns);
    drop(clients);
}
