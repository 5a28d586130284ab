//! Keyspace notifications: what becomes of keys is told, whichever client does it and however.

use std::time::Duration;

use crate::common::{Client, World, on_every_shape};

/// A world in which such events are told, a listener on one loop to both kinds of channel, and a
/// client that does something on the other.
fn listening(classes: &str) -> (World, Client, Client) {
    let mut world = World::new();
    let (mut listener, mut other) = (world.client(), world.client_of(1));
    let set = format!("CONFIG SET notify-keyspace-events {classes}");
    world.check(&mut other, &set, "+OK|");
    world.ask(&mut listener, "PSUBSCRIBE __key*@*__:*");
    (world, listener, other)
}

/// What was told, as `event@db key`, and whether in both ways.
fn told(world: &mut World, listener: &mut Client) -> Vec<String> {
    let text = world.answer(listener);
    let mut all = Vec::new();
    let mut words = text
        .split('|')
        .filter(|word| !word.starts_with(['*', '$', '>']));
    while let (Some("pmessage"), Some(_), Some(channel), Some(payload)) =
        (words.next(), words.next(), words.next(), words.next())
    {
        let (kind, rest) = channel.split_once('@').unwrap();
        let (db, name) = rest.split_once("__:").unwrap();
        all.push(match kind {
            "__keyevent" => format!("{name}@{db} {payload}"),
            "__keyspace" => format!("key: {payload}@{db} {name}"),
            other => panic!("{other}"),
        });
    }
    all
}

#[track_caller]
fn expect(world: &mut World, listener: &mut Client, expected: &[&str]) {
    assert_eq!(told(world, listener), expected);
}

#[test]
fn it_is_told_on_the_channels_that_were_asked_for() {
    on_every_shape(|| {
        for (classes, expected) in [
            ("KEA", &["key: set@0 k", "set@0 k"][..]),
            ("E$", &["set@0 k"]),
            ("KA", &["key: set@0 k"]),
            (
                "KEAn",
                &["key: new@0 k", "new@0 k", "key: set@0 k", "set@0 k"],
            ),
            // No channel, another class.
            ("A", &[]),
            ("KElshzxetg", &[]),
        ] {
            let (mut world, mut listener, mut other) = listening(classes);
            world.check(&mut other, "SET k 1", "+OK|");
            expect(&mut world, &mut listener, expected);
        }
    });
}

#[test]
fn whichever_client_does_it_and_however() {
    on_every_shape(|| {
        let (mut world, mut listener, mut other) = listening("EA");
        let w = &mut world;
        w.ask(&mut other, "SELECT 3");
        w.ask(&mut other, "SET k 1 EX 1000");
        expect(w, &mut listener, &["set@3 k", "expire@3 k"]);
        w.ask(&mut other, "MOVE k 0");
        expect(w, &mut listener, &["move_from@3 k", "move_to@0 k"]);
        w.ask(
            &mut other,
            "EVAL return{redis.call('rpush','l','a'),redis.call('lpop','l')} 0",
        );
        expect(w, &mut listener, &["rpush@3 l", "lpop@3 l", "del@3 l"]);
        for line in ["MULTI", "SADD s a", "GET none", "SREM s a"] {
            w.ask(&mut other, line);
        }
        expect(w, &mut listener, &[]);
        w.ask(&mut other, "EXEC");
        expect(w, &mut listener, &["sadd@3 s", "srem@3 s", "del@3 s"]);
        // What a blocked client takes.
        let mut waiting = w.client();
        w.send(&waiting, "BLMOVE l m LEFT RIGHT 0");
        assert_eq!(w.answer(&mut waiting), "");
        w.ask(&mut other, "SELECT 0");
        w.ask(&mut other, "RPUSH l a");
        expect(
            w,
            &mut listener,
            &["rpush@0 l", "rpush@0 m", "lpop@0 l", "del@0 l"],
        );
        // A setting that changes holds for the next command, of the same pipeline too.
        w.send(&other, "CONFIG SET notify-keyspace-events E$");
        w.send(&other, "SET x 1");
        w.send(&other, "RPUSH y 1");
        w.answer(&mut other);
        expect(w, &mut listener, &["set@0 x"]);
    });
}

