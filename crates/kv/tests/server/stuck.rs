//! Scripts that stay within one instruction for long, where no hook reaches them: they are ended all the same.
//!
//! Lua 5.1 hashes numbers without a seed: their halves added, modulo the number of places. So keys can be chosen that
//! spread in a table of 2^k places and collide in one of 2^(k+1), and the next key has all of them put in anew.

use crate::wire::{Client, Server, Value, of_words, until};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tidewire::EngineChoice;
use tidewire_kv::service::Settings;

/// Fills a table of 2^`k` places, whose next key takes 2^(2k-1) steps. Runs `before` in between.
fn rehash(k: u32, before: &str) -> String {
    format!(
        "local n, m, t = 2^{k}, 2^{k1} - 1, {{}}
         local most = math.floor(2^31 / m)
         local count, j, r = 0, 0, 0
         while count < n do
           local sum = j * m
           local high = 0x40000000 + r * 7 + 1
           t[struct.unpack('<d', struct.pack('<I4I4', (sum - high) % 4294967296, high))] = 1
           count = count + 1
           j = j + 1
           if j >= most then j, r = 0, r + 1 end
         end
         {before}
         t[1.5] = 1
         return n",
        k1 = k + 1
    )
}

fn send(client: &mut Client, words: &[&str]) {
    client.socket.write_all(&of_words(words)).unwrap();
}

#[track_caller]
fn ask(client: &mut Client, words: &[&str]) -> Value {
    send(client, words);
    client.reply()
}

#[track_caller]
fn refused(value: &Value, begin: &str) {
    match value {
        Value::Error(text) if text.starts_with(begin) => {}
        other => panic!("{begin}: {other:?}"),
    }
}

fn server() -> Server {
    let server = Server::start((EngineChoice::Epoll, 1), 8, Settings::default());
    server.expect("epoll works everywhere")
}

#[track_caller]
fn is_busy(client: &mut Client) -> bool {
    matches!(client.ask("GET k"), Value::Error(text) if text.starts_with("BUSY"))
}

const ECHO: &str = "redis.call('echo', 'x')";

/// Waits until the script has filled its table, and is told of.
#[track_caller]
fn wait_until_full(other: &mut Client, echoes: usize) {
    let expected = format!("cmdstat_echo:calls={echoes},");
    until("the table to be full", || {
        ask(other, &["INFO", "commandstats"])
            .text()
            .contains(&expected)
    });
    assert_eq!(other.ask("CONFIG SET busy-reply-threshold 20"), Value::ok());
    until("the script to be told of", || is_busy(other));
}

/// Kills the script, whose client is answered while its thread is still within the instruction.
#[track_caller]
fn kill(other: &mut Client, echoes: usize) {
    wait_until_full(other, echoes);
    assert_eq!(other.ask("SCRIPT KILL"), Value::ok());
}

