//! Memory: its limit holds on every path, it is counted as it is, and much of it is given back in
//! small steps.

use crate::common;
use crate::common::{World, on_every_shape};
use tidewire_kv::commands::find;
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{Policy, Settings, Store};

const NOW: u64 = 1_700_000_000_000;
const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Runs a command on database 0; its reply.
fn run(store: &Store, now_ms: u64, args: &[&[u8]]) -> String {
    let spec = find(args[0]).expect("a command");
    let mut reply = Reply::new(Proto::Resp2);
    store.runner(now_ms, now_ms).run(spec, 0, args, &mut reply);
    String::from_utf8_lossy(reply.bytes()).into_owned()
}

fn words(store: &Store, line: &str) -> String {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    run(store, NOW, &args)
}

/// Whatever was there before, longer or shorter: a value that was put in a key's place takes what a new one takes.
#[test]
fn an_overwritten_string_keeps_no_room_it_does_not_need() {
    let used = |lens: &[usize]| {
        let store = Store::new(Settings {
            shards: 1,
            ..Settings::default()
        });
        for &len in lens {
            assert_eq!(
                run(&store, NOW, &[b"SET", b"k", &vec![b'x'; len]]),
                "+OK\r\n"
            );
        }
        store.used_memory()
    };
    for last in [5_000, 60_000, 500_000] {
        let fresh = used(&[last]);
        for before in [
            last - 1,
            last - 100,
            last / 2 + 1,
            last + 100,
            2 * last,
            900_000,
        ] {
            assert_eq!(used(&[before, last]), fresh, "{before}, then {last}");
        }
        // Again and again a little longer.
        let growing: Vec<usize> = (0..50).map(|n| last - 50 + n).chain([last]).collect();
        assert_eq!(used(&growing), fresh, "to {last} by one");
    }
    // What grows in place may have room for more, which counts.
    let store = Store::new(Settings::default());
    run(&store, NOW, &[b"SET", b"k", &vec![b'x'; 100_000]]);
    let before = store.used_memory();
    run(&store, NOW, &[b"APPEND", b"k", b"y"]);
    assert!(store.used_memory() > before + 50_000, "twice the room");
    run(&store, NOW, &[b"SET", b"k", &vec![b'x'; 100_001]]);
    assert!(store.used_memory() < before + 1000);
}

/// A store with a limit, and `command` with 1,000 elements for each call of it until there are
/// `elements` at `key`.
fn fill(store: &Store, command: &str, key: &str, elements: usize) {
    let all: Vec<String> = (0..elements).map(|n| format!("element:{n:06}")).collect();
    if command == "xadd" {
        for element in &all {
            words(
                store,
                &format!("XADD {key} * a {element} b {element}{element}"),
            );
        }
        return;
    }
    for some in all.chunks(1000) {
        let mut args: Vec<&[u8]> = vec![command.as_bytes(), key.as_bytes()];
        for element in some {
            match command {
                "hset" => args.extend([element.as_bytes(), b"value"]),
                "zadd" => args.extend([&b"1"[..], element.as_bytes()]),
                _ => args.push(element.as_bytes()),
            }
        }
        run(store, NOW, &args);
    }
}

