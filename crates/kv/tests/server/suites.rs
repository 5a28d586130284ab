//! What the suites of Redis and of its clients have shown: each test is a difference that was mended.

use crate::common::{World, on_every_shape};

impl World {
    /// A line of INFO.
    fn info(&mut self, client: &mut crate::common::Client, section: &str, field: &str) -> String {
        let text = self.ask(client, &format!("INFO {section}"));
        let begin = format!("{field}:");
        let line = text.split('|').find_map(|line| line.strip_prefix(&begin));
        line.unwrap_or_default().to_owned()
    }
}

#[test]
fn a_script_hears_what_its_user_may_run() {
    on_every_shape(|| {
        let mut world = World::new();
        let w = &mut world;
        let mut c = w.client();
        w.check(
            &mut c,
            "ACL SETUSER bob on >pw +@scripting +set ~x*",
            "+OK|",
        );
        w.check(&mut c, "AUTH bob pw", "+OK|");
        for (call, answer) in [
            ("'set','xx',1", ":1|"),
            ("'hset','xx','f',1", "$-1|"),
            ("'set','yy',1", "$-1|"),
        ] {
            let script = format!("return redis.acl_check_cmd({call})");
            assert_eq!(
                w.ask_args(&mut c, &["EVAL", &script, "0"]),
                answer,
                "{call}"
            );
        }
        for (call, text) in [
            (
                "'nope','x'",
                "Invalid command passed to redis.acl_check_cmd()",
            ),
            ("", "Please specify at least one argument"),
        ] {
            let script = format!("return redis.acl_check_cmd({call})");
            let answer = w.ask_args(&mut c, &["EVAL", &script, "0"]);
            assert!(answer.contains(text), "{answer}");
        }
        // The client only asked: nothing was refused.
        w.check(&mut c, "AUTH default x", "+OK|");
        w.check(&mut c, "ACL LOG", "*0|");
    });
}

#[test]
fn a_function_hears_what_its_user_may_run() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    let code = "#!lua name=l\nredis.register_function('f', function(keys, args) \
                return redis.acl_check_cmd(args[1], args[2]) end)";
    assert_eq!(w.ask_args(&mut c, &["FUNCTION", "LOAD", code]), "$1|l|");
    w.check(&mut c, "ACL SETUSER bob on >pw +fcall +get ~x*", "+OK|");
    w.check(&mut c, "AUTH bob pw", "+OK|");
    w.check(&mut c, "FCALL f 0 get x", ":1|");
    w.check(&mut c, "FCALL f 0 get y", "$-1|");
}

#[test]
fn every_run_of_a_script_has_chance_of_its_own() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    let mut ask = |script: &str| w.ask_args(&mut c, &["EVAL", script, "0"]);
    let all: std::collections::BTreeSet<String> = (0..20)
        .map(|_| ask("return tostring(math.random())"))
        .collect();
    assert!(all.len() > 15, "{all:?}");
    // A script that wants equal numbers says so.
    let seeded = "math.randomseed(10) return tostring(math.random())";
    assert_eq!(ask(seeded), ask(seeded));
}

#[test]
fn as_many_results_are_unpacked_as_in_redis() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    let script =
        "local a = {} for i = 1, 7999 do a[i] = i end return redis.call('rpush', 'l', unpack(a))";
    assert_eq!(w.ask_args(&mut c, &["EVAL", script, "0"]), ":7999|");
    let script = "local a = {} for i = 1, 8000 do a[i] = i end return #{unpack(a)}";
    let answer = w.ask_args(&mut c, &["EVAL", script, "0"]);
    assert!(answer.contains("too many results to unpack"), "{answer}");
}

#[test]
fn a_refusal_to_queue_is_logged_as_one_of_a_transaction() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    w.check(&mut c, "ACL SETUSER bob on >pw +multi +exec ~*", "+OK|");
    w.check(&mut c, "AUTH bob pw", "+OK|");
    w.check(&mut c, "MULTI", "+OK|");
    w.check(
        &mut c,
        "INCR k",
        "-NOPERM User bob has no permissions to run the 'incr' command|",
    );
    w.check(
        &mut c,
        "EXEC",
        "-EXECABORT Transaction discarded because of previous errors.|",
    );
    w.check(&mut c, "AUTH default x", "+OK|");
    let log = w.ask(&mut c, "ACL LOG");
    assert!(
        log.contains("$7|context|$5|multi|$6|object|$4|incr|"),
        "{log}"
    );
}