#[test]
fn one_that_no_hook_reaches_is_killed_and_its_thread_given_up() {
    let server = server();
    let (mut other, mut runner, mut waiting) = (server.client(), server.client(), server.client());
    // Quick by now: it runs on a loop.
    for _ in 0..2 {
        assert_eq!(ask(&mut other, &["EVAL", "return 7", "0"]), Value::Int(7));
    }
    for line in [
        "SET k v",
        "CONFIG SET busy-reply-threshold 0",
        "CONFIG SET script-stuck-limit 1",
    ] {
        assert_eq!(other.ask(line), Value::ok());
    }
    let text = rehash(16, ECHO);
    send(&mut runner, &["EVAL", &text, "0"]);
    wait_until_full(&mut other, 1);
    assert_eq!(ask(&mut other, &["EVAL", "return 7", "0"]), {
        Value::Error("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.".into())
    });
    assert_eq!(other.ask("SCRIPT KILL"), Value::ok());
    refused(&runner.reply(), "ERR Error running script: Script killed");
    assert_eq!(
        other.info("stuck_scripts"),
        1,
        "the thread has not come back"
    );
    assert_eq!(other.info("total_stuck_scripts"), 1);
    send(&mut waiting, &["BLPOP", "list", "0"]);
    // All is as after any script that was killed.
    assert_eq!(other.ask("GET k"), Value::Bulk("v".into()));
    refused(&other.ask("SCRIPT KILL"), "NOTBUSY");
    assert_eq!(ask(&mut other, &["EVAL", "return 7", "0"]), Value::Int(7));
    // As many as may be are stuck.
    let refusal = "ERR scripts are refused";
    refused(&ask(&mut runner, &["EVAL", "return 8", "0"]), refusal);
    assert_eq!(runner.ask("WATCH k"), Value::ok());
    assert_eq!(runner.ask("MULTI"), Value::ok());
    let queued = ask(&mut runner, &["EVAL", "return 9", "0"]);
    assert_eq!(queued, Value::Simple("QUEUED".into()));
    refused(&runner.ask("EXEC"), "EXECABORT");
    assert_eq!(other.ask("RPUSH list a"), Value::Int(1));
    assert_eq!(waiting.reply().array()[1], Value::Bulk("a".into()));
    assert_eq!(
        other.info("stuck_scripts"),
        1,
        "the thread has not come back"
    );
    until("the thread to come back", || {
        other.info("stuck_scripts") == 0
    });
    assert_eq!(ask(&mut runner, &["EVAL", "return 8", "0"]), Value::Int(8));
    assert_eq!(other.ask("GET k"), Value::Bulk("v".into()));
    assert_eq!(other.info("total_stuck_scripts"), 1);
}

#[test]
fn another_thread_takes_the_scripts_of_one_that_was_given_up() {
    let server = server();
    let (mut other, mut runner) = (server.client(), server.client());
    assert_eq!(other.ask("CONFIG SET busy-reply-threshold 0"), Value::ok());
    let text = rehash(16, ECHO);
    // In a transaction that has changed nothing, and by itself.
    assert_eq!(runner.ask("MULTI"), Value::ok());
    assert_eq!(runner.ask("GET k"), Value::Simple("QUEUED".into()));
    let queued = ask(&mut runner, &["EVAL", &text, "0"]);
    assert_eq!(queued, Value::Simple("QUEUED".into()));
    assert_eq!(runner.ask("INCR n"), Value::Simple("QUEUED".into()));
    send(&mut runner, &["EXEC"]);
    kill(&mut other, 1);
    refused(&runner.reply(), "EXECABORT");
    assert_eq!(
        other.info("stuck_scripts"),
        1,
        "the thread has not come back"
    );
    assert_eq!(other.ask("GET n"), Value::Null, "nothing of it was done");
    let write = "redis.call('incr', KEYS[1]) for i = 1, 9 do redis.call('incr', KEYS[1]) end return redis.call('get', KEYS[1])";
    let answer = ask(&mut runner, &["EVAL", write, "1", "n"]);
    assert_eq!(answer, Value::Bulk("10".into()));
    // Loading one takes as long.
    let library = format!("#!lua name=l\n{} ", rehash(15, "").replace("return n", ""));
    let library = library + "redis.register_function('f', function() return 1 end)";
    // On a busy machine the hook may be the first.
    until("a library to be given up", || {
        refused(&ask(&mut runner, &["FUNCTION", "LOAD", &library]), "ERR");
        other.info("total_stuck_scripts") >= 2
    });
    let library = "#!lua name=l\nredis.register_function('f', function() return 1 end)";
    let loaded = ask(&mut runner, &["FUNCTION", "LOAD", library]);
    assert_eq!(loaded, Value::Bulk("l".into()));
    assert_eq!(runner.ask("FCALL f 0"), Value::Int(1));
    assert_eq!(other.ask("GET n"), Value::Bulk("10".into()));
}

