//! Scripts that take long, on real sockets: others are told so, and may end what has written nothing.

use crate::wire::{Client, Server, Value, everywhere, of_words, until};
use std::cell::RefCell;
use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Sends a command whose words may have spaces in them.
fn send(client: &mut Client, words: &[&str]) {
    client.socket.write_all(&of_words(words)).unwrap();
}

#[track_caller]
fn ask(client: &mut Client, words: &[&str]) -> Value {
    send(client, words);
    client.reply()
}

#[track_caller]
fn refused(value: Value, begin: &str) {
    match value {
        Value::Error(text) if text.starts_with(begin) => {}
        other => panic!("{begin}: {other:?}"),
    }
}

#[track_caller]
fn wait_for_busy(client: &mut Client) {
    until(
        "a script to take long",
        || matches!(client.ask("PING"), Value::Error(text) if text.starts_with("BUSY")),
    );
}

/// A server with little patience, and a client that was there before any script.
fn impatient(server: &Server) -> Client {
    let mut client = server.client();
    assert_eq!(
        client.ask("CONFIG SET busy-reply-threshold 20"),
        Value::ok()
    );
    client
}

#[test]
fn one_without_end_is_told_of_and_killed_by_who_was_there() {
    for script in [
        "while true do end",
        "local f = function() while true do redis.call('ping') end end while true do pcall(f) end",
        "local co = coroutine.wrap(function() while true do end end) while true do pcall(co) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "while true do redis.pcall('get', 'k') end",
    ] {
        everywhere(|server| {
            println!("{}: {script}", server.name);
            let mut other = impatient(server);
            let mut queuing = server.client();
            assert_eq!(queuing.ask("MULTI"), Value::ok());
            assert_eq!(queuing.ask("SET k queued"), Value::Simple("QUEUED".into()));
            let mut runner = server.client();
            send(&mut runner, &["EVAL", script, "0"]);
            wait_for_busy(&mut other);
            for line in [
                "GET k",
                "SET k v",
                "KEYS *",
                "INFO",
                "DBSIZE",
                "FLUSHALL",
                "SUBSCRIBE c",
            ] {
                refused(other.ask(line), "BUSY");
            }
            refused(ask(&mut other, &["EVAL", "return 1", "0"]), "BUSY");
            // A new client is heard, too.
            let mut late = server.client();
            refused(late.ask("PING"), "BUSY");
            assert_eq!(late.ask("WATCH k"), Value::ok());
            assert_eq!(late.ask("MULTI"), Value::ok());
            refused(late.ask("GET k"), "BUSY");
            refused(
                late.ask("EXEC"),
                "EXECABORT Transaction discarded because of: BUSY",
            );
            refused(
                queuing.ask("EXEC"),
                "EXECABORT Transaction discarded because of: BUSY",
            );
            refused(late.ask("FUNCTION KILL"), "BUSY");
            let stats = late.ask("FUNCTION STATS").array();
            let running = stats[1].clone().array();
            assert_eq!(running[3].clone().array()[0], Value::Bulk("EVAL".into()));
            assert_eq!(other.ask("SCRIPT KILL"), Value::ok());
            let answer = runner.reply();
            let killed = "ERR Error running script: Script killed by user with SCRIPT KILL.";
            refused(answer, killed);
            assert_eq!(other.ask("PING"), Value::Simple("PONG".into()));
            assert_eq!(other.ask("EXISTS k"), Value::Int(0));
            assert_eq!(runner.ask("SET k v"), Value::ok());
            refused(other.ask("SCRIPT KILL"), "NOTBUSY");
            assert!(other.info("stopped_scripts") > 0);
        });
    }
}

/// Takes its time by the clock of the server.
const SLOW_WRITER: &str = "redis.call('set', 'k', 'v') redis.call('rpush', 'q', 'x') \
    local t = redis.call('time') local e = t[1] * 1000000 + t[2] + ARGV[1] \
    repeat redis.call('incr', 'n') t = redis.call('time') until t[1] * 1000000 + t[2] > e \
    redis.call('publish', 'c', 'end') return 'done'";

