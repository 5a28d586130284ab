//! Blocking commands on the simulated network: which client is served, when, and what ends a wait.

use std::time::Duration;

use crate::common::{World, on_every_shape};
use tidewire::sim::PlainState;

#[test]
fn a_push_serves_the_one_that_waits_longest() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut first, mut second, mut pusher) =
            (world.client(), world.client_of(1), world.client());
        world.check(&mut first, "BLPOP a b 0", "");
        world.check(&mut second, "BLPOP b 0", "");
        world.check(&mut pusher, "RPUSH b 1 2 3", ":3|");
        assert_eq!(world.answer(&mut first), "*2|$1|b|$1|1|");
        assert_eq!(world.answer(&mut second), "*2|$1|b|$1|2|");
        world.check(&mut pusher, "LRANGE b 0 -1", "*1|$1|3|");
        world.check(&mut first, "BLPOP a b 0", "*2|$1|b|$1|3|");
    });
}

#[test]
fn each_type_serves_its_own_in_their_order_whichever_client_leaves() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut pusher = world.client();
        let mut all: Vec<_> = (0..12).map(|n| world.client_of(n % 2)).collect();
        for (n, c) in all.iter_mut().enumerate() {
            let line = ["BLPOP k k j 0", "BZPOPMIN k 0", "XREAD BLOCK 0 STREAMS k 0"][n % 3];
            world.check(c, line, "");
        }
        // The first of each type leave, and one from between.
        for n in [0, 1, 2, 6] {
            world.sim.close(all[n].peer, true);
        }
        world.check(&mut pusher, "RPUSH k a b c", ":3|");
        let mut answer = |world: &mut World, n: usize| world.answer(&mut all[n]);
        assert_eq!(answer(&mut world, 3), "*2|$1|k|$1|a|");
        assert_eq!(answer(&mut world, 9), "*2|$1|k|$1|b|");
        world.check(&mut pusher, "DEL k", ":1|");
        world.check(&mut pusher, "ZADD k 1 a 2 b", ":2|");
        assert_eq!(answer(&mut world, 4), "*3|$1|k|$1|a|$1|1|");
        assert_eq!(answer(&mut world, 7), "*3|$1|k|$1|b|$1|2|");
        world.check(&mut pusher, "XADD k 1-1 f v", "$3|1-1|");
        for n in [5, 8, 11] {
            assert!(answer(&mut world, n).contains("|1-1|"), "{n}");
        }
        assert_eq!(answer(&mut world, 10), "");
    });
}

#[test]
fn commands_behind_wait_too_and_the_time_is_kept() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.send(&c, "BLPOP a 1");
        world.send(&c, "PING");
        assert_eq!(world.answer(&mut c), "");
        world.sim.run_for(Duration::from_millis(900));
        assert_eq!(world.answer(&mut c), "");
        world.sim.run_for(Duration::from_millis(200));
        assert_eq!(world.answer(&mut c), "*-1|+PONG|");
        world.check(&mut c, "BLMOVE a b LEFT LEFT 0.1", "");
        world.sim.run_for(Duration::from_millis(200));
        assert_eq!(world.answer(&mut c), "*-1|");
        world.check(&mut c, "BRPOPLPUSH a b 0.1", "");
        world.sim.run_for(Duration::from_millis(200));
        assert_eq!(world.answer(&mut c), "*-1|");
        world.check(&mut c, "BZPOPMIN a 0.1", "");
        world.sim.run_for(Duration::from_millis(200));
        assert_eq!(world.answer(&mut c), "*-1|");
    });
}

#[test]
fn in_one_pipeline() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        for line in ["SET x 1", "BLPOP a 0", "INCR x", "BLPOP a 0", "INCR x"] {
            world.send(&c, line);
        }
        assert_eq!(world.answer(&mut c), "+OK|");
        world.check(&mut other, "LPUSH a v", ":1|");
        assert_eq!(world.answer(&mut c), "*2|$1|a|$1|v|:2|");
        world.check(&mut other, "LPUSH a w", ":1|");
        assert_eq!(world.answer(&mut c), "*2|$1|a|$1|w|:3|");
    });
}

