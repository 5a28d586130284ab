//! Sessions: what clients say first, transactions, publish and subscribe, limits. All on the
//! simulated network.

use crate::common;
use std::time::Duration;

use crate::common::{Client, World, on_every_shape};
use tidewire::sim::PlainState;
use tidewire_kv::service::Settings;

fn with_password() -> Settings {
    Settings {
        password: Some("secret".to_string()),
        ..Settings::default()
    }
}

#[test]
fn a_stranger_may_only_log_in() {
    on_every_shape(|| {
        let mut world = World::with(with_password());
        let mut c = world.client();
        world.check(&mut c, "GET k", "-NOAUTH Authentication required.|");
        world.check(&mut c, "PING", "-NOAUTH Authentication required.|");
        let wrong = "-WRONGPASS invalid username-password pair or user is disabled.|";
        world.check(&mut c, "AUTH nonsense", wrong);
        world.check(&mut c, "AUTH somebody secret", wrong);
        world.check(&mut c, "HELLO 3 AUTH default wrong", wrong);
        assert!(
            world
                .ask(&mut c, "HELLO 3")
                .starts_with("-NOAUTH HELLO must be")
        );
        world.check(&mut c, "AUTH default secret", "+OK|");
        world.check(&mut c, "PING", "+PONG|");
        world.check(&mut c, "RESET", "+RESET|");
        world.check(&mut c, "PING", "-NOAUTH Authentication required.|");
        let hello = world.ask(&mut c, "HELLO 3 AUTH default secret SETNAME me");
        assert!(
            hello.starts_with("%7|$6|server|$5|redis|$7|version|"),
            "{hello}"
        );
        assert!(hello.contains("$5|proto|:3|"), "{hello}");
        world.check(&mut c, "CLIENT GETNAME", "$2|me|");
        let mut big = world.client();
        world.sim.send(big.peer, b"*1\r\n$16385\r\n");
        let text = world.answer(&mut big);
        assert_eq!(text, "-ERR Protocol error: unauthenticated bulk length|");
    });
}

#[test]
fn errors_are_as_of_redis() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(
            &mut c,
            "foo a b",
            "-ERR unknown command 'foo', with args beginning with: 'a' 'b' |",
        );
        world.check(
            &mut c,
            "GeT",
            "-ERR wrong number of arguments for 'get' command|",
        );
        world.check(
            &mut c,
            "CLIENT nope",
            "-ERR unknown subcommand 'nope'. Try CLIENT HELP.|",
        );
        world.check(
            &mut c,
            "CLIENT SETNAME",
            "-ERR wrong number of arguments for 'client|setname' command|",
        );
        world.check(&mut c, "SELECT 16", "-ERR DB index is out of range|");
        world.check(
            &mut c,
            "SELECT x",
            "-ERR value is not an integer or out of range|",
        );
        world.check(&mut c, "HELLO 4", "-NOPROTO unsupported protocol version|");
        world.check(
            &mut c,
            "CONFIG SET nope 1",
            "-ERR Unknown option or number of arguments for CONFIG SET - 'nope'|",
        );
        let stats = world.ask(&mut c, "INFO errorstats");
        assert!(stats.contains("errorstat_NOPROTO:count=1|"), "{stats}");
        assert!(stats.contains("errorstat_ERR:count=7|"), "{stats}");
    });
}

#[test]
fn a_protocol_error_is_answered_and_ends_the_connection() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.sim.send(
            c.peer,
            b"PING\r\n*1\r\n$4\r\nPING\r\n*1\r\n!4\r\nPING\r\nPING\r\n",
        );
        let text = world.answer(&mut c);
        assert_eq!(
            text,
            "+PONG|+PONG|-ERR Protocol error: expected '$', got '!'|"
        );
        assert_eq!(world.sim.state(c.peer), PlainState::Ended);
    });
}