#[test]
fn one_that_has_written_is_not_killed_and_is_seen_as_a_whole() {
    everywhere(|server| {
        println!("{}", server.name);
        let mut other = impatient(server);
        let mut waiting = server.client();
        waiting.send(&["BLPOP q 0"]);
        until("a client to wait", || other.info("blocked_clients") == 1);
        let mut subscriber = server.client();
        subscriber.ask("SUBSCRIBE c");
        let mut runner = server.client();
        send(&mut runner, &["EVAL", SLOW_WRITER, "0", "700000"]);
        wait_for_busy(&mut other);
        refused(other.ask("SCRIPT KILL"), "UNKILLABLE");
        for line in ["GET k", "GET n", "KEYS *", "DEL k n", "RANDOMKEY", "SCAN 0"] {
            refused(other.ask(line), "BUSY");
        }
        // A client that was waiting goes while the script is at work.
        let mut leaves = server.client();
        assert_eq!(leaves.ask("WATCH k"), Value::ok());
        drop(leaves);
        assert_eq!(runner.reply(), Value::Bulk("done".into()));
        until("the script to end", || {
            matches!(other.ask("PING"), Value::Simple(_))
        });
        assert_eq!(other.ask("GET k"), Value::Bulk("v".into()));
        assert!(other.ask("GET n").number() > 0);
        let popped = waiting.reply().array();
        assert_eq!(popped[1], Value::Bulk("x".into()));
        assert_eq!(subscriber.reply().array()[2], Value::Bulk("end".into()));
    });
}

#[test]
fn one_that_was_quick_begins_anew_where_it_can_be_ended() {
    everywhere(|server| {
        println!("{}", server.name);
        let mut other = impatient(server);
        let mut runner = server.client();
        let script = "if ARGV[1] == '1' then while true do end end return redis.call('incr', 'n')";
        for n in 1..=3 {
            let answer = ask(&mut runner, &["EVAL", script, "0", "0"]);
            assert_eq!(answer, Value::Int(n));
        }
        send(&mut runner, &["EVAL", script, "0", "1"]);
        wait_for_busy(&mut other);
        assert_eq!(other.ask("SCRIPT KILL"), Value::ok());
        refused(runner.reply(), "ERR Error running script: Script killed");
        assert_eq!(other.ask("GET n"), Value::Bulk("3".into()));
    });
}

#[test]
fn a_function_is_killed_as_a_function() {
    everywhere(|server| {
        println!("{}", server.name);
        let mut other = impatient(server);
        let mut runner = server.client();
        let library =
            "#!lua name=lib\nredis.register_function('f', function() while true do end end)";
        let loaded = ask(&mut runner, &["FUNCTION", "LOAD", library]);
        assert_eq!(loaded, Value::Bulk("lib".into()));
        runner.send(&["FCALL f 0"]);
        wait_for_busy(&mut other);
        refused(
            other.ask("SCRIPT KILL"),
            "BUSY Redis is busy running a script. You can only call FUNCTION KILL",
        );
        assert_eq!(other.ask("FUNCTION KILL"), Value::ok());
        refused(
            runner.reply(),
            "ERR Error running script: Script killed by user with FUNCTION KILL.",
        );
        refused(other.ask("FUNCTION KILL"), "NOTBUSY");
    });
}

#[test]
fn a_server_ends_although_a_script_does_not() {
    let stores = RefCell::new(Vec::new());
    everywhere(|server| {
        println!("{}", server.name);
        let store = Arc::downgrade(server.service.store());
        stores.borrow_mut().push((store, server.name.clone()));
        let mut other = impatient(server);
        let mut runner = server.client();
        send(
            &mut runner,
            &["EVAL", "redis.call('set', 'k', 'v') while true do end", "0"],
        );
        wait_for_busy(&mut other);
        refused(other.ask("SCRIPT KILL"), "UNKILLABLE");
        refused(other.ask("SHUTDOWN"), "BUSY");
    });
    // The server's end is the script's: nothing keeps its store.
    for (store, name) in stores.into_inner() {
        let what = format!("the script to end with {name}");
        until(&what, || store.upgrade().is_none());
    }
}

/// Sends a script, and waits until it is given to the thread for scripts.
fn begin(runner: &mut Client, other: &mut Client, words: &[&str]) {
    send(runner, words);
    until("a script to begin", || match other.ask("CLIENT LIST") {
        Value::Bulk(list) => list.contains("cmd=eval") || list.contains("cmd=exec"),
        _ => false,
    });
}