#[test]
fn a_client_held_back_by_a_pause_counts_as_blocked() {
    on_every_shape(|| {
        let mut world = World::new();
        let w = &mut world;
        let (mut c, mut held) = (w.client(), w.client_of(1));
        w.check(&mut c, "CLIENT PAUSE 60000 WRITE", "+OK|");
        w.send(&held, "SET k v");
        assert_eq!(w.answer(&mut held), "");
        assert_eq!(w.info(&mut c, "clients", "blocked_clients"), "1");
        w.check(&mut c, "CLIENT UNPAUSE", "+OK|");
        assert_eq!(w.answer(&mut held), "+OK|");
        assert_eq!(w.info(&mut c, "clients", "blocked_clients"), "0");
    });
}

#[test]
fn an_error_that_ends_a_wait_is_counted() {
    on_every_shape(|| {
        let mut world = World::new();
        let w = &mut world;
        let (mut c, mut waits) = (w.client(), w.client_of(1));
        w.check(&mut c, "XGROUP CREATE s g $ MKSTREAM", "+OK|");
        w.send(&waits, "XREADGROUP GROUP g alice BLOCK 0 STREAMS s >");
        assert_eq!(w.answer(&mut waits), "");
        w.check(&mut c, "XGROUP DESTROY s g", ":1|");
        let answer = w.answer(&mut waits);
        assert!(answer.starts_with("-NOGROUP "), "{answer}");
        assert_eq!(w.info(&mut c, "errorstats", "errorstat_NOGROUP"), "count=1");
        let calls = w.info(&mut c, "commandstats", "cmdstat_xreadgroup");
        assert!(calls.starts_with("calls=1,"), "{calls}");
        assert!(
            calls.ends_with("rejected_calls=0,failed_calls=1"),
            "{calls}"
        );
    });
}

#[test]
fn an_idle_time_that_was_restored_is_told_whole() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    w.check(&mut c, "SET k v", "+OK|");
    let before = w.sim.received(c.peer).len();
    let _ = w.ask(&mut c, "DUMP k");
    let dump = w.sim.received(c.peer)[before..].to_vec();
    let head = dump.iter().position(|b| *b == b'\n').unwrap();
    let payload = &dump[head + 1..dump.len() - 2];
    for idle in ["1", "10", "1000", "86399"] {
        w.check(&mut c, "DEL k", ":1|");
        let mut line = b"*6\r\n$7\r\nRESTORE\r\n$1\r\nk\r\n$1\r\n0\r\n".to_vec();
        line.extend(format!("${}\r\n", payload.len()).bytes());
        line.extend(payload);
        line.extend(format!("\r\n$8\r\nIDLETIME\r\n${}\r\n{idle}\r\n", idle.len()).bytes());
        w.sim.send(c.peer, &line);
        assert_eq!(w.answer(&mut c), "+OK|");
        w.check(&mut c, "OBJECT IDLETIME k", &format!(":{idle}|"));
    }
}

#[test]
fn subcommands_are_listed_beside_commands() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    let all = w.ask(&mut c, "COMMAND LIST");
    assert!(
        all.contains("|config|get|") && all.contains("|get|"),
        "{all}"
    );
    let some = w.ask(&mut c, "COMMAND LIST FILTERBY PATTERN config|g*");
    assert_eq!(some, "*1|$10|config|get|");
    let scripting = w.ask(&mut c, "COMMAND LIST FILTERBY ACLCAT scripting");
    assert!(scripting.contains("|script|kill|"), "{scripting}");
    w.check(&mut c, "COMMAND LIST FILTERBY MODULE x", "*0|");
}

#[test]
fn commands_are_documented() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    w.check(
        &mut c,
        "COMMAND DOCS get nosuch",
        "*2|$3|get|*8|$7|summary|$14|Gives a string|$5|since|$5|1.0.0|$5|group|$6|string|$5|arity|:2|",
    );
}