#[test]
fn whatever_removes_a_large_value_buries_it() {
    type Act = fn(&Store);
    let acts: [(&str, Act); 10] = [
        ("DEL", |s| drop(words(s, "DEL big"))),
        ("UNLINK", |s| drop(words(s, "UNLINK big other"))),
        ("SET over it", |s| drop(words(s, "SET big small"))),
        ("RENAME onto it", |s| drop(words(s, "RENAME small big"))),
        ("COPY onto it", |s| drop(words(s, "COPY small big REPLACE"))),
        ("a result stored over it", |s| {
            drop(words(s, "SUNIONSTORE big few few"));
        }),
        ("a time that has passed", |s| {
            drop(words(s, "PEXPIREAT big 1"))
        }),
        ("expiry when it is asked for", |s| {
            words(s, "PEXPIRE big 10");
            run(s, NOW + 10, &[b"GET", b"big"]);
        }),
        ("active expiry", |s| {
            words(s, "PEXPIRE big 10");
            while s.expire(NOW + 10).removed == 0 {}
        }),
        ("FLUSHALL", |s| drop(words(s, "FLUSHALL"))),
    ];
    for (what, act) in acts {
        for command in ["sadd", "hset", "zadd", "xadd"] {
            let store = Store::new(Settings {
                shards: 1,
                ..Settings::default()
            });
            words(&store, "SET small value");
            words(&store, "SADD few a b");
            let before = store.used_memory();
            fill(&store, command, "big", 20_000);
            let full = store.used_memory();
            assert!(full - before > 20_000 * 20, "{command}: {full}");
            act(&store);
            // Gone, but not freed: that would have been done under the lock of its shard.
            assert!(store.lazyfree_pending() > 0, "{what}, {command}");
            let used = store.used_memory();
            assert!(used > full - 10_000, "{what}, {command}: {used} of {full}");
            let (mut last, mut steps) = (used, 0);
            while store.free_some() {
                let now = store.used_memory();
                assert!(
                    last - now < 1100 * 200,
                    "{what}: a step freed {}",
                    last - now
                );
                (last, steps) = (now, steps + 1);
            }
            assert!(
                (15..100).contains(&steps),
                "{what}, {command}: {steps} steps"
            );
            assert_eq!(store.lazyfree_pending(), 0);
            assert!(last < before + 6000, "{what}, {command}: {last}, {before}");
        }
    }
}

#[test]
fn a_flush_of_many_keys_is_freed_in_steps() {
    let store = Store::new(Settings {
        shards: 2,
        ..Settings::default()
    });
    let empty = store.used_memory();
    for n in 0..20_000 {
        words(&store, &format!("SET key:{n} {}", "v".repeat(100)));
    }
    fill(&store, "sadd", "big", 5_000);
    let full = store.used_memory();
    words(&store, "FLUSHALL ASYNC");
    assert_eq!(store.keyspace(0).keys, 0);
    assert_eq!(store.lazyfree_pending(), 20_001);
    assert!(store.used_memory() > full * 9 / 10);
    let mut steps = 0;
    while store.free_some() {
        steps += 1;
    }
    assert!((20..100).contains(&steps), "{steps} steps");
    assert!(store.used_memory() <= empty + 100);
    assert_eq!(store.lazyfreed(), 20_001);
    // What comes afterwards is counted from nothing.
    words(&store, "SET k v");
    words(&store, "DEL k");
    assert!(
        store.used_memory() < empty + 6000,
        "{}",
        store.used_memory()
    );
}

#[test]
fn evicting_a_large_value_makes_room_without_evicting_all() {
    let store = Store::new(Settings {
        shards: 1,
        maxmemory: 4 << 20,
        policy: Policy::AllKeysLru,
        ..Settings::default()
    });
    fill(&store, "sadd", "big", 100_000);
    assert!(store.used_memory() > 2 << 20);
    // The large one is the oldest.
    for n in 0..40_000 {
        let key = format!("key:{n}");
        run(
            &store,
            NOW + 1000 + n,
            &[b"SET", key.as_bytes(), &[b'v'; 64]],
        );
        let used = store.used_memory();
        assert!(used < (4 << 20) + 8192, "{used} after {n}");
    }
    let kept = store.keyspace(0).keys;
    assert!(kept > 25_000, "{kept} keys kept");
}

#[test]
fn a_limit_holds_to_a_few_keys() {
    for shards in [1, 64, 1024] {
        for limit in [1 << 20, 10 << 20] {
            let store = Store::new(Settings {
                shards,
                maxmemory: limit,
                ..Settings::default()
            });
            let refused = (0..).find(|n| {
                let key = format!("key:{n}");
                run(&store, NOW, &[b"SET", key.as_bytes(), b"12345678"]).starts_with("-OOM")
            });
            assert!(refused.is_some());
            let over = store.used_memory().saturating_sub(limit);
            // A key takes 48 bytes or so; a piece of a table's list of segments may come at once.
            assert!(
                over < 16_384,
                "{over} bytes over {limit} with {shards} shards"
            );
        }
    }
}

/// Asks with arguments of any length.
fn set(key: usize, len: usize) -> String {
    format!("SET key:{key} {}", "v".repeat(len))
}