#[test]
fn half_a_command_then_silence_is_cut_after_a_while_and_idling_is_not() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut half, mut idle) = (world.client(), world.client());
        world.check(&mut idle, "PING", "+PONG|");
        world.sim.send(half.peer, b"*2\r\n$3\r\nGET\r\n$100\r\nabc");
        world.sim.run_for(Duration::from_secs(59));
        assert_eq!(world.sim.state(half.peer), PlainState::Open);
        world.sim.run_for(Duration::from_secs(120));
        assert_eq!(world.sim.state(half.peer), PlainState::Ended);
        world.check(&mut idle, "PING", "+PONG|");
        world.check(&mut idle, "CONFIG SET timeout 100", "+OK|");
        world.sim.run_for(Duration::from_secs(200));
        assert_eq!(world.sim.state(idle.peer), PlainState::Ended);
        assert_eq!(world.answer(&mut half), "");
    });
}

#[test]
fn transactions_queue_run_and_refuse() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        world.check(&mut c, "EXEC", "-ERR EXEC without MULTI|");
        world.check(&mut c, "DISCARD", "-ERR DISCARD without MULTI|");
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "MULTI", "-ERR MULTI calls can not be nested|");
        world.check(&mut c, "SET k 1", "+QUEUED|");
        world.check(&mut c, "PING", "+QUEUED|");
        world.check(&mut other, "GET k", "$-1|");
        world.check(&mut c, "WATCH k", "-ERR WATCH inside MULTI is not allowed|");
        // As in Redis these two did not spoil it.
        world.check(&mut c, "EXEC", "*2|+OK|+PONG|");
        world.check(&mut c, "MULTI", "+OK|");
        world.check(
            &mut c,
            "GET",
            "-ERR wrong number of arguments for 'get' command|",
        );
        world.check(&mut c, "SET k 2", "+QUEUED|");
        world.check(
            &mut c,
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.|",
        );
        world.check(&mut c, "GET k", "$1|1|");
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "INCR k", "+QUEUED|");
        world.check(&mut c, "LPUSH k x", "+QUEUED|");
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
        world.check(&mut c, "EXEC", &format!("*2|:2|{wrong}"));
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "SET k 9", "+QUEUED|");
        world.check(&mut c, "DISCARD", "+OK|");
        world.check(&mut c, "GET k", "$1|2|");
        for refused in ["SAVE", "SHUTDOWN NOSAVE"] {
            world.check(&mut c, "MULTI", "+OK|");
            let why = "-ERR Command not allowed inside a transaction|";
            world.check(&mut c, refused, why);
            let why = "-EXECABORT Transaction discarded because of previous errors.|";
            world.check(&mut c, "EXEC", why);
        }
    });
}

#[test]
fn a_watched_key_that_changes_stops_the_transaction() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        let attempt = |world: &mut World, c: &mut common::Client| {
            world.check(c, "MULTI", "+OK|");
            world.check(c, "SET out 1", "+QUEUED|");
            world.ask(c, "EXEC")
        };
        world.check(&mut c, "WATCH a b", "+OK|");
        world.check(&mut other, "SET b 1", "+OK|");
        assert_eq!(attempt(&mut world, &mut c), "*-1|");
        assert_eq!(attempt(&mut world, &mut c), "*1|+OK|");
        world.check(&mut c, "WATCH a", "+OK|");
        world.check(&mut other, "DEL a", ":0|");
        assert_eq!(attempt(&mut world, &mut c), "*1|+OK|");
        world.check(&mut c, "WATCH b", "+OK|");
        world.check(&mut other, "DEL b", ":1|");
        world.check(&mut c, "UNWATCH", "+OK|");
        assert_eq!(attempt(&mut world, &mut c), "*1|+OK|");
        world.check(&mut c, "WATCH b", "+OK|");
        world.check(&mut other, "FLUSHALL", "+OK|");
        // The key was not there: nothing about it has changed.
        assert_eq!(attempt(&mut world, &mut c), "*1|+OK|");
        assert!(world.ask(&mut c, "HELLO 3").starts_with("%7|"));
        world.check(&mut c, "WATCH b", "+OK|");
        world.check(&mut c, "SET b 3", "+OK|");
        assert_eq!(attempt(&mut world, &mut c), "_|");
    });
}

