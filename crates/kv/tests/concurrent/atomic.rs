//! Commands on several keys, and transactions, happen at once or not at all.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use crate::wire::{Client, PATIENCE, Server, Value, everywhere};

/// How often each client does its part, at least.
const ROUNDS: usize = 100;

/// What one client does over and over.
type Part<'a> = Box<dyn FnMut(&mut Client, usize) + Send + 'a>;

/// Runs each part on a client of its own, until all have done their rounds: none is ever alone.
fn together(server: &Server, parts: Vec<Part<'_>>) {
    let (all, done) = (parts.len(), &AtomicUsize::new(0));
    let begin = Instant::now();
    thread::scope(|scope| {
        for mut part in parts {
            let mut client = server.client();
            scope.spawn(move || {
                let mut round = 0;
                while done.load(SeqCst) < all {
                    part(&mut client, round);
                    round += 1;
                    if round == ROUNDS {
                        done.fetch_add(1, SeqCst);
                    }
                    assert!(
                        begin.elapsed() < PATIENCE,
                        "the others do not get their turn"
                    );
                }
            });
        }
    });
}

/// Reads strings by MGET, or by GETs in a transaction.
fn read(client: &mut Client, keys: &[&str], by_transaction: bool) -> Vec<Value> {
    if by_transaction {
        let gets: Vec<String> = keys.iter().map(|key| format!("GET {key}")).collect();
        client.transaction(&gets).unwrap()
    } else {
        client.ask(&format!("MGET {}", keys.join(" "))).array()
    }
}

#[test]
fn mset_is_never_seen_half_done() {
    let keys = ["a", "b", "c", "d", "e", "f", "g"];
    everywhere(|server| {
        let writer = |name: &'static str| -> Part<'_> {
            Box::new(move |client, round| {
                let pairs = keys.map(|key| format!("{key} {name}:{round}"));
                let reply = client.ask(&format!("MSET {}", pairs.join(" ")));
                assert_eq!(reply, Value::ok());
            })
        };
        let reader = || -> Part<'_> {
            Box::new(move |client, round| {
                let mut keys = keys;
                keys.rotate_left(round % 7);
                let values = read(client, &keys, round % 2 == 0);
                assert!(
                    values.iter().all(|value| *value == values[0]),
                    "{}: {values:?}",
                    server.name
                );
            })
        };
        together(server, vec![writer("x"), writer("y"), reader(), reader()]);
    });
}

#[test]
fn msetnx_is_won_by_one() {
    everywhere(|server| {
        let wins = AtomicUsize::new(0);
        let contender = |first: usize| -> Part<'_> {
            let wins = &wins;
            Box::new(move |client, round| {
                // Neighbours overlap in one key.
                let (a, b) = ((first + round) % 8, (first + round + 1) % 8);
                let reply = client.ask(&format!("MSETNX nx:{a} 1 nx:{b} 1"));
                if reply == Value::Int(1) {
                    wins.fetch_add(1, SeqCst);
                    assert_eq!(
                        client.ask(&format!("DEL nx:{a} nx:{b}")),
                        Value::Int(2),
                        "{}: what was ours is gone",
                        server.name
                    );
                }
            })
        };
        together(server, (0..4).map(contender).collect());
        assert!(wins.into_inner() > 0);
    });
}

#[test]
fn transfers_keep_the_sum() {
    let accounts = ["acc:1", "acc:2", "acc:3", "acc:4"];
    everywhere(|server| {
        let sum = |values: Vec<Value>| values.into_iter().map(Value::number).sum::<i64>();
        server
            .client()
            .ask(&format!("MSET {} 100", accounts.join(" 100 ")));
        let mover = |seed: u64| -> Part<'_> {
            let mut rng = fastrand::Rng::with_seed(seed);
            Box::new(move |client, _| {
                let (from, to) = (rng.choice(accounts).unwrap(), rng.choice(accounts).unwrap());
                let n = rng.i64(1..50);
                let moves = [format!("DECRBY {from} {n}"), format!("INCRBY {to} {n}")];
                client.transaction(&moves).unwrap();
            })
        };
        let reader = || -> Part<'_> {
            Box::new(move |client, round| {
                let values = read(client, &accounts, round % 2 == 0);
                assert_eq!(sum(values), 400, "{}", server.name);
            })
        };
        together(server, vec![mover(1), mover(2), mover(3), reader()]);
    });
}

#[test]
fn a_renamed_key_has_exactly_one_name() {
    everywhere(|server| {
        server.client().ask("SET name:0 value");
        let renamer = || -> Part<'_> {
            Box::new(move |client, round| {
                let (from, to) = (round % 2, (round + 1) % 2);
                match client.ask(&format!("RENAME name:{from} name:{to}")) {
                    // The other was first.
                    Value::Error(text) => assert_eq!(text, "ERR no such key"),
                    reply => assert_eq!(reply, Value::ok()),
                }
            })
        };
        let reader = || -> Part<'_> {
            Box::new(move |client, round| {
                let values = read(client, &["name:0", "name:1"], round % 2 == 0);
                let there = values.iter().filter(|value| **value != Value::Null);
                assert_eq!(there.count(), 1, "{}: {values:?}", server.name);
                assert_eq!(client.ask("EXISTS name:1 name:0"), Value::Int(1));
            })
        };
        together(server, vec![renamer(), renamer(), reader(), reader()]);
    });
}

#[test]
fn elements_that_move_are_in_one_place() {
    everywhere(|server| {
        let mut client = server.client();
        client.ask("SADD left 1 2 3 4");
        client.ask("RPUSH front 1 2 3 4");
        let mover = |from: &'static str, to: &'static str, seed: u64| -> Part<'_> {
            let mut rng = fastrand::Rng::with_seed(seed);
            Box::new(move |client, _| {
                client.pipeline(&[
                    format!("SMOVE {from} {to} {}", rng.u8(1..5)),
                    "LMOVE front back LEFT RIGHT".to_owned(),
                    "LMOVE back front RIGHT LEFT".to_owned(),
                ]);
            })
        };
        let reader = || -> Part<'_> {
            Box::new(move |client, _| {
                assert_eq!(client.ask("SUNION left right").array().len(), 4);
                assert_eq!(client.ask("SINTER left right"), Value::Array(Vec::new()));
                let lens = client.transaction(&["LLEN front", "LLEN back"]).unwrap();
                let len: i64 = lens.into_iter().map(Value::number).sum();
                assert_eq!(len, 4, "{}", server.name);
            })
        };
        together(
            server,
            vec![
                mover("left", "right", 1),
                mover("right", "left", 2),
                reader(),
            ],
        );
    });
}

#[test]
fn watched_increments_are_not_lost() {
    const EACH: usize = 25;
    const CLIENTS: usize = 4;
    everywhere(|server| {
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let mut client = server.client();
                scope.spawn(move || {
                    let begin = Instant::now();
                    let mut done = 0;
                    while done < EACH {
                        client.ask("WATCH counter twin");
                        let now = match client.ask("GET counter") {
                            Value::Null => 0,
                            value => value.number(),
                        };
                        let sets = [
                            format!("SET counter {}", now + 1),
                            format!("SET twin {}", now + 1),
                        ];
                        if client.transaction(&sets).is_some() {
                            done += 1;
                        }
                        assert!(begin.elapsed() < PATIENCE, "never undisturbed");
                    }
                });
            }
        });
        let values = read(&mut server.client(), &["counter", "twin"], false);
        let all = Value::Bulk((EACH * CLIENTS).to_string());
        assert_eq!(values, [all.clone(), all], "{}", server.name);
    });
}