#[test]
fn keys_that_go_by_themselves() {
    on_every_shape(|| {
        let (mut world, mut listener, mut other) = listening("Exe");
        let w = &mut world;
        w.ask(&mut other, "SET k 1 PX 50");
        w.ask(&mut other, "SET l 1 PX 50");
        w.sim.run_for(Duration::from_secs(2));
        let mut gone = told(w, &mut listener);
        gone.sort();
        assert_eq!(gone, ["expired@0 k", "expired@0 l"]);
        w.ask(&mut other, "SET m 1");
        w.ask(
            &mut other,
            "CONFIG SET maxmemory-policy allkeys-random maxmemory 1",
        );
        w.ask(&mut other, "SET n 1");
        let gone = told(w, &mut listener);
        assert_eq!(
            gone.first().map(String::as_str),
            Some("evicted@0 m"),
            "{gone:?}"
        );
    });
}

#[test]
fn a_key_that_was_not_there_is_not_told_to_have_gone() {
    let (mut world, mut listener, mut other) = listening("EA");
    let w = &mut world;
    w.check(&mut other, "SET k 1 PXAT 1", "+OK|");
    expect(w, &mut listener, &[]);
    w.check(&mut other, "SET k 1", "+OK|");
    w.check(&mut other, "SET k 1 PXAT 1", "+OK|");
    expect(w, &mut listener, &["set@0 k", "del@0 k"]);
}

/// As Redis does, which goes on evicting behind CONFIG SET.
#[test]
fn a_smaller_limit_of_memory_holds_without_commands() {
    on_every_shape(|| {
        let (mut world, mut listener, mut other) = listening("Ee");
        let w = &mut world;
        for n in 0..100 {
            w.ask(&mut other, &format!("SET k{n} 1"));
        }
        let set = "CONFIG SET maxmemory-policy allkeys-lru maxmemory 1";
        w.check(&mut other, set, "+OK|");
        w.sim.run_for(Duration::from_secs(5));
        assert_eq!(told(w, &mut listener).len(), 100);
        w.check(&mut other, "DBSIZE", ":0|");
    });
}

#[test]
fn a_key_that_is_not_there() {
    on_every_shape(|| {
        let (mut world, mut listener, mut other) = listening("Em");
        let w = &mut world;
        for read in [
            "GET k",
            "EXISTS k",
            "TTL k",
            "TYPE k",
            "LRANGE k 0 1",
            "TOUCH k",
            "MGET k",
        ] {
            w.ask(&mut other, read);
            expect(w, &mut listener, &["keymiss@0 k"]);
        }
        for other_kind in [
            "OBJECT ENCODING k",
            "INCR k",
            "DEL k",
            "EXPIRE k 5",
            "GET k",
        ] {
            w.ask(&mut other, other_kind);
        }
        expect(w, &mut listener, &["keymiss@0 k"]);
    });
}

/// A user that may not subscribe to these channels hears nothing of keys.
#[test]
fn channels_of_keys_are_guarded_as_others() {
    let (mut world, _, mut other) = listening("KEA");
    world.check(&mut other, "ACL SETUSER u on nopass +@all ~* &chat", "+OK|");
    let mut u = world.client();
    world.check(&mut u, "AUTH u x", "+OK|");
    let refused = world.ask(&mut u, "PSUBSCRIBE __keyspace@0__:*");
    assert!(refused.starts_with("-NOPERM"), "{refused}");
}

#[test]
fn resp3_has_it_as_a_push() {
    let (mut world, _, mut other) = listening("EA");
    let mut three = world.client();
    world.ask(&mut three, "HELLO 3");
    world.ask(&mut three, "SUBSCRIBE __keyevent@0__:set");
    world.ask(&mut other, "SET k 1");
    let push = ">3|$7|message|$18|__keyevent@0__:set|$1|k|";
    assert_eq!(world.answer(&mut three), push);
}

/// A script that makes more events than there is room for does not fill the memory: listeners are
/// cut, and counted.
#[test]
fn more_events_than_there_is_room_for_cut_the_listener() {
    let (mut world, mut listener, mut other) = listening("KEA");
    let key = "k".repeat(1000);
    let script = format!("for\ti=1,40000\tdo\tredis.call('set','{key}',i)end");
    world.ask(&mut other, &format!("EVAL {script} 0"));
    world.sim.run_for(Duration::from_secs(30));
    world.answer(&mut listener);
    let info = world.ask(&mut other, "INFO stats");
    let field = |name: &str| {
        let (_, rest) = info.split_once(&format!("{name}:")).expect(name);
        rest.split_once('|').unwrap().0.parse::<u64>().unwrap()
    };
    assert!(field("keyspace_events_lost") > 0, "{info}");
    assert_eq!(field("client_output_buffer_limit_disconnections"), 1);
    // The server goes on.
    world.check(&mut other, "PING", "+PONG|");
}
