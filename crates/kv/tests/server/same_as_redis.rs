//! What users have seen to differ from Redis, one test each, on the simulated network.

use std::time::Duration;

use crate::common::{Client, World, on_every_shape};

impl World {
    /// Sends raw arguments as an array and shows the bytes that come back.
    fn ask_raw(&mut self, client: &mut Client, args: &[&[u8]]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
        let before = self.sim.received(client.peer).len();
        self.sim.send(client.peer, &bytes);
        let _ = self.answer(client);
        self.sim.received(client.peer)[before..].to_vec()
    }
}

#[test]
fn a_field_of_a_small_hash_keeps_its_place() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "HSET h a 1 b 2 c 3", ":3|");
        world.check(&mut c, "HSET h a 9", ":0|");
        world.check(&mut c, "HINCRBY h b 40", ":42|");
        world.check(&mut c, "HKEYS h", "*3|$1|a|$1|b|$1|c|");
        world.check(&mut c, "HVALS h", "*3|$1|9|$2|42|$1|3|");
    });
}

#[test]
fn sums_keep_their_digits() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "INCRBYFLOAT a 0.1", "$3|0.1|");
        world.check(&mut c, "INCRBYFLOAT a 0.2", "$3|0.3|");
        world.check(&mut c, "SET b 9007199254740993", "+OK|");
        world.check(&mut c, "INCRBYFLOAT b 2", "$16|9007199254740995|");
        world.check(&mut c, "HSET h f 9007199254740993", ":1|");
        world.check(&mut c, "HINCRBYFLOAT h f -1", "$16|9007199254740992|");
        world.check(
            &mut c,
            "INCRBYFLOAT a inf",
            "-ERR increment would produce NaN or Infinity|",
        );
    });
}

#[test]
fn what_cannot_be_run_ends_a_transaction() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
        for (line, error) in [
            (
                "CLIENT nope",
                "-ERR unknown subcommand 'nope'. Try CLIENT HELP.|",
            ),
            (
                "CLIENT SETNAME",
                "-ERR wrong number of arguments for 'client|setname' command|",
            ),
            (
                "OBJECT nope k",
                "-ERR unknown subcommand 'nope'. Try OBJECT HELP.|",
            ),
            (
                "MEMORY USAGE",
                "-ERR wrong number of arguments for 'memory|usage' command|",
            ),
            (
                "CONFIG nope",
                "-ERR unknown subcommand 'nope'. Try CONFIG HELP.|",
            ),
            (
                "PUBSUB nope",
                "-ERR unknown subcommand 'nope'. Try PUBSUB HELP.|",
            ),
        ] {
            world.check(&mut c, "MULTI", "+OK|");
            world.check(&mut c, line, error);
            world.check(&mut c, "SET k v", "+QUEUED|");
            world.check(&mut c, "EXEC", aborted);
        }
        world.check(&mut c, "EXISTS k", ":0|");
    });
}

#[test]
fn auth_and_hello_are_queued() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "AUTH default x", "+QUEUED|");
        world.check(&mut c, "HELLO 3", "+QUEUED|");
        world.check(&mut c, "HGETALL none", "+QUEUED|");
        let all = world.ask(&mut c, "EXEC");
        assert!(all.starts_with("*3|+OK|%7|$6|server|"), "{all}");
        assert!(all.ends_with("%0|"), "{all}");
    });
}

#[test]
fn scores_are_read_as_c_reads_them() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "ZADD z 0x10 a 0x1p-1 b", ":2|");
        world.check(&mut c, "ZSCORE z a", "$2|16|");
        world.check(&mut c, "ZSCORE z b", "$3|0.5|");
        world.check(
            &mut c,
            "ZADD z 1e-400 c",
            "-ERR value is not a valid float|",
        );
        let empty = world.ask_raw(&mut c, &[b"ZADD", b"z", b"", b"c"]);
        assert_eq!(empty, b"-ERR value is not a valid float\r\n");
        for bound in [&b""[..], b"(", b" 0", b"0x0"] {
            let found = world.ask_raw(&mut c, &[b"ZCOUNT", b"z", bound, b"1e999"]);
            assert_eq!(found, b":2\r\n", "{bound:?}");
        }
    });
}