#[test]
fn a_transaction_serves_when_it_is_over_and_never_waits() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        world.check(&mut c, "BLPOP a 0", "");
        world.check(&mut other, "MULTI", "+OK|");
        world.check(&mut other, "BLPOP nothing 0", "+QUEUED|");
        world.check(&mut other, "BLMOVE nothing b LEFT LEFT 0", "+QUEUED|");
        world.check(&mut other, "LPUSH a 1", "+QUEUED|");
        world.check(&mut other, "LPUSH a 2", "+QUEUED|");
        world.check(&mut other, "EXEC", "*4|*-1|$-1|:1|:2|");
        assert_eq!(world.answer(&mut c), "*2|$1|a|$1|2|");
        world.check(&mut other, "LRANGE a 0 -1", "*1|$1|1|");
    });
}

#[test]
fn clients_are_unblocked_by_others() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        let id = world.ask(&mut c, "CLIENT ID");
        let id = id.trim_matches([':', '|']);
        world.check(&mut other, &format!("CLIENT UNBLOCK {id}"), ":0|");
        world.check(&mut c, "BLPOP a 0", "");
        assert!(
            world
                .ask(&mut other, "INFO clients")
                .contains("blocked_clients:1|")
        );
        world.check(&mut other, &format!("CLIENT UNBLOCK {id}"), ":1|");
        assert_eq!(world.answer(&mut c), "*-1|");
        world.check(&mut c, "BLPOP a 0", "");
        world.check(&mut other, &format!("CLIENT UNBLOCK {id} ERROR"), ":1|");
        assert_eq!(
            world.answer(&mut c),
            "-UNBLOCKED client unblocked via CLIENT UNBLOCK|"
        );
        world.check(&mut c, "PING", "+PONG|");
    });
}

#[test]
fn nothing_is_spent_on_closed_connections() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut gone, mut half, mut killed, mut other) = (
            world.client(),
            world.client_of(1),
            world.client(),
            world.client(),
        );
        for c in [&mut gone, &mut half, &mut killed] {
            world.check(c, "BLPOP a 0", "");
        }
        let list = world.ask(&mut other, "CLIENT LIST");
        assert_eq!(list.matches("flags=b").count(), 3, "{list}");
        world.sim.close(gone.peer, true);
        world.sim.finish(half.peer);
        world.check(&mut other, "CLIENT KILL TYPE normal SKIPME yes", ":1|");
        world.sim.run_for(Duration::from_secs(1));
        assert_eq!(world.sim.state(half.peer), PlainState::Ended);
        world.check(&mut other, "LPUSH a 1", ":1|");
        world.check(&mut other, "LLEN a", ":1|");
    });
}

#[test]
fn all_readers_of_a_stream_are_served_by_one_entry() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut first, mut second) = (world.client(), world.client_of(1));
        let (mut late, mut adder) = (world.client_of(1), world.client());
        world.check(&mut adder, "XADD s 1-1 a b", "$3|1-1|");
        world.check(&mut first, "XREAD BLOCK 0 STREAMS other s $ $", "");
        world.check(
            &mut second,
            "XREAD BLOCK 0 COUNT 1 STREAMS s 1",
            "*1|*2|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|b|",
        );
        world.check(&mut second, "XREAD BLOCK 0 STREAMS s $", "");
        world.check(&mut late, "XREAD BLOCK 0 STREAMS s 7-0", "");
        world.check(&mut adder, "XADD s 2-1 c d", "$3|2-1|");
        let entry = "*1|*2|$1|s|*1|*2|$3|2-1|*2|$1|c|$1|d|";
        assert_eq!(world.answer(&mut first), entry);
        assert_eq!(world.answer(&mut second), entry);
        assert_eq!(
            world.answer(&mut late),
            "",
            "it waits for what comes behind 7-0"
        );
        world.check(&mut adder, "XADD s 7-1 e f", "$3|7-1|");
        assert_eq!(
            world.answer(&mut late),
            "*1|*2|$1|s|*1|*2|$3|7-1|*2|$1|e|$1|f|"
        );
        // A key that became a stream of another kind is of no interest.
        world.check(&mut first, "XREAD BLOCK 0 STREAMS s $", "");
        world.check(&mut adder, "DEL s", ":1|");
        world.check(&mut adder, "RPUSH s x", ":1|");
        assert_eq!(world.answer(&mut first), "");
        world.check(&mut adder, "DEL s", ":1|");
        world.check(&mut adder, "XADD s 9-1 g h", "$3|9-1|");
        assert_eq!(
            world.answer(&mut first),
            "*1|*2|$1|s|*1|*2|$3|9-1|*2|$1|g|$1|h|"
        );
    });
}

