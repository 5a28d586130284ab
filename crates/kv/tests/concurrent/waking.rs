//! Blocking pops: what is pushed is received exactly once, and no client waits for what is there.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::wire::{Client, PATIENCE, Server, Value, everywhere};

/// What the consumers ask for. BLMOVE leaves what it takes in `moved`.
pub(crate) const POPS: [&str; 8] = [
    "BLPOP a 0",
    "BRPOP b a 0",
    "BLPOP a b c 0",
    "BLMOVE b moved LEFT RIGHT 0",
    "BLMPOP 0 2 c a LEFT COUNT 1",
    "BLPOP c b a 0",
    "BZPOPMIN y z 0",
    "BZPOPMAX z y 0",
];

const PRODUCERS: usize = 3;
/// Elements that each producer pushes.
const EACH: usize = 150;

/// The element in the reply of one of [`POPS`]; `None` if it waited in vain.
pub(crate) fn element(reply: Value) -> Option<String> {
    match reply {
        Value::Null => None,
        Value::Bulk(element) => Some(element),
        Value::Array(mut parts) => match parts.swap_remove(1) {
            Value::Array(mut elements) => {
                assert_eq!(elements.len(), 1);
                elements.pop().map(Value::text)
            }
            element => Some(element.text()),
        },
        other => panic!("{other:?}"),
    }
}

/// Takes elements until it is told to stop.
fn consume(mut client: Client, pop: &str, stop: &AtomicBool, taken: &AtomicUsize) -> Vec<String> {
    let mut got = Vec::new();
    loop {
        match element(client.ask(pop)) {
            Some(element) => {
                got.push(element);
                taken.fetch_add(1, SeqCst);
            }
            None if stop.load(SeqCst) => return got,
            None => {}
        }
    }
}

/// Comes, waits, says that it sends no more, and goes with what it was given until then.
fn pass_by(
    server: &Server,
    pops: &[&str],
    seed: u64,
    stop: &AtomicBool,
    taken: &AtomicUsize,
) -> Vec<String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut got = Vec::new();
    while !stop.load(SeqCst) {
        let mut client = server.client();
        client.send(&[rng.choice(pops).unwrap()]);
        thread::sleep(Duration::from_micros(rng.u64(..2000)));
        client.finish();
        while let Some(reply) = client.next().unwrap() {
            let element = element(reply).expect("nobody unblocks this one");
            got.push(element);
            taken.fetch_add(1, SeqCst);
        }
    }
    got
}

/// The elements `prefix:0..all`, in pushes of every kind.
pub(crate) fn pushes(prefix: &str, all: usize, rng: &mut fastrand::Rng) -> Vec<Vec<String>> {
    let mut pushes = Vec::new();
    let mut at = 0;
    let mut next = |n: usize| -> Vec<String> {
        let n = n.min(all - at);
        at += n;
        (at - n..at).map(|i| format!("{prefix}:{i}")).collect()
    };
    loop {
        let elements = next(rng.usize(1..4));
        let Some(first) = elements.first() else {
            return pushes;
        };
        let list = rng.choice(["a", "b", "c"]).unwrap();
        let zset = rng.choice(["y", "z"]).unwrap();
        let all = elements.join(" ");
        let scored: Vec<String> = elements
            .iter()
            .map(|e| format!("{} {e}", rng.u8(..9)))
            .collect();
        pushes.push(match rng.u8(..8) {
            0 | 1 => vec![format!("RPUSH {list} {all}")],
            2 => vec![format!("LPUSH {list} {all}")],
            3 | 4 => vec![format!("ZADD {zset} {}", scored.join(" "))],
            5 => {
                let mut lines = vec!["MULTI".to_owned()];
                lines.extend(elements.iter().map(|element| {
                    let list = rng.choice(["a", "b", "c"]).unwrap();
                    format!("RPUSH {list} {element}")
                }));
                lines.push("EXEC".to_owned());
                lines
            }
            // A list that comes under another name.
            6 => vec![
                "MULTI".to_owned(),
                format!("RPUSH {first}:new {all}"),
                // Takes the place of what is there: only where nothing is.
                format!("RENAMENX {first}:new {list}"),
                "EXEC".to_owned(),
            ],
            _ => vec![
                format!("RPUSH {first}:tmp {all}"),
                format!("LMOVE {first}:tmp {list} LEFT LEFT"),
                format!("LMOVE {first}:tmp {list} LEFT LEFT"),
                format!("LMOVE {first}:tmp {list} LEFT LEFT"),
            ],
        });
    }
}