#[test]
fn errors_repeat_the_bytes_that_were_sent() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        let got = world.ask_raw(&mut c, &[b"F\xff\xfe", b"a\xffb", b"\r\n\0x"]);
        let text =
            b"-ERR unknown command 'F\xff\xfe', with args beginning with: 'a\xffb' '  ' \r\n";
        assert_eq!(got, text);
        let got = world.ask_raw(&mut c, &[b"CLIENT", b"\xff"]);
        assert_eq!(got, b"-ERR unknown subcommand '\xff'. Try CLIENT HELP.\r\n");
        let got = world.ask_raw(&mut c, &[b"EXPIRE", b"k", b"1", b"\xff"]);
        assert_eq!(got, b"-ERR Unsupported option \xff\r\n");
        let got = world.ask_raw(&mut c, &[b"HELLO", b"3", b"\xfe"]);
        assert_eq!(got, b"-ERR Syntax error in HELLO option '\xfe'\r\n");
        let got = world.ask_raw(&mut c, &[b"CONFIG", b"SET", b"\xfe", b"1"]);
        let text = b"-ERR Unknown option or number of arguments for CONFIG SET - '\xfe'\r\n";
        assert_eq!(got, text);
    });
}

#[test]
fn two_stars_do_not_match_nothing() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        assert_eq!(world.ask_raw(&mut c, &[b"SET", b"", b"v"]), b"+OK\r\n");
        world.check(&mut c, "KEYS **", "*0|");
        world.check(&mut c, "KEYS *", "*1|$0||");
        world.check(&mut c, "SCAN 0 COUNT 1000 MATCH **", "*2|$1|0|*0|");
        world.check(&mut c, "SCAN 0 COUNT 1000 MATCH *", "*2|$1|0|*1|$0||");
    });
}

#[test]
fn scan_refuses_types_that_there_are_not_and_removes_what_has_expired() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "SCAN 0 TYPE foo", "-ERR unknown type name 'foo'|");
        for n in 0..20 {
            world.check(&mut c, &format!("SET {n} v PX 900"), "+OK|");
        }
        world.check(&mut c, "SET stays v", "+OK|");
        world.check(&mut c, "DEBUG SET-ACTIVE-EXPIRE 0", "+OK|");
        world.sim.run_for(Duration::from_secs(1));
        world.check(&mut c, "DBSIZE", ":21|");
        world.check(&mut c, "SCAN 0 COUNT 1000", "*2|$1|0|*1|$5|stays|");
        world.check(&mut c, "DBSIZE", ":1|");
        let stats = world.ask(&mut c, "INFO stats");
        assert!(stats.contains("expired_keys:20|"), "{stats}");
    });
}

#[test]
fn a_key_that_had_expired_before_it_was_watched_does_not_matter() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        world.check(&mut c, "SET k v PX 5", "+OK|");
        world.sim.run_for(Duration::from_millis(100));
        world.check(&mut c, "WATCH k", "+OK|");
        // The command that comes across the key removes it.
        world.check(&mut other, "GET k", "$-1|");
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "PING", "+QUEUED|");
        world.check(&mut c, "EXEC", "*1|+PONG|");
        // A watched key whose time comes later does.
        world.check(&mut c, "SET k v PX 50", "+OK|");
        world.check(&mut c, "WATCH k", "+OK|");
        world.sim.run_for(Duration::from_millis(100));
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "EXEC", "*-1|");
    });
}

#[test]
fn to_ask_about_a_key_is_not_to_use_it() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "SET k v", "+OK|");
        world.sim.run_for(Duration::from_millis(10_500));
        world.check(&mut c, "TTL k", ":-1|");
        world.check(&mut c, "TYPE k", "+string|");
        world.check(&mut c, "EXISTS k k", ":2|");
        world.check(&mut c, "OBJECT IDLETIME k", ":10|");
        world.check(&mut c, "GET k", "$1|v|");
        world.check(&mut c, "OBJECT IDLETIME k", ":0|");
        world.check(&mut c, "TTL none", ":-2|");
        let stats = world.ask(&mut c, "INFO stats");
        assert!(
            stats.contains("keyspace_hits:5|keyspace_misses:1|"),
            "{stats}"
        );
    });
}

