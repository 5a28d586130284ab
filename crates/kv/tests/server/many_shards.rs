//! Any number of shards gives equal results: commands with keys of several, walks, limits, expiry,
//! and what is counted.

use std::collections::BTreeSet;

use tidewire_kv::commands::{Spec, find};
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{Policy, SHARDS_MAX, Settings, Store};

use crate::common::World;

const NOW: u64 = 1_700_000_000_000;
const NUMBERS: [usize; 8] = [1, 8, 64, 65, 200, 257, 1024, SHARDS_MAX];

fn of(shards: usize) -> Store {
    Store::new(Settings {
        shards,
        ..Settings::default()
    })
}

fn run(store: &Store, now_ms: u64, args: &[&[u8]]) -> String {
    let spec = find(args[0]).expect("a command");
    let mut reply = Reply::new(Proto::Resp2);
    store.runner(now_ms, 1).run(spec, 0, args, &mut reply);
    String::from_utf8_lossy(reply.bytes()).replace("\r\n", "|")
}

fn words(store: &Store, line: &str) -> String {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    run(store, NOW, &args)
}

fn with_keys<'a>(name: &'a [u8], keys: &'a [String]) -> Vec<&'a [u8]> {
    let keys = keys.iter().map(|key| key.as_bytes());
    [name].into_iter().chain(keys).collect()
}

#[test]
fn commands_with_many_keys_and_walks_see_all_of_them() {
    let keys: Vec<String> = (0..500).map(|n| format!("key:{n}")).collect();
    for shards in NUMBERS {
        let store = of(shards);
        let mut mset: Vec<&[u8]> = vec![b"mset"];
        keys.iter()
            .for_each(|key| mset.extend([key.as_bytes(), key.as_bytes()]));
        assert_eq!(run(&store, NOW, &mset), "+OK|");
        let values = keys.iter().map(|key| format!("${}|{key}|", key.len()));
        let all = format!("*500|{}", values.collect::<String>());
        assert_eq!(run(&store, NOW, &with_keys(b"mget", &keys)), all);
        assert_eq!(words(&store, "dbsize"), ":500|");
        // A walk, in small steps.
        let (mut seen, mut cursor) = (BTreeSet::new(), "0".to_owned());
        for _ in 0..2 * SHARDS_MAX {
            let found = words(&store, &format!("scan {cursor} count 7"));
            let parts: Vec<&str> = found.split('|').collect();
            seen.extend(
                parts[4..]
                    .chunks(2)
                    .filter_map(|pair| Some(pair.get(1)?.to_string())),
            );
            parts[2].clone_into(&mut cursor);
            if cursor == "0" {
                break;
            }
        }
        seen.remove("");
        assert_eq!(seen, keys.iter().cloned().collect(), "{shards} shards");
        assert!(words(&store, "randomkey").contains("key:"));
        assert_eq!(
            run(&store, NOW, &with_keys(b"unlink", &keys[..250])),
            ":250|"
        );
        assert_eq!(words(&store, "flushall"), "+OK|");
        assert_eq!(store.keys(), 0);
    }
}

#[test]
fn a_transaction_holds_what_its_commands_name() {
    for shards in NUMBERS {
        let store = of(shards);
        let line = |text: &'static str| -> (&'static Spec, Vec<&'static [u8]>) {
            let args: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            (find(args[0]).expect("a command"), args)
        };
        for walks in [false, true] {
            let mut lines = vec![
                line("sadd a x y"),
                line("sadd b y z"),
                line("sunionstore c a b"),
                line("get other"),
            ];
            if walks {
                lines.push(line("dbsize"));
                lines.push(line("flushdb"));
            }
            let watch = store.watch(0, b"watched", NOW);
            let mut runner = store.runner(NOW, 1);
            let commands = lines.iter().map(|(spec, args)| (*spec, &args[..]));
            assert!(runner.begin(commands, vec![watch]));
            let mut reply = Reply::new(Proto::Resp2);
            for (spec, args) in &lines {
                runner.run(spec, 0, args, &mut reply);
            }
            runner.end();
            let text = String::from_utf8_lossy(reply.bytes()).replace("\r\n", "|");
            let end = if walks { ":3|+OK|" } else { "" };
            let added = if walks { ":0|:0|" } else { ":2|:2|" };
            assert_eq!(text, format!("{added}:3|$-1|{end}"), "{shards} shards");
        }
    }
}