/// Each in a function of C's library, if it is one of C's.
const IN_A_FUNCTION: &[&str] = &[
    "return string.find(string.rep('a', 20000), '.-.-.-.-b')",
    "return string.gsub(string.rep('a', 20000), '.-.-.-.-b', '')",
    "return table.insert({}, -2147483647, 1)",
    "local t = {} for _ = 1, 100 do t = {t, t} end return cjson.encode(t)",
    "while true do end",
];

#[test]
fn no_loop_waits_for_a_script_and_those_who_want_its_keys_do() {
    for script in IN_A_FUNCTION {
        everywhere(|server| {
            println!("{}: {script}", server.name);
            // No client is told BUSY, and yet no client waits.
            let mut other = server.client();
            assert_eq!(other.ask("CONFIG SET busy-reply-threshold 0"), Value::ok());
            assert_eq!(other.ask("SET k v"), Value::ok());
            let mut runner = server.client();
            begin(&mut runner, &mut other, &["EVAL", script, "0"]);
            let mut parked: Vec<Client> = (0..4).map(|_| server.client()).collect();
            for client in &mut parked {
                client.send(&["GET k", "MULTI", "GET k", "EXEC", "KEYS *"]);
            }
            let mut popping = server.client();
            popping.send(&["BLPOP q 0"]);
            for _ in 0..20 {
                assert_eq!(other.ask("PING"), Value::Simple("PONG".into()));
                assert!(matches!(other.ask("INFO"), Value::Bulk(_)));
                assert_eq!(server.client().ask("ECHO a"), Value::Bulk("a".into()));
            }
            until("the script to be killed", || {
                other.ask("SCRIPT KILL") == Value::ok()
            });
            refused(runner.reply(), "ERR Error running script: Script killed");
            for client in &mut parked {
                assert_eq!(client.reply(), Value::Bulk("v".into()));
                assert_eq!(client.reply(), Value::ok());
                assert_eq!(client.reply(), Value::Simple("QUEUED".into()));
                assert_eq!(client.reply(), Value::Array(vec![Value::Bulk("v".into())]));
                assert_eq!(client.reply(), Value::Array(vec![Value::Bulk("k".into())]));
            }
            assert_eq!(other.ask("RPUSH q x"), Value::Int(1));
            assert_eq!(popping.reply().array()[1], Value::Bulk("x".into()));
        });
    }
}

/// The script comes to its end before it is looked at: the time is taken by its many arguments.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "one client waits while the other asks"
)]
fn a_kill_that_was_confirmed_is_carried_out() {
    const MANY: usize = 200_000;
    everywhere(|server| {
        let mut other = server.client();
        let mut words = vec!["EVAL", "return #ARGV", "0"];
        words.resize(3 + MANY, "an argument that is a text");
        let words = of_words(&words);
        // The script may have ended before the request.
        let mut killed = false;
        for _ in 0..20 {
            let ended = AtomicBool::new(false);
            let (confirmed, answer) = std::thread::scope(|scope| {
                let runner = scope.spawn(|| {
                    let mut runner = server.client();
                    runner.socket.write_all(&words).unwrap();
                    let answer = runner.reply();
                    ended.store(true, Relaxed);
                    answer
                });
                let mut confirmed = false;
                while !confirmed && !ended.load(Relaxed) {
                    confirmed = other.ask("SCRIPT KILL") == Value::ok();
                }
                (confirmed, runner.join().unwrap())
            });
            if confirmed {
                refused(answer, "ERR Error running script: Script killed by user");
                killed = true;
                break;
            }
            assert_eq!(answer, Value::Int(MANY as i64));
        }
        assert!(killed, "{}", server.name);
    });
}