/// The changes of such a script are in no unit, so no client may see them; only a stop of the server ends the script.
#[test]
fn one_that_has_written_is_not_killed_and_holds_up_no_stop() {
    let server = server();
    let (mut other, mut runner) = (server.client(), server.client());
    assert_eq!(other.ask("CONFIG SET busy-reply-threshold 0"), Value::ok());
    let text = format!("redis.call('set', 'k', 'half') {}", rehash(17, ECHO));
    send(&mut runner, &["EVAL", &text, "0"]);
    wait_until_full(&mut other, 1);
    refused(&other.ask("SCRIPT KILL"), "UNKILLABLE");
    other.finish();
    let stopping = std::thread::spawn(move || server.running.stop(Duration::from_secs(10)));
    refused(&runner.reply(), "ERR Error running script: the server ends");
    drop(runner);
    stopping.join().unwrap();
}

/// Such a transaction runs on its loop, which has others to serve.
#[test]
fn one_in_a_transaction_that_only_its_connection_can_run_is_bounded() {
    let server = server();
    let mut runner = server.client();
    for (script, ends) in [
        ("while true do end", true),
        ("for i = 1, 2 do redis.call('incr', 'n') end return 1", true),
        (
            "local t = {} for i = 1, 200000 do t[i] = i end return 1",
            true,
        ),
        (
            "local f = function() local t = {} for i = 1, 200000 do t[i] = i end end return {pcall(f)}",
            true,
        ),
        ("redis.call('incr', 'n') return 'done'", false),
        ("return #ARGV", false),
    ] {
        let words: [&[&str]; 4] = [
            &["MULTI"],
            &["CLIENT", "GETNAME"],
            &["EVAL", script, "0"],
            &["INCR", "after"],
        ];
        for words in words {
            send(&mut runner, words);
            runner.reply();
        }
        let answers = runner.ask("EXEC").array();
        if ends {
            refused(
                &answers[1],
                "ERR Error running script: one that may take long cannot be in a transaction",
            );
        } else {
            assert!(!matches!(answers[1], Value::Error(_)), "{answers:?}");
        }
        assert!(matches!(answers[2], Value::Int(_)), "{answers:?}");
    }
    assert_eq!(runner.ask("GET n"), Value::Bulk("1".into()));
}

/// A transaction that has begun on its loop cannot go elsewhere: one whose script may be given much goes there before.
#[test]
fn one_in_a_transaction_may_be_given_much() {
    let server = server();
    let mut client = server.client();
    let script = "return #redis.call('lrange', KEYS[1], 0, -1)";
    let joins = "return #(ARGV[1] .. ARGV[1])";
    for _ in 0..3 {
        assert_eq!(
            ask(&mut client, &["EVAL", script, "1", "none"]),
            Value::Int(0)
        );
        assert_eq!(ask(&mut client, &["EVAL", joins, "0", "a"]), Value::Int(2));
    }
    let values: Vec<String> = (0..20_000).map(|n| format!("value {n:060}")).collect();
    let mut words = vec!["RPUSH", "list"];
    words.extend(values.iter().map(|value| &value[..]));
    assert_eq!(ask(&mut client, &words), Value::Int(20_000));
    let long = "a".repeat(1 << 20);
    let queued = Value::Simple("QUEUED".into());
    assert_eq!(client.ask("MULTI"), Value::ok());
    assert_eq!(client.ask("SET k v"), queued);
    assert_eq!(ask(&mut client, &["EVAL", script, "1", "list"]), queued);
    assert_eq!(ask(&mut client, &["EVAL", joins, "0", &long]), queued);
    let answers = client.ask("EXEC").array();
    assert_eq!(
        answers,
        [Value::ok(), Value::Int(20_000), Value::Int(2 << 20)]
    );
}