#[test]
fn messages_reach_subscribers_on_every_loop() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut near, mut far, mut third) =
            (world.client(), world.client_of(1), world.client_of(1));
        let mut publisher = world.client();
        world.check(
            &mut near,
            "SUBSCRIBE a b",
            "*3|$9|subscribe|$1|a|:1|*3|$9|subscribe|$1|b|:2|",
        );
        world.check(&mut far, "PSUBSCRIBE a*", "*3|$10|psubscribe|$2|a*|:1|");
        let _ = world.ask(&mut third, "HELLO 3");
        world.check(&mut third, "SUBSCRIBE a", ">3|$9|subscribe|$1|a|:1|");
        world.check(&mut third, "PING", "+PONG|");
        world.check(&mut near, "PING x", "*2|$4|pong|$1|x|");
        world.check(
        &mut near,
        "GET k",
        "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context|",
    );
        world.check(&mut publisher, "PUBLISH a hello", ":3|");
        assert_eq!(world.answer(&mut near), "*3|$7|message|$1|a|$5|hello|");
        assert_eq!(
            world.answer(&mut far),
            "*4|$8|pmessage|$2|a*|$1|a|$5|hello|"
        );
        assert_eq!(world.answer(&mut third), ">3|$7|message|$1|a|$5|hello|");
        world.check(
            &mut publisher,
            "PUBSUB NUMSUB a b c",
            "*6|$1|a|:2|$1|b|:1|$1|c|:0|",
        );
        // Flat in RESP3 too, and not a map.
        let mut resp3 = world.client();
        let _ = world.ask(&mut resp3, "HELLO 3");
        world.check(&mut resp3, "PUBSUB NUMSUB a c", "*4|$1|a|:2|$1|c|:0|");
        world.check(&mut resp3, "PUBSUB SHARDNUMSUB a", "*2|$1|a|:0|");
        world.check(&mut resp3, "COMMAND INFO nope", "*1|_|");
        world.check(&mut publisher, "COMMAND INFO nope", "*1|$-1|");
        world.check(&mut publisher, "PUBSUB CHANNELS b", "*1|$1|b|");
        world.check(&mut publisher, "PUBSUB NUMPAT", ":1|");
        world.check(
            &mut near,
            "UNSUBSCRIBE",
            "*3|$11|unsubscribe|$1|a|:1|*3|$11|unsubscribe|$1|b|:0|",
        );
        world.check(&mut near, "UNSUBSCRIBE", "*3|$11|unsubscribe|$-1|:0|");
        world.check(&mut near, "GET k", "$-1|");
        world.sim.close(far.peer, false);
        world.sim.run_for(Duration::from_secs(1));
        world.check(&mut publisher, "PUBLISH a again", ":1|");
        world.check(&mut publisher, "PUBSUB NUMPAT", ":0|");
        world.check(&mut publisher, "SPUBLISH a x", ":0|");
    });
}

#[test]
fn a_subscriber_that_takes_nothing_is_cut_and_counted() {
    on_every_shape(|| {
        let mut world = World::with(Settings {
            subscriber_output: 100_000,
            ..Settings::default()
        });
        let (mut stuck, mut well, mut publisher) =
            (world.client(), world.client_of(1), world.client());
        for c in [&mut stuck, &mut well] {
            world.check(c, "SUBSCRIBE a", "*3|$9|subscribe|$1|a|:1|");
        }
        world.sim.reading(stuck.peer, false);
        let payload = "x".repeat(10_000);
        for _ in 0..200 {
            world.send(&publisher, &format!("PUBLISH a {payload}"));
            let _ = world.answer(&mut publisher);
        }
        assert_eq!(world.service.counters().slow_subscribers, 1);
        let messages = world.answer(&mut well).matches("message").count();
        assert_eq!(messages, 200);
        world.check(&mut publisher, "PUBLISH a x", ":1|");
    });
}

