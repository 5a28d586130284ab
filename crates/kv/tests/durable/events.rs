//! What becomes of keys is told when it is durable, and not before.

use tidewire_log::Policy;

use crate::by_hand::World;
use crate::wire::command;

/// A message that a key's own channel has.
fn told(event: &str) -> String {
    let len = event.len();
    format!("*4|$8|pmessage|$11|__keyspace*|$16|__keyspace@0__:k|${len}|{event}|")
}

fn listening() -> World {
    let mut world = World::new(Policy::Sync);
    world.ask(1, &["PSUBSCRIBE __keyspace*"]);
    assert_eq!(
        world.ask(0, &["CONFIG SET notify-keyspace-events KAmn"]),
        "+OK|"
    );
    world
}

#[test]
fn an_event_waits_for_the_commit() {
    let mut world = listening();
    for (lines, answer, events) in [
        (&["SET k 1"][..], "+OK|", &["new", "set"][..]),
        (&["DEL k", "RPUSH k a"], ":1|:1|", &["del", "new", "rpush"]),
        (
            &["MULTI", "LPOP k", "GET k", "SET k 1", "EXEC"],
            "+OK|+QUEUED|+QUEUED|+QUEUED|*3|$1|a|$-1|+OK|",
            &["lpop", "del", "keymiss", "new", "set"],
        ),
        (&["PEXPIRE k 1"], ":1|", &["expire"]),
    ] {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
        world.send(0, &bytes);
        // Nothing has been synced: neither the writer nor the listener hears of it.
        assert!(!world.heard(0).contains(answer), "{lines:?}");
        assert_eq!(world.heard(1), "", "{lines:?}");
        world.answered(0);
        let heard = world.answered(1);
        let expected: String = events.iter().map(|event| told(event)).collect();
        assert!(heard.starts_with(&expected), "{lines:?}: {heard}");
    }
}

/// This also holds for a key that is removed because its time has come.
#[test]
fn that_a_key_has_expired_waits_for_the_commit() {
    let mut world = listening();
    // Each of these takes some seconds.
    world.ask(0, &["SET k 1 PX 20000"]);
    world.answered(1);
    for _ in 0..20 {
        assert_eq!(world.heard(1), "", "nothing was synced since");
    }
    assert_eq!(world.answered(1), told("expired"));
    assert_eq!(world.recovered(), Vec::<String>::new());
}

/// A miss of a key whose removal is not durable yet is not told early on the channel either.
#[test]
fn that_a_key_was_missed_waits_for_what_removed_it() {
    let mut world = listening();
    world.ask(0, &["SET k 1"]);
    world.answered(1);
    world.send(0, &[command("DEL k"), command("GET k")].concat());
    assert_eq!(world.heard(1), "");
    world.answered(0);
    assert_eq!(world.answered(1), told("del") + &told("keymiss"));
}

/// What is replayed has been told.
#[test]
fn a_second_start_tells_nothing_again() {
    let mut world = listening();
    world.ask(0, &["SET k 1", "PEXPIREAT k 99999999999999"]);
    world.answered(1);
    assert_eq!(world.reopened().units(), 2);
    assert_eq!(world.heard(1), "");
}

/// An invalidation tells as much as the value itself: a client that caches it would fetch, and be
/// given, what a crash takes back.
#[test]
fn an_invalidation_waits_for_the_commit() {
    const KEY: &str = ">2|$10|invalidate|*1|$1|k|";
    const ALL: &str = ">2|$10|invalidate|_|";
    for mode in ["CLIENT TRACKING ON", "CLIENT TRACKING ON BCAST PREFIX k"] {
        let mut world = World::new(Policy::Sync);
        world.ask(1, &["HELLO 3", mode]);
        for (lines, told) in [
            (&["SET k 1"][..], KEY),
            (&["MULTI", "INCR k", "INCR k", "EXEC"], KEY),
            (&["EVAL redis.call('set','k',3) 0"], KEY),
            (&["DEL k"], KEY),
            (&["SET k 4 PX 1"], KEY),
            (&["FLUSHALL"], ALL),
        ] {
            world.ask(1, &["GET k"]);
            let bytes: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
            world.send(0, &bytes);
            world.heard(0);
            assert_eq!(world.heard(1), "", "{mode}: {lines:?}: nothing was synced");
            world.answered(0);
            let heard = world.heard(1);
            assert!(heard.starts_with(told), "{mode}: {lines:?}: {heard}");
        }
    }
}