/// Each calls a function of a library without end, mostly with what makes it fail, and catches that.
const WITHOUT_END: &[&str] = &[
    "while true do pcall(string.format, '%s', setmetatable({}, {__tostring = function() while true do end end})) end",
    "while true do pcall(string.format, '%' .. string.rep('9', 1000) .. 'd', 1) end",
    "while true do pcall(string.rep, 'x', 100000) end",
    "local t = {} for i = 1, 5000 do t[i] = i end while true do pcall(table.concat, t, ',') end",
    "local t = {} for i = 1, 1000 do t[i] = i end while true do pcall(table.sort, t, function() return true end) end",
    "local t = {} for i = 1, 1000 do t[i] = i end while true do pcall(table.sort, t, function() error('x') end) end",
    "local m = {__lt = function() while true do end end} local t = setmetatable({}, m) table.sort({t, t, t})",
    "while true do pcall(cjson.decode, string.rep('[', 100000)) end",
    "while true do pcall(cjson.encode, {setmetatable({}, {__index = function() while true do end end})}) end",
    "while true do pcall(cmsgpack.unpack, string.rep('\\145', 100000)) end",
    "while true do pcall(struct.unpack, string.rep('b', 1000), 'x') end",
    "while true do pcall(bit.tohex, 1, -8) end",
    "while true do pcall(string.gsub, string.rep('a', 1000), 'a', function() error('x') end) end",
    "string.gsub('x', 'x', function() while true do end end)",
    "for _ in string.gmatch(string.rep('a', 20000), '.-.-.-.-b') do end",
    "while true do pcall(unpack, {}, 1, 2147483647) end",
    "while true do pcall(select, -1, unpack({1, 2, 3})) end",
    "local t = {} for i = 1, 90 do t = setmetatable({}, {__index = t}) end while true do pcall(function() return t.x end) end",
    "local m = {} m.__index = setmetatable({}, m) while true do pcall(function() return m.__index.x end) end",
    "while true do pcall(loadstring, '\\27Lua' .. string.rep('x', 1000)) end",
    "while true do pcall(load, function() while true do end end) end",
    "local f = coroutine.wrap(function() while true do coroutine.yield() end end) while true do f() end",
    "local e = setmetatable({}, {__tostring = function() while true do end end}) while true do pcall(error, e) end",
    "while true do pcall(coroutine.wrap(function() error({}) end)) end",
    "local function f() xpcall(f, f) end while true do f() end",
    "while true do pcall(redis.sha1hex, string.rep('x', 1000000)) end",
    "while true do pcall(redis.call, 'get', setmetatable({}, {__tostring = error})) end",
    "local t = {} for i = 1, 500000 do t[i] = i end for i = 1, 500000 do t[i] = nil end while true do next(t) end",
    "while true do collectgarbage() end",
];

/// By itself, in a transaction, and as a function.
#[test]
fn no_function_of_a_library_escapes_the_kill() {
    everywhere(|server| {
        let mut other = server.client();
        assert_eq!(other.ask("CONFIG SET busy-reply-threshold 0"), Value::ok());
        for (n, script) in WITHOUT_END.iter().enumerate() {
            println!("{}: {script}", server.name);
            let mut runner = server.client();
            let queued = n % 3 == 1;
            if queued {
                assert_eq!(runner.ask("MULTI"), Value::ok());
            }
            let text =
                format!("#!lua name=l\nredis.register_function('f', function() {script} end)");
            let words = if n % 3 == 2 {
                ask(&mut other, &["FUNCTION", "LOAD", "REPLACE", &text]);
                vec!["FCALL", "f", "0"]
            } else {
                vec!["EVAL", script, "0"]
            };
            send(&mut runner, &words);
            if queued {
                assert_eq!(runner.reply(), Value::Simple("QUEUED".into()));
                send(&mut runner, &["EXEC"]);
            }
            let kill = if n % 3 == 2 {
                "FUNCTION KILL"
            } else {
                "SCRIPT KILL"
            };
            until("the script to be killed", || {
                assert_eq!(other.ask("PING"), Value::Simple("PONG".into()));
                other.ask(kill) == Value::ok()
            });
            let answer = match runner.reply() {
                Value::Array(mut parts) => parts.remove(0),
                answer => answer,
            };
            refused(answer, "ERR Error running script: Script killed");
        }
    });
}

#[test]
fn those_who_wait_for_a_scripts_keys_are_told_when_it_takes_long() {
    everywhere(|server| {
        println!("{}", server.name);
        let mut other = server.client();
        assert_eq!(
            other.ask("CONFIG SET busy-reply-threshold 300"),
            Value::ok()
        );
        let mut runner = server.client();
        begin(&mut runner, &mut other, &["EVAL", "while true do end", "0"]);
        let mut parked = server.client();
        // The first may come before the script has its keys; none is answered then before it is told.
        until(
            "those who wait to be told",
            || matches!(parked.ask("GET k"), Value::Error(text) if text.starts_with("BUSY")),
        );
        refused(parked.ask("EVAL 1 0"), "BUSY");
        assert_eq!(other.ask("SCRIPT KILL"), Value::ok());
        refused(runner.reply(), "ERR Error running script: Script killed");
    });
}