fn used(world: &mut World, c: &mut common::Client) -> u64 {
    let info = world.ask(c, "INFO memory");
    let at = info.find("|used_memory:").expect("INFO says so") + "|used_memory:".len();
    let rest = &info[at..];
    rest[..rest.find('|').expect("a line")]
        .parse()
        .expect("bytes")
}

#[test]
fn transactions_make_room_before_they_begin() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "CONFIG SET maxmemory-policy allkeys-lru", "+OK|");
        world.check(&mut c, "CONFIG SET maxmemory 1000000", "+OK|");
        for round in 0..100 {
            world.check(&mut c, "MULTI", "+OK|");
            for n in 0..30 {
                world.check(&mut c, &set(round * 30 + n, 1000), "+QUEUED|");
            }
            let done = world.ask(&mut c, "EXEC");
            assert_eq!(done, format!("*30|{}", "+OK|".repeat(30)));
            let used = used(&mut world, &mut c);
            assert!(used < 1_050_000, "{used} bytes in round {round}");
        }
        // More than can ever be there: nothing of it is done.
        world.ask(&mut c, "MULTI");
        for n in 0..20 {
            world.check(&mut c, &set(n, 100_000), "+QUEUED|");
        }
        let text = format!("-EXECABORT Transaction discarded because of: {OOM}|");
        world.check(&mut c, "EXEC", &text);
        world.check(&mut c, "GET key:19", "$-1|");
        world.check(&mut c, "PING", "+PONG|");
    });
}

#[test]
fn no_transaction_is_half_applied_for_lack_of_memory() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        world.check(&mut c, "SET src value", "+OK|");
        world.check(&mut c, "SET watched value", "+OK|");
        // The limit is there when commands are queued.
        world.check(&mut other, "CONFIG SET maxmemory 1", "+OK|");
        world.check(&mut c, "WATCH watched", "+OK|");
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "DEL src", "+QUEUED|");
        world.check(&mut c, "SET dst value", &format!("-{OOM}|"));
        let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
        world.check(&mut c, "EXEC", aborted);
        world.check(&mut c, "GET src", "$5|value|");
        // What needs no memory is done.
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "DEL nothing", "+QUEUED|");
        world.check(&mut c, "GET src", "+QUEUED|");
        world.check(&mut c, "EXEC", "*2|:0|$5|value|");
        // The limit comes in between.
        world.check(&mut other, "CONFIG SET maxmemory 0", "+OK|");
        world.check(&mut c, "WATCH watched", "+OK|");
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "DEL src", "+QUEUED|");
        world.check(&mut c, "SET dst value", "+QUEUED|");
        world.check(&mut other, "CONFIG SET maxmemory 1", "+OK|");
        let text = format!("-EXECABORT Transaction discarded because of: {OOM}|");
        world.check(&mut c, "EXEC", &text);
        world.check(&mut c, "GET src", "$5|value|");
        world.check(&mut c, "GET dst", "$-1|");
        // The transaction's own commands may set the limit: then the rest of them is still done.
        world.check(&mut other, "CONFIG SET maxmemory 0", "+OK|");
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "CONFIG SET maxmemory 1", "+QUEUED|");
        world.check(&mut c, "DEL src", "+QUEUED|");
        world.check(&mut c, "SET dst value", "+QUEUED|");
        world.check(&mut c, "EXEC", "*3|+OK|:1|+OK|");
    });
}

#[test]
fn subcommands_that_create_are_refused_and_removing_ones_are_not() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "XGROUP CREATE there g $ MKSTREAM", "+OK|");
        world.check(&mut c, "CONFIG SET maxmemory 1", "+OK|");
        for what in ["CREATE new g $ MKSTREAM", "createconsumer there g c"] {
            world.check(&mut c, &format!("XGROUP {what}"), &format!("-{OOM}|"));
            world.check(&mut c, "MULTI", "+OK|");
            world.check(&mut c, &format!("XGROUP {what}"), &format!("-{OOM}|"));
            world.check(&mut c, "DISCARD", "+OK|");
            let words: Vec<String> = what.split(' ').map(|word| format!("'{word}'")).collect();
            let script = format!("return redis.call('XGROUP',{})", words.join(","));
            let said = world.ask_args(&mut c, &["EVAL", &script, "0"]);
            assert!(said.starts_with("-OOM "), "{said}");
        }
        world.check(&mut c, "EXISTS new", ":0|");
        world.check(&mut c, "XGROUP DESTROY there g", ":1|");
    });
}