#[test]
fn what_cannot_be_evicted_is_refused() {
    for shards in NUMBERS {
        let store = of(shards);
        for n in 0..100 {
            words(&store, &format!("set key:{n} {}", "v".repeat(100)));
        }
        store.set_policy(Policy::VolatileLru);
        store.set_maxmemory(1);
        let refused = words(&store, "set another value");
        assert!(refused.starts_with("-OOM"), "{shards} shards: {refused}");
        assert_eq!(store.stats().evicted, 0);
    }
}

#[test]
fn a_limit_that_comes_later_counts_what_is_there() {
    for shards in NUMBERS {
        let store = of(shards);
        let fill = |from: usize| {
            for n in from..from + 2000 {
                assert_eq!(words(&store, &format!("set key:{n} value")), "+OK|");
            }
        };
        fill(0);
        let used = store.used_memory();
        // Twice: what is brought while there is no limit counts each time.
        for more in [2000, 4000] {
            store.set_maxmemory(used);
            fill_until_refused(&store);
            store.set_maxmemory(0);
            fill(more);
        }
        store.set_maxmemory(store.used_memory() - 50_000);
        assert!(words(&store, "set one more").starts_with("-OOM"));
        // What is removed gives room again.
        for n in 0..6000 {
            words(&store, &format!("del key:{n}"));
        }
        assert_eq!(words(&store, "set one more"), "+OK|", "{shards} shards");
    }
}

fn fill_until_refused(store: &Store) {
    let refused =
        (0..10_000).find(|n| words(store, &format!("set more:{n} value")).starts_with("-OOM"));
    assert!(refused.is_some());
    let over = store.used_memory() - store.maxmemory();
    // A piece of a table, and a thousandth.
    assert!(
        over < 6000 + store.maxmemory() / 1000 || refused == Some(0),
        "{over}"
    );
}

#[test]
fn keys_that_expire_are_found_in_as_many_calls() {
    for shards in NUMBERS {
        let store = of(shards);
        for n in 0..100 {
            words(&store, &format!("set key:{n} value px 10"));
        }
        let calls = (1..=100).find(|_| {
            store.expire(NOW + 10);
            store.keys() == 0
        });
        assert!(
            calls.is_some_and(|calls| calls <= 17),
            "{shards} shards: {calls:?} calls"
        );
        assert_eq!(store.stats().expired, 100);
    }
}

#[test]
fn errors_of_all_loops_are_told_and_forgotten() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client(), world.client_of(1));
    world.check(&mut a, "SET text value", "+OK|");
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    world.check(&mut a, "LLEN text", wrong);
    for _ in 0..2 {
        world.check(&mut b, "LLEN text", wrong);
    }
    assert!(world.ask(&mut b, "NOSUCH").starts_with("-ERR unknown"));
    let told = world.ask(&mut a, "INFO errorstats");
    assert!(told.contains("errorstat_ERR:count=1|"), "{told}");
    assert!(told.contains("errorstat_WRONGTYPE:count=3|"), "{told}");
    world.check(&mut a, "CONFIG RESETSTAT", "+OK|");
    let told = world.ask(&mut b, "INFO errorstats");
    assert!(!told.contains("errorstat_"), "{told}");
    assert!(world.ask(&mut b, "NOSUCH").starts_with("-ERR unknown"));
    let told = world.ask(&mut a, "INFO errorstats");
    assert!(told.contains("errorstat_ERR:count=1|"), "{told}");
}