#[test]
fn a_pause_of_all_holds_everything() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut other = world.client_of(1);
        for line in [
            "PING",
            "HELLO 2",
            "CLIENT ID",
            "CLIENT UNPAUSE",
            "MULTI",
            "WATCH k",
            "GET k",
            "SUBSCRIBE a",
            "INFO server",
            "RESET",
        ] {
            let mut held = world.client();
            world.check(&mut other, "CLIENT PAUSE 200", "+OK|");
            world.check(&mut held, line, "");
            world.sim.run_for(Duration::from_millis(300));
            assert_ne!(world.answer(&mut held), "", "{line}");
        }
        // Errors are told at once, and so is what only writers have to wait for.
        let mut c = world.client();
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut other, "CLIENT PAUSE 200 WRITE", "+OK|");
        world.check(&mut c, "SET k v", "+QUEUED|");
        world.check(&mut c, "EXEC", "");
        world.check(
            &mut other,
            "CLIENT nope",
            "-ERR unknown subcommand 'nope'. Try CLIENT HELP.|",
        );
        world.check(&mut other, "CLIENT UNPAUSE", "+OK|");
        assert_eq!(world.answer(&mut c), "*1|+OK|");
    });
}

#[test]
fn confirmations_are_heard_when_replies_are_not() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "CLIENT REPLY OFF", "");
        world.check(&mut c, "SUBSCRIBE a", "*3|$9|subscribe|$1|a|:1|");
        world.check(&mut c, "PING", "");
        world.check(&mut c, "UNSUBSCRIBE a", "*3|$11|unsubscribe|$1|a|:0|");
        let mut c = world.client();
        world.check(&mut c, "CLIENT REPLY SKIP", "");
        world.check(&mut c, "SUBSCRIBE a", "*3|$9|subscribe|$1|a|:1|");
        world.check(&mut c, "PING", "*2|$4|pong|$0||");
    });
}

#[test]
fn the_slow_log_has_commands_that_waited() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        world.check(&mut other, "CONFIG SET slowlog-log-slower-than 0", "+OK|");
        world.check(&mut other, "SLOWLOG RESET", "+OK|");
        let is_there = |world: &mut World, other: &mut Client| {
            let log = world.ask(other, "SLOWLOG GET 100");
            log.contains("*3|$5|BLPOP|$1|q|$")
        };
        let _ = world.ask(&mut c, "AUTH default my-password");
        assert!(
            !world
                .ask(&mut other, "SLOWLOG GET 100")
                .contains("my-password")
        );
        world.check(&mut c, "BLPOP q 5", "");
        assert!(!is_there(&mut world, &mut other));
        world.check(&mut other, "RPUSH q x", ":1|");
        assert_eq!(world.answer(&mut c), "*2|$1|q|$1|x|");
        assert!(is_there(&mut world, &mut other));
        world.check(&mut other, "SLOWLOG RESET", "+OK|");
        world.check(&mut c, "BLPOP q 0.1", "");
        world.sim.run_for(Duration::from_millis(200));
        assert_eq!(world.answer(&mut c), "*-1|");
        assert!(is_there(&mut world, &mut other));
    });
}

#[test]
fn the_keys_of_sort_are_told() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        for (line, expected) in [
            ("SORT k BY x", "*1|$1|k|"),
            ("SORT k BY w* GET # LIMIT 0 1 STORE d", "*2|$1|k|$1|d|"),
            ("SORT k STORE a STORE d", "*2|$1|k|$1|d|"),
            ("SORT_RO k BY x", "*1|$1|k|"),
            ("ZUNIONSTORE d 2 a b", "*3|$1|d|$1|a|$1|b|"),
        ] {
            world.check(&mut c, &format!("COMMAND GETKEYS {line}"), expected);
        }
        let info = world.ask(&mut c, "COMMAND INFO sort");
        assert!(info.contains("+movablekeys|:1|:1|:1|"), "{info}");
        assert!(
            info.contains("$12|begin_search|*4|$4|type|$5|index|"),
            "{info}"
        );
        assert!(info.contains("$4|type|$7|unknown|"), "{info}");
        let info = world.ask(&mut c, "COMMAND INFO mset");
        assert!(
            info.contains("$7|lastkey|:-1|$7|keystep|:2|$5|limit|:0|"),
            "{info}"
        );
    });
}