#[test]
fn what_was_unlinked_makes_room_for_what_comes() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        for at in (0..50_000).step_by(1000) {
            let members: Vec<String> = (at..at + 1000).map(|n| format!("member:{n}")).collect();
            world.ask(&mut c, &format!("SADD big {}", members.join(" ")));
        }
        let full = used(&mut world, &mut c);
        world.check(
            &mut c,
            &format!("CONFIG SET maxmemory {}", full - 1000),
            "+OK|",
        );
        world.check(&mut c, "SET k v", &format!("-{OOM}|"));
        world.check(&mut c, "UNLINK big", ":1|");
        let info = world.ask(&mut c, "INFO memory");
        assert!(info.contains("lazyfree_pending_objects:1|"), "{info}");
        // Nothing may be evicted, but what waits to be freed is.
        world.check(&mut c, "SET k v", "+OK|");
        let mut asked = 0;
        while world
            .ask(&mut c, "INFO memory")
            .contains("lazyfree_pending_objects:1|")
        {
            asked += 1;
            assert!(asked < 100);
        }
        let info = world.ask(&mut c, "INFO memory");
        assert!(info.contains("lazyfree_pending_objects:0|"), "{info}");
        assert!(info.contains("lazyfreed_objects:1|"), "{info}");
        assert!(used(&mut world, &mut c) < full / 10);
    });
}

/// Collections give memory back when they have lost most of what they held.
#[test]
fn containers_shrink() {
    for (command, remove) in [("sadd", "srem"), ("hset", "hdel"), ("zadd", "zrem")] {
        let store = Store::new(Settings::default());
        let empty = store.used_memory();
        fill(&store, command, "big", 50_000);
        let full = store.used_memory() - empty;
        for n in 10..50_000 {
            let element = format!("element:{n:06}");
            run(
                &store,
                NOW,
                &[remove.as_bytes(), b"big", element.as_bytes()],
            );
        }
        let left = store.used_memory() - empty;
        assert!(
            left < 30_000 && left * 50 < full,
            "{command}: {left} of {full}"
        );
    }
    let store = Store::new(Settings::default());
    fill(&store, "xadd", "stream", 50_000);
    words(&store, "XGROUP CREATE stream g 0");
    words(&store, "XREADGROUP GROUP g c COUNT 40000 STREAMS stream >");
    let full = store.used_memory();
    words(&store, "XTRIM stream MAXLEN 10");
    words(&store, "XAUTOCLAIM stream g c 0 0 COUNT 100000");
    let left = store.used_memory();
    assert!(left * 20 < full, "stream: {left} of {full}");
    let store = Store::new(Settings::default());
    fill(&store, "rpush", "list", 50_000);
    let full = store.used_memory();
    run(&store, NOW, &[b"LTRIM", b"list", b"0", b"9"]);
    let left = store.used_memory();
    assert!(left * 20 < full, "list: {left} of {full}");
}

#[test]
fn what_waits_to_be_freed_does_not_grow_with_what_is_made() {
    const LIMIT: u64 = 12 << 20;
    for transaction in [false, true] {
        let store = Store::new(Settings {
            maxmemory: LIMIT,
            ..Settings::default()
        });
        fill(&store, "sadd", "big", 40_000);
        let args: [&[u8]; 3] = [b"sunionstore", b"other", b"big"];
        let spec = find(args[0]).unwrap();
        let mut reply = Reply::new(Proto::Resp2);
        // A pipeline has one runner.
        let mut runner = store.runner(NOW, 1);
        let mut most = 0;
        if transaction {
            assert!(runner.begin([(spec, &args[..])].into_iter(), Vec::new()));
        }
        for _ in 0..100 {
            // Each buries what the last one has made.
            runner.run(spec, 0, &args, &mut reply);
            if !transaction {
                runner.release();
                most = most.max(store.used_memory());
            }
        }
        if transaction {
            runner.end();
        }
        most = most.max(store.used_memory());
        assert!(most < LIMIT + LIMIT / 4, "{most} in {transaction}");
        let replies = String::from_utf8_lossy(reply.bytes()).into_owned();
        assert_eq!(replies, ":40000\r\n".repeat(100));
    }
}