#[test]
fn one_that_becomes_slow_when_it_has_written_holds_up_no_loop() {
    everywhere(|server| {
        println!("{}", server.name);
        let mut other = server.client();
        let mut runner = server.client();
        let script = "local n = redis.call('incr', 'n') if ARGV[1] == '1' then while true do end end return n";
        for n in 1..=3 {
            let answer = ask(&mut runner, &["EVAL", script, "0", "0"]);
            assert_eq!(answer, Value::Int(n));
        }
        // A SCRIPT KILL before the script has written would end it; when it is called slow it has written.
        assert_eq!(
            other.ask("CONFIG SET busy-reply-threshold 300"),
            Value::ok()
        );
        let answers = |client: &mut Client| match client.ask("PING") {
            Value::Error(text) => assert!(text.starts_with("BUSY"), "{text}"),
            pong => assert_eq!(pong, Value::Simple("PONG".into())),
        };
        send(&mut runner, &["EVAL", script, "0", "1"]);
        for _ in 0..20 {
            answers(&mut other);
        }
        wait_for_busy(&mut other);
        refused(other.ask("SCRIPT KILL"), "UNKILLABLE");
        answers(&mut other);
    });
}

#[test]
fn a_transaction_with_a_script_holds_up_no_loop() {
    everywhere(|server| {
        println!("{}", server.name);
        let mut other = server.client();
        let mut runner = server.client();
        assert_eq!(runner.ask("WATCH w"), Value::ok());
        assert_eq!(runner.ask("MULTI"), Value::ok());
        for words in [
            &["SET", "k", "v"][..],
            &["EVAL", "while true do end", "0"],
            &["EVAL", "return redis.call('get', 'k')", "0"],
            &["PING"],
            &["INCR", "n"],
        ] {
            assert_eq!(ask(&mut runner, words), Value::Simple("QUEUED".into()));
        }
        begin(&mut runner, &mut other, &["EXEC"]);
        let mut parked = server.client();
        parked.send(&["GET k"]);
        for _ in 0..20 {
            assert_eq!(other.ask("PING"), Value::Simple("PONG".into()));
        }
        until("the script to be killed", || {
            other.ask("SCRIPT KILL") == Value::ok()
        });
        let answers = runner.reply().array();
        assert_eq!(answers[0], Value::ok());
        refused(
            answers[1].clone(),
            "ERR Error running script: Script killed",
        );
        assert_eq!(answers[2], Value::Bulk("v".into()));
        assert_eq!(answers[3], Value::Simple("PONG".into()));
        assert_eq!(answers[4], Value::Int(1));
        // The reply may have come before the transaction began, and never within it.
        let seen = parked.reply();
        assert!(matches!(seen, Value::Null | Value::Bulk(_)), "{seen:?}");
        // What was watched has changed meanwhile: it does nothing.
        assert_eq!(runner.ask("WATCH k"), Value::ok());
        assert_eq!(other.ask("SET k w"), Value::ok());
        assert_eq!(runner.ask("MULTI"), Value::ok());
        let queued = ask(&mut runner, &["EVAL", "while true do end", "0"]);
        assert_eq!(queued, Value::Simple("QUEUED".into()));
        assert_eq!(runner.ask("EXEC"), Value::Null);
    });
}