#[test]
fn bits_are_counted_from_a_start_on() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "SET k ab", "+OK|");
        world.check(&mut c, "BITCOUNT k 1", ":3|");
        world.check(
            &mut c,
            "BITCOUNT none x",
            "-ERR value is not an integer or out of range|",
        );
    });
}

#[test]
fn limits_of_small_forms_are_settings() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        for (setting, lines, encoding) in [
            (
                "hash-max-listpack-entries 2",
                &["HSET k a 1 b 2"][..],
                "listpack",
            ),
            (
                "hash-max-listpack-entries 2",
                &["HSET k a 1 b 2 c 3"],
                "hashtable",
            ),
            ("hash-max-listpack-value 3", &["HSET k a 1234"], "hashtable"),
            ("list-max-listpack-size 2", &["RPUSH k a b"], "listpack"),
            (
                "list-max-listpack-size 2",
                &["RPUSH k a", "LPUSH k b c"],
                "quicklist",
            ),
            (
                "list-max-listpack-size 2",
                &["RPUSH k a b c", "LTRIM k 0 0"],
                "listpack",
            ),
            ("set-max-intset-entries 2", &["SADD k 1 2"], "intset"),
            (
                "set-max-intset-entries 2",
                &["SADD k 1", "SADD k 2", "SADD k 3"],
                "hashtable",
            ),
            ("set-max-listpack-entries 2", &["SADD k 1 a"], "listpack"),
            ("set-max-listpack-entries 2", &["SADD k 1 a b"], "hashtable"),
            ("set-max-listpack-value 3", &["SADD k abcd"], "hashtable"),
            (
                "zset-max-listpack-entries 2",
                &["ZADD k 1 a 2 b"],
                "listpack",
            ),
            (
                "zset-max-listpack-entries 2",
                &["ZADD k 1 a 2 b 3 c"],
                "skiplist",
            ),
            ("zset-max-ziplist-value 3", &["ZADD k 1 abcd"], "skiplist"),
        ] {
            world.check(&mut c, &format!("CONFIG SET {setting}"), "+OK|");
            for line in lines {
                world.ask(&mut c, line);
            }
            let expected = format!("${}|{encoding}|", encoding.len());
            world.check(&mut c, "OBJECT ENCODING k", &expected);
            world.check(&mut c, "DEL k", ":1|");
            world.check(&mut c, "CONFIG SET set-max-intset-entries 512", "+OK|");
        }
    });
}

#[test]
fn tuning_names_are_taken_and_told() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        for (name, value, got) in [
            ("hz", "100", "100"),
            ("hash-max-listpack-entries", "64", "64"),
            ("list-max-listpack-size", "-1", "-1"),
            ("list-compress-depth", "2", "2"),
            ("zset-max-listpack-value", "32", "32"),
            ("notify-keyspace-events", "KEA", "AKE"),
            ("lazyfree-lazy-user-del", "NO", "no"),
            ("maxmemory-samples", "5", "5"),
            ("client-query-buffer-limit", "2mb", "2097152"),
            ("stream-node-max-bytes", "1kb", "1024"),
            ("active-expire-effort", "10", "10"),
        ] {
            world.check(&mut c, &format!("CONFIG SET {name} {value}"), "+OK|");
            let expected = format!("*2|${}|{name}|${}|{got}|", name.len(), got.len());
            world.check(&mut c, &format!("CONFIG GET {name}"), &expected);
        }
        // By the name that it had before.
        world.check(&mut c, "CONFIG SET hash-max-ziplist-entries 99", "+OK|");
        let told = world.ask(&mut c, "CONFIG GET hash-max-*-entries");
        assert_eq!(told.matches("$2|99|").count(), 2, "{told}");
        for (line, error) in [
            ("hz 0", "argument must be between 1 and 500 inclusive"),
            ("notify-keyspace-events Q", "Invalid event class character"),
            ("activedefrag maybe", "argument must be 'yes' or 'no'"),
            (
                "client-query-buffer-limit 1",
                "argument must be between 1048576",
            ),
            ("hz 20 hz 30", "duplicate parameter"),
            ("appendonly yes", "can't set immutable config"),
            // A setting of all services of a server, so this one may not change it.
            ("tcp-keepalive 60", "can't set immutable config"),
        ] {
            let told = world.ask(&mut c, &format!("CONFIG SET {line}"));
            assert!(
                told.starts_with("-ERR CONFIG SET failed") && told.contains(error),
                "{told}"
            );
        }
        // All or nothing.
        let _ = world.ask(&mut c, "CONFIG SET hz 50 maxmemory-samples 0");
        world.check(&mut c, "CONFIG GET hz", "*2|$2|hz|$3|100|");
    });
}