/// A script that was quick on its loop begins anew on the thread when it needs much memory, and gives what it gives there.
#[test]
fn one_that_outgrows_its_loop_gives_the_right_answer() {
    let server = server();
    let mut client = server.client();
    let script = "local t = {} for i = 1, tonumber(ARGV[1]) do t[i .. ''] = i end
                  local ok, n = pcall(function() local u = {} for k in pairs(t) do u[#u + 1] = k end return #u end)
                  return {ok and 1 or 0, n}";
    for (n, _) in [
        (1, 0),
        (2, 0),
        (20_000, 0),
        (3, 0),
        (20_000, 0),
        (20_000, 0),
    ] {
        let answer = ask(&mut client, &["EVAL", script, "0", &format!("{n}")]);
        assert_eq!(answer, Value::Array(vec![Value::Int(1), Value::Int(n)]));
    }
    // Arguments whose hash in Lua is one.
    let same = |n: usize| format!("{:a<40}{n:06}{:a<18}", "", "").replace('_', "a");
    let many: Vec<String> = (0..3_000).map(same).collect();
    for count in [1, 900, 3_000] {
        let mut words = vec!["EVAL", "return #ARGV", "0"];
        words.extend(many[..count].iter().map(|text| &text[..]));
        assert_eq!(ask(&mut client, &words), Value::Int(count as i64));
    }
}

/// Libraries of a transaction are looked into by the command about functions that comes next.
#[test]
fn libraries_are_looked_into_before_keys_are_kept() {
    let server = server();
    let (mut other, mut runner) = (server.client(), server.client());
    assert_eq!(other.ask("CONFIG SET busy-reply-threshold 0"), Value::ok());
    let library = "#!lua name=slow
        local ends = os.clock() + 0.15 while os.clock() < ends do end
        redis.register_function('s', function() return 1 end)";
    until("a library to be loaded", || {
        assert_eq!(runner.ask("MULTI"), Value::ok());
        ask(&mut runner, &["FUNCTION", "LOAD", "REPLACE", library]);
        runner.ask("EXEC").array() == [Value::Bulk("slow".into())]
    });
    let is_done = Arc::new(AtomicBool::new(false));
    let done = is_done.clone();
    let deleting = std::thread::spawn(move || {
        refused(&runner.ask("FUNCTION DELETE none"), "ERR Library not found");
        done.store(true, Relaxed);
        runner
    });
    let mut answered = 0;
    while !is_done.load(Relaxed) {
        assert_eq!(other.ask("GET k"), Value::Null);
        answered += 1;
    }
    // Both take processor time of the process, by which the library measures: a slow machine changes little.
    assert!(answered > 100, "{answered}");
    drop(deleting.join().unwrap());
}

/// A library may take long only when it is looked into for the second time, behind the commit.
#[test]
fn a_library_that_is_committed_is_answered_so() {
    let server = server();
    let (mut other, mut runner) = (server.client(), server.client());
    assert_eq!(other.ask("CONFIG SET busy-reply-threshold 0"), Value::ok());
    let mut loaded = Value::Null;
    for _ in 0..5 {
        let library = |clock: &str| {
            format!(
                "#!lua name=l\nlocal from, now = {clock} + 0.1, os.clock()
                 local is_slow = now > from and now < from + 0.4
                 while now < from and os.clock() < from + 0.01 do end
                 if is_slow then {} end
                 redis.register_function('f', function() return 1 end)",
                rehash(16, "").replace("return n", "")
            )
        };
        let clock = ask(&mut runner, &["EVAL", "return tostring(os.clock())", "0"]).text();
        let words = ["FUNCTION", "LOAD", "REPLACE", &library(&clock)];
        loaded = ask(&mut runner, &words);
        let mut shown = Value::Null;
        until("the library to be quick again", || {
            shown = ask(&mut other, &["FUNCTION", "LIST"]);
            !matches!(shown, Value::Error(_))
        });
        let is_there = !shown.array().is_empty();
        let told = loaded == Value::Bulk("l".into());
        assert_eq!(is_there, told, "{loaded:?}");
        if told && other.info("total_stuck_scripts") > 0 {
            return;
        }
        other.ask("FUNCTION FLUSH");
    }
    panic!("no library was slow behind its commit: {loaded:?}");
}