/// A long text takes long to compile. Here it waits for the thread, which another script has; on a loop it would be answered at once.
#[test]
fn a_long_text_is_not_compiled_on_a_loop() {
    let text = format!("return '{}'", "x".repeat(100_000));
    everywhere(|server| {
        println!("{}", server.name);
        let mut other = server.client();
        assert_eq!(other.ask("CONFIG SET busy-reply-threshold 0"), Value::ok());
        // A short one is.
        assert!(matches!(other.ask("SCRIPT LOAD return"), Value::Bulk(_)));
        let mut runner = server.client();
        begin(&mut runner, &mut other, &["EVAL", "while true do end", "0"]);
        let (mut loader, mut queuing) = (server.client(), server.client());
        assert_eq!(queuing.ask("MULTI"), Value::ok());
        let queued = Value::Simple("QUEUED".into());
        assert_eq!(ask(&mut queuing, &["SCRIPT", "LOAD", &text]), queued);
        assert_eq!(ask(&mut queuing, &["PING"]), queued);
        send(&mut queuing, &["EXEC"]);
        send(&mut loader, &["SCRIPT", "LOAD", &text]);
        until("both to be run", || match other.ask("CLIENT LIST") {
            Value::Bulk(list) => list.contains("cmd=script") && list.contains("cmd=exec"),
            _ => false,
        });
        for client in [&loader, &queuing] {
            client.socket.set_nonblocking(true).unwrap();
            let peeked = client.socket.peek(&mut [0]);
            let is_silent = matches!(&peeked, Err(error) if error.kind() == ErrorKind::WouldBlock);
            assert!(is_silent, "{peeked:?}");
            client.socket.set_nonblocking(false).unwrap();
        }
        until("the script to be killed", || {
            other.ask("SCRIPT KILL") == Value::ok()
        });
        let Value::Bulk(name) = loader.reply() else {
            panic!("no name");
        };
        let answers = queuing.reply().array();
        assert_eq!(answers[0], Value::Bulk(name.clone()));
        assert_eq!(answers[1], Value::Simple("PONG".into()));
        let long = Value::Bulk("x".repeat(100_000));
        assert_eq!(other.ask(&format!("EVALSHA {name} 0")), long);
        let wrong = format!("return {}", "(".repeat(100_000));
        refused(
            ask(&mut loader, &["SCRIPT", "LOAD", &wrong]),
            "ERR Error compiling script",
        );
    });
}

/// To load a library is to run it.
#[test]
fn a_transaction_that_loads_a_library_runs_beside_the_loops() {
    everywhere(|server| {
        println!("{}", server.name);
        let mut runner = server.client();
        let code = |name: &str, body: &str| {
            format!(
                "#!lua name={name}\n{body} redis.register_function('{name}', function() return redis.call('incr', 'n') end)"
            )
        };
        assert_eq!(runner.ask("MULTI"), Value::ok());
        for words in [
            &["FUNCTION", "LOAD", &code("f", "")][..],
            &["FCALL", "f", "0"],
            &["FUNCTION", "LOAD", &code("g", "while true do end")],
            &["FCALL", "g", "0"],
            &["SET", "k", "v"],
            &["FUNCTION", "LIST"],
            &["SCRIPT", "LOAD", "return 1"],
            &["SCRIPT", "EXISTS", "none"],
            &["SCRIPT", "FLUSH"],
            &["FUNCTION", "FLUSH"],
        ] {
            assert_eq!(ask(&mut runner, words), Value::Simple("QUEUED".into()));
        }
        send(&mut runner, &["EXEC"]);
        let answers = runner.reply().array();
        assert_eq!(answers[0], Value::Bulk("f".into()));
        assert_eq!(answers[1], Value::Int(1));
        refused(answers[2].clone(), "ERR");
        refused(answers[3].clone(), "ERR Function not found");
        assert_eq!(answers[4], Value::ok());
        assert_eq!(answers[5].clone().array().len(), 1);
        assert!(matches!(answers[6], Value::Bulk(_)));
        assert_eq!(answers[7], Value::Array(vec![Value::Int(0)]));
        assert_eq!(answers[8], Value::ok());
        assert_eq!(answers[9], Value::ok());
        assert_eq!(runner.ask("FUNCTION LIST"), Value::Array(Vec::new()));
    });
}

/// By their order, and not by their time.
#[test]
fn a_pipeline_of_slow_commands_lets_others_in_between() {
    const COUNT: usize = 1000;
    everywhere(|server| {
        println!("{}", server.name);
        let mut slow = server.client();
        let mut other = server.client();
        let all: Vec<String> = (0..20_000).map(|n| format!("k{n} v")).collect();
        for part in all.chunks(1000) {
            assert_eq!(slow.ask(&format!("MSET {}", part.join(" "))), Value::ok());
        }
        let pipeline = of_words(&["KEYS", "*x*y"]).repeat(COUNT);
        slow.socket.write_all(&pipeline).unwrap();
        until("the pipeline to begin", || calls(&mut other) > 0);
        // Not behind all of them, which the server has long received.
        assert!(calls(&mut other) < COUNT as u64, "{}", server.name);
        for _ in 0..COUNT {
            assert_eq!(slow.reply(), Value::Array(Vec::new()));
        }
        assert_eq!(calls(&mut other), COUNT as u64);
    });
}

/// How often KEYS was run.
fn calls(client: &mut Client) -> u64 {
    let Value::Bulk(stats) = client.ask("INFO commandstats") else {
        panic!("statistics");
    };
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_keys:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}