/// No client could hear that it was done, nor undo it: a small limit of output acts as what Redis
/// keeps beside its own, and 0 is none.
#[test]
fn no_limit_of_clients_shuts_every_client_out() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        let name = &b"client-output-buffer-limit"[..];
        for (value, told) in [
            (
                "normal 1 0 0 pubsub 1 0 0",
                "normal 16384 0 0 slave 0 0 0 pubsub 16384 0 0",
            ),
            (
                "normal 20000 0 0",
                "normal 20000 0 0 slave 0 0 0 pubsub 16384 0 0",
            ),
            (
                "normal 0 0 0 pubsub 0 0 0",
                "normal 1073741824 0 0 slave 0 0 0 pubsub 0 0 0",
            ),
        ] {
            let set = world.ask_raw(&mut c, &[b"CONFIG", b"SET", name, value.as_bytes()]);
            assert_eq!(set, b"+OK\r\n", "{value}");
            let got = world.ask(&mut c, "CONFIG GET client-output-buffer-limit");
            assert!(got.ends_with(&format!("|{told}|")), "{value}: {got}");
            world.check(&mut c, "PING", "+PONG|");
        }
        for value in ["0", "1", "1048575"] {
            let got = world.ask(
                &mut c,
                &format!("CONFIG SET client-query-buffer-limit {value}"),
            );
            assert!(got.contains("between 1048576 and"), "{value}: {got}");
        }
    });
}

#[test]
fn the_limits_of_clients_are_lowered_while_it_runs() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        let line = "CONFIG SET client-output-buffer-limit";
        let words = |world: &mut World, c: &mut Client, value: &[u8]| {
            let name = &b"client-output-buffer-limit"[..];
            world.ask_raw(c, &[b"CONFIG", b"SET", name, value])
        };
        assert_eq!(
            words(&mut world, &mut c, b"normal 100000 0 0"),
            b"+OK\r\n",
            "{line}"
        );
        let value = "x".repeat(60_000);
        world.check(&mut c, &format!("SET k {value}"), "+OK|");
        assert_eq!(world.ask(&mut c, "MGET k").len(), 60_000 + 11);
        let mut greedy = world.client();
        world.check(&mut greedy, "MGET k k", "");
        assert_eq!(world.service.counters().large_replies, 1);
        world.check(&mut c, "CONFIG SET client-query-buffer-limit 1mb", "+OK|");
        let mut large = world.client();
        let got = world.ask(&mut large, &format!("SET k {}", "x".repeat(1 << 20)));
        assert!(got.starts_with("-ERR Protocol error"), "{got}");
    });
}

#[test]
fn uptime_counts_from_the_start_and_not_from_the_first_client() {
    on_every_shape(|| {
        let mut world = World::new();
        world.sim.run_for(Duration::from_millis(100_500));
        let mut c = world.client();
        let info = world.ask(&mut c, "INFO server");
        assert!(info.contains("uptime_in_seconds:100|"), "{info}");
        let saved = world.ask(&mut c, "LASTSAVE");
        let now = world.ask(&mut c, "TIME");
        let now: u64 = now.split('|').nth(2).unwrap().parse().unwrap();
        assert_eq!(saved, format!(":{}|", now - 100));
    });
}