#[test]
fn a_client_that_reads_nothing_is_paced_and_cut_at_last() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client());
        let value = "v".repeat(50_000);
        world.check(&mut other, &format!("SET k {value}"), "+OK|");
        world.sim.reading(c.peer, false);
        world.check(&mut c, "PING", "");
        for _ in 0..2000 {
            world.send(&c, "GET k");
        }
        world.sim.run_for(Duration::from_secs(1));
        let list = world.ask(&mut other, "CLIENT LIST");
        let queued = list
            .split("omem=")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        let queued: u64 = queued.parse().unwrap();
        assert!(queued < 1_000_000, "{queued}");
        world.sim.run_for(Duration::from_secs(200));
        world.sim.reading(c.peer, true);
        let _ = world.answer(&mut c);
        assert!(matches!(world.sim.state(c.peer), PlainState::Failed(_)));
        world.check(&mut other, "PING", "+PONG|");
    });
}

#[test]
fn clients_are_listed_killed_and_silenced() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut a, mut b) = (world.client(), world.client_of(1));
        world.check(&mut a, "CLIENT ID", ":1|");
        world.check(&mut b, "CLIENT SETNAME bob", "+OK|");
        world.check(&mut b, "CLIENT SETINFO LIB-NAME lib", "+OK|");
        let list = world.ask(&mut a, "CLIENT LIST");
        assert!(
            list.contains("name=bob") && list.contains("lib-name=lib"),
            "{list}"
        );
        assert!(list.contains("cmd=client|list"), "{list}");
        world.check(&mut a, "CLIENT REPLY OFF", "");
        world.check(&mut a, "PING", "");
        world.check(&mut a, "CLIENT REPLY ON", "+OK|");
        world.check(&mut a, "CLIENT REPLY SKIP", "");
        world.check(&mut a, "PING", "");
        world.check(&mut a, "PING", "+PONG|");
        world.check(&mut a, "CLIENT KILL ID 2", ":1|");
        world.sim.run_for(Duration::from_secs(1));
        assert_eq!(world.sim.state(b.peer), PlainState::Ended);
        world.check(&mut a, "CLIENT KILL 1.2.3.4:5", "-ERR No such client|");
        world.check(&mut a, "QUIT", "+OK|");
        assert_eq!(world.sim.state(a.peer), PlainState::Ended);
        world.sim.close(a.peer, false);
        world.sim.close(b.peer, false);
        world.sim.run_for(Duration::from_secs(10));
        assert_eq!(world.service.clients(), 0);
    });
}

#[test]
fn a_pause_holds_commands_back() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut a, mut b) = (world.client(), world.client_of(1));
        world.check(&mut a, "CLIENT PAUSE 10000 WRITE", "+OK|");
        world.check(&mut b, "GET k", "$-1|");
        world.check(&mut b, "SET k v", "");
        world.check(&mut a, "CLIENT UNPAUSE", "+OK|");
        assert_eq!(world.answer(&mut b), "+OK|");
        world.check(&mut a, "CLIENT PAUSE 1000", "+OK|");
        world.check(&mut b, "GET k", "");
        world.sim.run_for(Duration::from_secs(1));
        assert_eq!(world.answer(&mut b), "$1|v|");
    });
}