#[test]
fn an_entry_goes_to_one_consumer_of_each_group() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut adder = world.client();
        world.check(&mut adder, "XGROUP CREATE s g $ MKSTREAM", "+OK|");
        world.check(&mut adder, "XGROUP CREATE s h $", "+OK|");
        let mut readers = [world.client(), world.client_of(1), world.client_of(1)];
        for (at, of) in ["g a", "g b", "h a"].iter().enumerate() {
            let read = format!("XREADGROUP GROUP {of} BLOCK 0 STREAMS s >");
            world.check(&mut readers[at], &read, "");
        }
        world.check(&mut adder, "XADD s 1-1 x y", "$3|1-1|");
        let entry = |id: &str| format!("*1|*2|$1|s|*1|*2|$3|{id}|*2|$1|x|$1|y|");
        assert_eq!(world.answer(&mut readers[0]), entry("1-1"));
        assert_eq!(world.answer(&mut readers[1]), "");
        assert_eq!(world.answer(&mut readers[2]), entry("1-1"));
        world.check(&mut adder, "XADD s 2-1 x y", "$3|2-1|");
        assert_eq!(world.answer(&mut readers[1]), entry("2-1"));
        let pending = "*4|:2|$3|1-1|$3|2-1|*2|*2|$1|a|$1|1|*2|$1|b|$1|1|";
        world.check(&mut adder, "XPENDING s g", pending);
    });
}

#[test]
fn readers_of_a_group_are_told_that_it_has_gone() {
    on_every_shape(|| {
        let gone =
            "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option|";
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
        for (line, answer, told) in [
            ("XGROUP DESTROY s g", ":1|", gone),
            ("DEL s", ":1|", gone),
            ("RENAME s t", "+OK|", gone),
            ("SET s x", "+OK|", wrong),
            ("FLUSHALL", "+OK|", gone),
        ] {
            let mut world = World::new();
            let (mut reader, mut other) = (world.client(), world.client_of(1));
            world.check(&mut other, "XGROUP CREATE s g $ MKSTREAM", "+OK|");
            world.check(&mut reader, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "");
            world.check(&mut other, line, answer);
            assert_eq!(world.answer(&mut reader), told, "{line}");
        }
    });
}

#[test]
fn what_reads_streams_never_waits_in_a_transaction_or_script() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "XGROUP CREATE s g $ MKSTREAM", "+OK|");
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "XREAD BLOCK 0 STREAMS s $", "+QUEUED|");
        world.check(
            &mut c,
            "XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
            "+QUEUED|",
        );
        world.check(&mut c, "EXEC", "*2|*-1|*-1|");
        let script = "return{redis.call('xread','block',0,'streams','s','$')}";
        world.check(&mut c, &format!("EVAL {script} 1 s"), "*1|$-1|");
        world.check(&mut c, "XREAD BLOCK 100 STREAMS s $", "");
        world.sim.run_for(Duration::from_millis(200));
        assert_eq!(world.answer(&mut c), "*-1|");
    });
}