#[test]
fn there_are_no_modules() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    w.check(&mut c, "MODULE LIST", "*0|");
    for (asked, refused) in [
        ("MODULE LOAD x.so", "-ERR MODULE command not allowed."),
        (
            "MODULE LOADEX x.so ARGS a",
            "-ERR MODULE command not allowed.",
        ),
        ("MODULE UNLOAD x", "-ERR MODULE command not allowed."),
        (
            "MODULE LOAD",
            "-ERR wrong number of arguments for 'module|load' command",
        ),
        ("MODULE NOSUCH", "-ERR unknown subcommand"),
    ] {
        let got = w.ask(&mut c, asked);
        assert!(got.starts_with(refused), "{asked}: {got}");
    }
}

#[test]
fn a_script_without_keys_has_none() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    w.check(&mut c, "COMMAND GETKEYS EVAL x 0", "*0|");
    w.check(&mut c, "COMMAND GETKEYS FCALL x 0 a", "*0|");
}

#[test]
fn the_name_of_a_library_may_stand_in_quotes() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    let mut load = |line: &str| {
        let code = format!("{line}\nredis.register_function('f', function() return 1 end)");
        w.ask_args(&mut c, &["FUNCTION", "LOAD", "REPLACE", &code])
    };
    assert_eq!(load("#!lua name=\"foo\""), "$3|foo|");
    assert_eq!(load("#!lua 'name=foo'"), "$3|foo|");
    assert_eq!(load("#!lua name=\"foo"), "-ERR Invalid library metadata|");
    assert_eq!(load("#! name=foo"), "-ERR Engine '' not found|");
    assert_eq!(load("#!js name=foo"), "-ERR Engine 'js' not found|");
}

#[test]
fn bits_that_are_so_already_are_no_change() {
    on_every_shape(|| {
        let mut world = World::new();
        let w = &mut world;
        let (mut c, mut other) = (w.client(), w.client_of(1));
        w.check(&mut c, "SETBIT k 7 1", ":0|");
        for (line, answer, changes) in [
            ("SETBIT k 7 1", ":1|", false),
            ("BITFIELD k SET u8 0 1 GET u4 4", "*2|:1|:1|", false),
            ("BITFIELD k OVERFLOW FAIL SET u8 0 300", "*1|$-1|", false),
            ("BITFIELD k SET u8 0 1 SET u8 8 0", "*2|:1|:0|", true),
            ("BITFIELD k INCRBY u8 0 0", "*1|:1|", true),
            ("SETBIT k 30 0", ":0|", true),
            ("SETBIT k 7 0", ":1|", true),
        ] {
            w.check(&mut c, "WATCH k", "+OK|");
            w.check(&mut other, line, answer);
            w.check(&mut c, "MULTI", "+OK|");
            let executed = match changes {
                true => "*-1|",
                false => "*0|",
            };
            w.check(&mut c, "EXEC", executed);
            println!("{line}");
        }
    });
}

#[test]
fn what_a_call_does_with_its_keys_is_told() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    for (call, answer) in [
        ("GET k", "*1|*2|$1|k|*2|+RO|+access|"),
        ("SET k v", "*1|*2|$1|k|*2|+OW|+update|"),
        ("SET k get", "*1|*2|$1|k|*2|+OW|+update|"),
        ("SET k v GET", "*1|*2|$1|k|*3|+RW|+access|+update|"),
        ("EXISTS k", "*1|*2|$1|k|*1|+RO|"),
        ("BITFIELD k GET u8 0", "*1|*2|$1|k|*2|+RO|+access|"),
        (
            "BITFIELD k SET u8 0 1",
            "*1|*2|$1|k|*3|+RW|+access|+update|",
        ),
        (
            "LMOVE a b LEFT RIGHT",
            "*2|*2|$1|a|*3|+RW|+access|+delete|*2|$1|b|*2|+RW|+insert|",
        ),
        (
            "ZUNIONSTORE z 2 a b",
            "*3|*2|$1|z|*2|+OW|+update|*2|$1|a|*2|+RO|+access|*2|$1|b|*2|+RO|+access|",
        ),
        ("DEL a", "*1|*2|$1|a|*2|+RM|+delete|"),
    ] {
        w.check(&mut c, &format!("COMMAND GETKEYSANDFLAGS {call}"), answer);
    }
}