#[test]
fn what_tools_ask_on_connect_is_answered() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        let info = world.ask(&mut c, "INFO");
        for field in [
            "redis_version:7.2.4|",
            "loading:0|",
            "role:master|",
            "cluster_enabled:0|",
            "connected_clients:1|",
        ] {
            assert!(info.contains(field), "{field} in {info}");
        }
        world.check(&mut c, "CONFIG GET save", "*2|$4|save|$0||");
        world.check(&mut c, "CONFIG GET appendonly", "*2|$10|appendonly|$2|no|");
        let all = world.ask(&mut c, "COMMAND");
        let count = format!(":{}|", &all[1..all.find('|').unwrap()]);
        world.check(&mut c, "COMMAND COUNT", &count);
        world.check(&mut c, "COMMAND GETKEYS MSET a 1 b 2", "*2|$1|a|$1|b|");
        world.check(&mut c, "ECHO hi", "$2|hi|");
        world.check(&mut c, "SELECT 15", "+OK|");
        world.check(&mut c, "SET k v", "+OK|");
        world.check(&mut c, "SELECT 0", "+OK|");
        world.check(&mut c, "GET k", "$-1|");
        assert!(
            world
                .ask(&mut c, "INFO keyspace")
                .contains("db15:keys=1,expires=0")
        );
        assert!(
            world
                .ask(&mut c, "INFO commandstats")
                .contains("cmdstat_select:calls=2")
        );
    });
}

#[test]
fn a_client_that_was_killed_is_not_listed_any_more() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        let id = world.ask(&mut other, "CLIENT ID");
        world.send(
            &c,
            &format!("CLIENT KILL ID {}", id.trim_matches([':', '|'])),
        );
        world.send(&c, "CLIENT LIST");
        let said = world.answer(&mut c);
        assert!(said.starts_with(":1|"), "{said}");
        assert_eq!(said.matches(" addr=").count(), 1, "{said}");
    });
}

#[test]
fn what_a_leaving_subscriber_had_ends_in_turns() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client());
        for at in (0..5_000).step_by(500) {
            let names: Vec<String> = (at..at + 500).map(|n| format!("channel:{n}")).collect();
            world.ask(&mut c, &format!("SUBSCRIBE {}", names.join(" ")));
        }
        world.ask(&mut c, "PSUBSCRIBE channel:*");
        world.check(&mut other, "PUBLISH channel:4999 hello", ":2|");
        world.sim.close(c.peer, true);
        // More turns than one, between which others are served.
        let mut asked = 0;
        while world.ask(&mut other, "PUBSUB CHANNELS") != "*0|" {
            asked += 1;
            assert!(asked < 20);
        }
        world.check(&mut other, "PUBLISH channel:4999 hello", ":0|");
        world.check(&mut other, "PUBSUB NUMPAT", ":0|");
    });
}

#[test]
fn the_patterns_of_a_client_are_counted_and_bounded() {
    let mut world = World::new();
    let w = &mut world;
    let (mut c, mut other) = (w.client(), w.client());
    w.check(&mut other, "CONFIG SET pubsub-patterns-limit 100kb", "+OK|");
    let memory = |w: &mut World, other: &mut Client| -> usize {
        let list = w.ask(other, "CLIENT LIST TYPE pubsub");
        let of = list.split("tot-mem=").nth(1).unwrap_or("0 ");
        of.split(' ').next().unwrap().parse().unwrap()
    };
    w.ask(&mut c, "PSUBSCRIBE first*");
    let one = memory(w, &mut other);
    assert!(one > 1000, "{one}");
    let long = format!("PSUBSCRIBE {}*", "x".repeat(10_000));
    w.ask(&mut c, &long);
    assert!(memory(w, &mut other) > one + 30_000);
    // Neither many patterns nor long ones; all of a call or none.
    let many: String = (0..40).map(|n| format!(" p{n}*")).collect();
    let refused = "-ERR the patterns of a client take at most 102400 bytes";
    for line in [format!("PSUBSCRIBE{many}"), long.replace('*', "y*")] {
        let answer = w.ask(&mut c, &line);
        assert!(answer.starts_with(refused), "{answer}");
    }
    w.check(&mut other, "PUBSUB NUMPAT", ":2|");
    assert_eq!(w.service.counters().refused_patterns, 2);
    // What it has already costs nothing more, and what it ends makes room.
    w.ask(&mut c, &long);
    w.ask(&mut c, &long.replace("PSUB", "PUNSUB"));
    // What was answered last counts, too.
    assert!(memory(w, &mut other) < one + 15_000);
    assert!(!w.ask(&mut c, &format!("PSUBSCRIBE{many}")).contains("ERR"));
    w.check(&mut other, "PUBSUB NUMPAT", ":41|");
}

