//! Single-key commands are linearizable.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use crate::asks::{KEYS, answer, any, line};
use crate::history::{Ask, Op, is_linearizable};
use crate::wire::{Client, Server, everywhere};

const CLIENTS: u64 = 5;
/// Batches of each client.
const BATCHES: usize = 60;
/// Commands sent in one piece at most.
const BATCH_MAX: usize = 6;

/// Orders what the clients begin and end: a clock that never stands still.
static CLOCK: AtomicU64 = AtomicU64::new(0);

/// What one client does; its operations on each key.
fn run(mut client: Client, number: u64) -> Vec<Vec<Op>> {
    let mut rng = fastrand::Rng::with_seed(number);
    let mut value = (number as i64 + 1) * 1_000_000_000;
    let mut ops = vec![Vec::new(); KEYS];
    for _ in 0..BATCHES {
        let asks: Vec<(usize, Ask)> = (0..rng.usize(1..=BATCH_MAX))
            .map(|_| {
                // Far apart, so that increments do not make one value of two.
                value += 10_000;
                let ask = any(value, &mut rng);
                (rng.usize(..KEYS), ask)
            })
            .collect();
        let lines: Vec<String> = asks.iter().map(|&(key, ask)| line(ask, key)).collect();
        let begin = CLOCK.fetch_add(1, SeqCst);
        client.send(&lines);
        for (key, ask) in asks {
            let answer = answer(ask, client.reply());
            let end = CLOCK.fetch_add(1, SeqCst);
            ops[key].push(Op {
                ask,
                answer,
                begin,
                end,
            });
        }
    }
    ops
}

fn check(server: &Server) {
    let clients: Vec<Vec<Vec<Op>>> = thread::scope(|scope| {
        let running: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = server.client();
                scope.spawn(move || run(client, number))
            })
            .collect();
        running.into_iter().map(|c| c.join().unwrap()).collect()
    });
    for key in 0..KEYS {
        let ops: Vec<Vec<Op>> = clients.iter().map(|of| of[key].clone()).collect();
        assert!(is_linearizable(&ops), "{}: {ops:#?}", server.name);
    }
}

#[test]
fn single_key_commands() {
    everywhere(check);
}