/// Pushes its elements; what RENAMENX refused is moved later.
fn produce(mut client: Client, number: usize) {
    let mut rng = fastrand::Rng::with_seed(number as u64);
    for lines in pushes(&format!("p{number}"), EACH, &mut rng) {
        client.pipeline(&lines);
        if let Some(key) = lines.iter().find_map(|l| l.strip_prefix("RENAMENX ")) {
            let (from, to) = key.split_once(' ').unwrap();
            while client.ask(&format!("LMOVE {from} {to} RIGHT RIGHT")) != Value::Null {}
        }
        if rng.bool() {
            thread::sleep(Duration::from_micros(rng.u64(..500)));
        }
    }
}

/// Some clients wait first of all and go without a word before anything is pushed.
fn gone(server: &Server) {
    let mut watcher = server.client();
    assert_eq!(watcher.info("blocked_clients"), 0);
    let before = server.service.clients();
    let mut all: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for (client, pop) in all
        .iter_mut()
        .zip(["BLPOP a b c 0", "BZPOPMIN y 0"].iter().cycle())
    {
        client.send(&[pop]);
    }
    crate::wire::until("clients to wait", || watcher.info("blocked_clients") == 4);
    drop(all);
    server.wait_for_clients(before);
}

fn check(server: &Server) {
    gone(server);
    let (stop, taken) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let all = PRODUCERS * EACH;
    let mut got: Vec<String> = thread::scope(|scope| {
        let mut ids = Vec::new();
        let mut consumers: Vec<_> = POPS
            .iter()
            .map(|&pop| {
                let mut client = server.client();
                ids.push(client.ask("CLIENT ID").number());
                scope.spawn(move || consume(client, pop, stop, taken))
            })
            .collect();
        let (lists, rest) = (&POPS[..3], &POPS[4..]);
        consumers.push(scope.spawn(|| pass_by(server, lists, 1, stop, taken)));
        consumers.push(scope.spawn(|| pass_by(server, rest, 2, stop, taken)));
        for number in 0..PRODUCERS {
            let client = server.client();
            scope.spawn(move || produce(client, number));
        }
        let mut client = server.client();
        let begin = Instant::now();
        let failed = |all: &[thread::ScopedJoinHandle<'_, _>]| all.iter().any(|c| c.is_finished());
        while taken.load(SeqCst) < all && !failed(&consumers) && begin.elapsed() < PATIENCE / 2 {
            thread::sleep(Duration::from_millis(1));
        }
        let in_time = taken.load(SeqCst) >= all;
        stop.store(true, SeqCst);
        while !consumers.iter().all(|consumer| consumer.is_finished()) {
            for id in &ids {
                client.ask(&format!("CLIENT UNBLOCK {id}"));
            }
        }
        let left = ["a", "b", "c"].map(|list| client.ask(&format!("LRANGE {list} 0 -1")));
        assert!(
            in_time,
            "{}: {} of {all} were received; there are {left:?}",
            server.name,
            taken.load(SeqCst)
        );
        consumers
            .into_iter()
            .flat_map(|c| c.join().unwrap())
            .collect()
    });
    got.sort();
    let mut pushed: Vec<String> = (0..PRODUCERS)
        .flat_map(|p| (0..EACH).map(move |i| format!("p{p}:{i}")))
        .collect();
    pushed.sort();
    assert_eq!(got, pushed, "{}", server.name);
    let mut client = server.client();
    client.ask("DEL moved");
    assert_eq!(client.ask("DBSIZE"), Value::Int(0), "{}", server.name);
    // No client is left in a queue to which an element would go.
    assert_eq!(client.ask("RPUSH a x"), Value::Int(1));
    assert_eq!(client.ask("LLEN a"), Value::Int(1));
}

#[test]
fn every_element_is_received_once() {
    everywhere(check);
}