#[test]
fn of_many_patterns_the_matching_ones_hear() {
    on_every_shape(|| {
        let mut world = World::new();
        let w = &mut world;
        let (mut c, mut other) = (w.client(), w.client_of(1));
        w.check(&mut other, "CONFIG SET notify-keyspace-events KA", "+OK|");
        for n in 0..100 {
            w.ask(&mut c, &format!("PSUBSCRIBE *:k{n} n{n}:*"));
        }
        w.check(&mut other, "SET k42 v", "+OK|");
        let heard = "*4|$8|pmessage|$5|*:k42|$18|__keyspace@0__:k42|$3|set|";
        assert_eq!(w.answer(&mut c), heard);
        w.check(&mut other, "SET x42 v", "+OK|");
        assert_eq!(w.answer(&mut c), "");
        w.check(&mut other, "PUBLISH n7:k8 m", ":2|");
        let heard = w.answer(&mut c);
        assert_eq!(heard.matches("|$5|n7:k8|$1|m|").count(), 2, "{heard}");
    });
}

#[test]
fn an_inline_command_that_holds_its_connection_runs_once() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world
            .sim
            .send(c.peer, b"DEBUG SLEEP 0.01\r\nINCR n\r\nINCR n\r\n");
        world.sim.run_for(Duration::from_secs(1));
        assert_eq!(world.answer(&mut c), "+OK|:1|:2|");
        assert_eq!(world.service.counters().commands, 3);
    });
}

#[test]
fn a_client_without_replies_gets_none_for_what_waited_either() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        world.check(&mut c, "CLIENT REPLY OFF", "");
        world.check(&mut c, "BLPOP list 0", "");
        world.check(&mut other, "RPUSH list v", ":1|");
        assert_eq!(world.answer(&mut c), "");
        // The wait's time is over.
        world.check(&mut c, "BLPOP list 0.001", "");
        world.check(&mut c, "CLIENT REPLY ON", "+OK|");
        world.check(&mut other, "LLEN list", ":0|");
        // The one that is skipped is the one that waited.
        world.check(&mut c, "CLIENT REPLY SKIP", "");
        world.check(&mut c, "BLPOP list 0", "");
        world.check(&mut other, "RPUSH list v", ":1|");
        assert_eq!(world.answer(&mut c), "");
        world.check(&mut c, "PING", "+PONG|");
    });
}

#[test]
fn the_output_limit_is_of_one_reply_and_spares_pipelines() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        let limit = "CONFIG SET client-output-buffer-limit";
        world.send(&c, "SET k 0123456789");
        world.send(&c, &format!("SETRANGE big 20000 {}", "x".repeat(20_000)));
        world.answer(&mut c);
        // In one argument.
        let words = ["CONFIG", "SET", &limit[11..], "normal 16384 0 0"];
        let mut bytes = b"*4\r\n".to_vec();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        world.sim.send(c.peer, &bytes);
        assert_eq!(world.answer(&mut c), "+OK|");
        let many = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(5_000);
        world.sim.send(c.peer, &many);
        world.sim.run_for(Duration::from_secs(1));
        assert_eq!(world.answer(&mut c).matches("0123456789").count(), 5_000);
        // A client is not cut for replies that it has switched off.
        world.check(&mut c, "CLIENT REPLY SKIP", "");
        world.check(&mut c, "GET big", "");
        world.check(&mut c, "PING", "+PONG|");
        world.check(&mut c, "GET big", "");
        assert_ne!(world.sim.state(c.peer), PlainState::Open);
        assert_eq!(world.service.counters().large_replies, 1);
    });
}