#[test]
fn an_exec_that_is_refused_ends_the_transaction() {
    on_every_shape(|| {
        let mut world = World::new();
        let w = &mut world;
        let mut c = w.client();
        let over = "-EXECABORT Transaction discarded because of: ";
        for (before, refused) in [("PING", "EXEC now"), ("ACL SETUSER default -exec", "EXEC")] {
            w.ask(&mut c, before);
            w.check(&mut c, "MULTI", "+OK|");
            w.check(&mut c, "SET k v", "+QUEUED|");
            let answer = w.ask(&mut c, refused);
            assert!(answer.starts_with(over), "{answer}");
            w.check(&mut c, "DISCARD", "-ERR DISCARD without MULTI|");
        }
        w.check(&mut c, "ACL SETUSER default +exec", "+OK|");
        w.check(&mut c, "EXISTS k", ":0|");
        w.check(&mut c, "SUBSCRIBE a", "*3|$9|subscribe|$1|a|:1|");
        let answer = w.ask(&mut c, "CLIENT GETNAME");
        assert!(
            answer.starts_with("-ERR Can't execute 'client|getname': "),
            "{answer}"
        );
    });
}

#[test]
fn resetting_statistics_forgets_what_was_freed() {
    let mut world = World::new();
    let w = &mut world;
    let mut c = w.client();
    let members: Vec<String> = (0..5000).map(|n| format!("m{n}")).collect();
    w.check(&mut c, &format!("SADD s {}", members.join(" ")), ":5000|");
    w.check(&mut c, "UNLINK s", ":1|");
    w.sim.run_for(std::time::Duration::from_secs(1));
    let freed =
        |w: &mut World, c: &mut crate::common::Client| w.info(c, "memory", "lazyfreed_objects");
    assert_eq!(freed(w, &mut c), "1");
    w.check(&mut c, "CONFIG RESETSTAT", "+OK|");
    assert_eq!(freed(w, &mut c), "0");
}

#[test]
fn a_pause_of_writers_lets_scripts_pass_that_only_read() {
    on_every_shape(|| {
        let mut world = World::new();
        let w = &mut world;
        let (mut c, mut other) = (w.client(), w.client_of(1));
        let reads = "#!lua flags=no-writes\nreturn 1";
        let code = "#!lua name=l\nredis.register_function{function_name='f', flags={'no-writes'}, \
                    callback=function() return 2 end}";
        w.ask_args(&mut c, &["FUNCTION", "LOAD", code]);
        let hash = w.ask_args(&mut c, &["SCRIPT", "LOAD", reads]);
        let hash = hash
            .trim_start_matches("$40|")
            .trim_end_matches('|')
            .to_owned();
        w.check(&mut c, "CLIENT PAUSE 60000 WRITE", "+OK|");
        assert_eq!(w.ask_args(&mut other, &["EVAL", reads, "0"]), ":1|");
        assert_eq!(w.ask_args(&mut other, &["EVALSHA", &hash, "0"]), ":1|");
        w.check(&mut other, "FCALL f 0", ":2|");
        w.check(&mut other, "MULTI", "+OK|");
        assert_eq!(w.ask_args(&mut other, &["EVAL", reads, "0"]), "+QUEUED|");
        w.check(&mut other, "EXEC", "*1|:1|");
        // What is wrong is answered at once.
        let answer = w.ask(&mut other, "EVALSHA nope 0");
        assert!(answer.starts_with("-NOSCRIPT "), "{answer}");
        w.check(&mut other, "MULTI", "+OK|");
        assert_eq!(
            w.ask_args(&mut other, &["EVAL", "return 3", "0"]),
            "+QUEUED|"
        );
        w.check(&mut other, "EXEC", "");
        w.check(&mut c, "CLIENT UNPAUSE", "+OK|");
        assert_eq!(w.answer(&mut other), "*1|:3|");
    });
}

#[test]
fn a_script_that_only_reads_publishes_nothing() {
    let mut world = World::new();
    let w = &mut world;
    let (mut c, mut hears) = (w.client(), w.client_of(1));
    w.check(&mut hears, "SUBSCRIBE ch", "*3|$9|subscribe|$2|ch|:1|");
    let publish = "return redis.call('publish','ch','x')";
    let answer = w.ask_args(&mut c, &["EVAL_RO", publish, "0"]);
    let no = "-ERR Write commands are not allowed from read-only scripts.";
    assert!(answer.starts_with(no), "{answer}");
    assert_eq!(w.answer(&mut hears), "");
    assert_eq!(w.ask_args(&mut c, &["EVAL", publish, "0"]), ":1|");
}

#[test]
fn a_redirect_target_that_quits_is_gone_at_once() {
    on_every_shape(|| {
        let mut world = World::new();
        let w = &mut world;
        let (mut c, mut told, mut other) = (w.client(), w.client_of(1), w.client());
        let id = w.ask(&mut told, "CLIENT ID");
        let id = id.trim_start_matches(':').trim_end_matches('|').to_owned();
        w.ask(&mut told, "SUBSCRIBE __redis__:invalidate");
        w.ask(&mut c, "HELLO 3");
        w.check(&mut c, &format!("CLIENT TRACKING on REDIRECT {id}"), "+OK|");
        w.check(&mut c, "GET k", "_|");
        w.check(&mut told, "QUIT", "+OK|");
        w.check(&mut other, "SET k v", "+OK|");
        let heard = w.answer(&mut c);
        assert!(heard.contains("tracking-redir-broken"), "{heard}");
    });
}

/// Found by comparing with Valkey 9.
#[test]
fn calls_that_are_only_asked_about_are_as_wrong_as_there() {
    let mut w = World::new();
    let mut c = w.client();
    for (call, answer) in [
        ("EVAL x 1", "*0|"),
        ("EVAL x -1 a", "*0|"),
        ("EVAL x n a", "*0|"),
        ("EVAL x 1 a b", "*1|$1|a|"),
        ("FCALL f 2 a", "*0|"),
        ("LMPOP 2 a LEFT", "*2|$1|a|$4|LEFT|"),
        (
            "LMPOP 3 a LEFT",
            "-ERR Invalid arguments specified for command|",
        ),
        (
            "ZUNIONSTORE d 3 a b",
            "-ERR Invalid arguments specified for command|",
        ),
        (
            "ZUNIONSTORE d 0 a",
            "-ERR Invalid arguments specified for command|",
        ),
        (
            "ZDIFFSTORE a 2 b",
            "-ERR Invalid arguments specified for command|",
        ),
        ("CONFIG", "-ERR The command has no key arguments|"),
        ("CONFIG NONE", "-ERR Invalid command specified|"),
        ("CONFIG GET a", "-ERR The command has no key arguments|"),
        ("OBJECT HELP", "-ERR The command has no key arguments|"),
        ("OBJECT ENCODING a", "*1|$1|a|"),
        (
            "OBJECT ENCODING",
            "-ERR Invalid number of arguments specified for command|",
        ),
    ] {
        w.check(&mut c, &format!("COMMAND GETKEYS {call}"), answer);
    }
    let of_hashes = "-ERR NOVALUES option can only be used in HSCAN|";
    let of_sets = "-ERR NOSCORES option can only be used in ZSCAN|";
    for (line, answer) in [
        ("SADD s a", ":1|"),
        ("ZADD z 1 a", ":1|"),
        ("HSET h f v", ":1|"),
        ("SSCAN s 0 NOVALUES", of_hashes),
        ("ZSCAN z 0 NOVALUES", of_hashes),
        ("SCAN 0 NOVALUES", of_hashes),
        ("HSCAN h 0 NOSCORES", of_sets),
        ("SSCAN s 0 NOSCORES", of_sets),
        ("HSCAN h 0 NOVALUES", "*2|$1|0|*1|$1|f|"),
        ("ZSCAN z 0 COUNT 5 NOSCORES", "*2|$1|0|*1|$1|a|"),
    ] {
        w.check(&mut c, line, answer);
    }
}

#[test]
fn numbers_of_scripts_are_as_in_c() {
    let mut w = World::new();
    let mut c = w.client();
    let lowest = ":-9223372036854775808|";
    for (value, answer) in [
        ("1e300", lowest),
        ("1/0", lowest),
        ("-1/0", lowest),
        ("0/0", lowest),
        ("2^63", lowest),
        ("-3.99", ":-3|"),
        ("{double=0/0}", "$3|nan|"),
        ("{double=1/0}", "$3|inf|"),
    ] {
        w.check(&mut c, &format!("EVAL return({value}) 0"), answer);
    }
    for (value, text) in [
        ("0.1", "0.1"),
        ("1e300", "1e+300"),
        ("2^63", "9223372036854776000"),
        ("2^53", "9007199254740992"),
        ("-0.5", "-0.5"),
    ] {
        let line = format!("EVAL return(redis.call('ECHO',{value})) 0");
        w.check(&mut c, &line, &format!("${}|{text}|", text.len()));
    }
}
