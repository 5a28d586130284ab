//! Clients that mean no good, or have lost their way, over real sockets on each engine: what they
//! are told, that it is counted, and that others do not notice.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use crate::wire::{Client, ENGINES, PATIENCE, Server, Value, command, of_words, until};
use tidewire::Closed;
use tidewire_kv::service::Settings;

/// Runs a test on each engine.
fn on_each(settings: &Settings, test: impl Fn(&Server)) {
    for engine in ENGINES {
        if let Some(server) = Server::start(engine, 64, settings.clone()) {
            test(&server);
            assert_eq!(server.client().ask("PING"), Value::Simple("PONG".into()));
        }
    }
}

/// Sends what may not all be taken.
fn throw(client: &mut Client, bytes: &[u8]) {
    let _ = client.socket.write_all(bytes);
}

/// All that the server still says until it closes; a reset ends it too.
fn last_words(client: &mut Client) -> String {
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match client.socket.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(&chunk[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("it is not closed: {error}"),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Each engine runs scripts on threads of its own, whose stacks differ.
#[test]
fn scripts_that_nest_overflow_no_stack() {
    on_each(&Settings::default(), |server| {
        for script in [
            "local function f() return (string.gsub('x', '.', f)) end return f()",
            "local function f() return coroutine.wrap(f)() end return f()",
            "local function f() return pcall(f) end f() error('end')",
            "local function f() return table.sort({1, 2}, f) end return f()",
            "local t = {} for i = 1, 2^16 do t = {t} end return cjson.encode(t)",
            "return cjson.decode(string.rep('[', 2^20))",
            "local s = string.rep('\\145', 2^20) return cmsgpack.unpack(s)",
        ] {
            let mut client = server.client();
            client
                .socket
                .write_all(&of_words(&["EVAL", script, "0"]))
                .unwrap();
            let answer = client.reply();
            assert!(matches!(answer, Value::Error(_)), "{script}: {answer:?}");
        }
    });
}

#[test]
fn what_is_not_the_protocol_is_told_so_and_closed() {
    let digits = format!("*{}", "1".repeat(70_000));
    let bulk_digits = format!("*1\r\n${}", "1".repeat(70_000));
    let line = "x".repeat(70_000);
    let cases: [(&str, &str); 14] = [
        ("*2147483648\r\n", "invalid multibulk length"),
        ("*2147483648\r\n", "invalid multibulk length"),
        ("*99999999999999999999\r\n", "invalid multibulk length"),
        ("*one\r\n", "invalid multibulk length"),
        ("*1\r\n$536870913\r\n", "invalid bulk length"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$-99999999999999999999\r\n", "invalid bulk length"),
        ("*1\r\n$x\r\n", "invalid bulk length"),
        ("*1\r\n:1\r\n", "expected '$', got ':'"),
        ("*2\r\n$4\r\nECHO\r\n*1\r\n", "expected '$', got '*'"),
        (&digits, "too big mbulk count string"),
        (&bulk_digits, "too big bulk count string"),
        (&line, "too big inline request"),
        ("SET k \"half\r\n", "unbalanced quotes in request"),
    ];
    on_each(&Settings::default(), |server| {
        let mut other = server.client();
        for (bytes, error) in cases {
            let shown = &bytes[..bytes.len().min(40)];
            let before = other.info("protocol_errors");
            let mut client = server.client();
            assert_eq!(client.ask("SET k v"), Value::ok());
            throw(&mut client, bytes.as_bytes());
            let said = last_words(&mut client);
            let expected = format!("-ERR Protocol error: {error}\r\n");
            assert_eq!(said, expected, "{}: {shown:?}", server.name);
            assert_eq!(other.info("protocol_errors"), before + 1, "{shown:?}");
        }
    });
}

#[test]
fn arrays_of_nothing_are_passed_over() {
    on_each(&Settings::default(), |server| {
        let mut client = server.client();
        throw(&mut client, b"*0\r\n*-1\r\n*-100\r\n\r\n\r\nPING\r\n");
        assert_eq!(client.reply(), Value::Simple("PONG".into()));
    });
}

#[test]
fn transactions_do_not_nest_however_often_asked() {
    const DEEP: usize = 5000;
    on_each(&Settings::default(), |server| {
        let mut client = server.client();
        let replies = client.pipeline(&vec!["MULTI"; DEEP]);
        assert_eq!(replies[0], Value::ok());
        let nested = Value::Error("ERR MULTI calls can not be nested".into());
        assert!(replies[1..].iter().all(|reply| *reply == nested));
        // An array within an array is not a command either.
        throw(&mut client, "*1\r\n".repeat(DEEP).as_bytes());
        let error = "-ERR Protocol error: expected '$', got '*'\r\n";
        assert_eq!(last_words(&mut client), error);
    });
}

#[test]
fn garbage_does_no_harm() {
    on_each(&Settings::default(), |server| {
        let mut other = server.client();
        other.ask("SET kept v");
        for seed in 0..60 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut client = server.client();
            let mut bytes: Vec<u8> = (0..rng.usize(1..5000)).map(|_| rng.u8(..)).collect();
            if seed % 2 == 0 {
                // As far into the protocol as a header.
                bytes.splice(..0, *b"*3\r\n$3\r\nSET\r\n$");
            }
            throw(&mut client, &bytes);
            client.finish();
            let _ = last_words(&mut client);
        }
        assert_eq!(other.ask("GET kept"), Value::Bulk("v".into()));
        // The last may not have been told yet that it is gone.
        until("all others to go", || other.info("connected_clients") == 1);
    });
}

#[test]
fn a_command_larger_than_the_query_buffer_is_refused() {
    let settings = Settings {
        query_buffer: 100_000,
        ..Settings::default()
    };
    on_each(&settings, |server| {
        let mut other = server.client();
        let fits = "x".repeat(90_000);
        assert_eq!(other.ask(&format!("SET k {fits}")), Value::ok());
        let before = other.info("protocol_errors");
        let mut client = server.client();
        throw(&mut client, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n");
        let error = "-ERR Protocol error: command larger than the query buffer limit\r\n";
        assert_eq!(last_words(&mut client), error, "{}", server.name);
        assert_eq!(other.info("protocol_errors"), before + 1);
        assert_eq!(other.ask("STRLEN k"), Value::Int(90_000));
    });
}

/// As little patience as the server can have.
fn impatient() -> Settings {
    Settings {
        stall: Some(Duration::from_millis(200)),
        ..Settings::default()
    }
}

#[test]
fn half_a_command_then_silence_ends() {
    on_each(&impatient(), |server| {
        let mut other = server.client();
        for half in [&b"*2\r\n$3\r\nGET\r\n$100\r\nabc"[..], b"*", b"GET ke"] {
            let before = other.info("clients_timed_out");
            let mut client = server.client();
            throw(&mut client, half);
            assert_eq!(last_words(&mut client), "", "{}", server.name);
            assert_eq!(other.info("clients_timed_out"), before + 1);
        }
        // Between commands it may be silent.
        assert_eq!(other.ask("PING"), Value::Simple("PONG".into()));
    });
}

#[test]
fn a_client_that_never_reads_is_paced_then_cut() {
    let settings = Settings {
        stall: Some(Duration::from_millis(800)),
        ..Settings::default()
    };
    on_each(&settings, |server| {
        let mut other = server.client();
        other.ask(&format!("SET k {}", "v".repeat(100_000)));
        let mut client = server.client();
        client.socket.set_nonblocking(true).unwrap();
        let gets = command("GET k").repeat(1000);
        // The client sends for ever: at some point nothing more is taken, and in the end it is cut.
        // On a busy machine that may be before the client has filled what the kernel buffers.
        let mut sent = 0;
        let mut queued_most = 0;
        until("the client to be cut", || {
            let written = client.socket.write(&gets);
            let list = other.ask("CLIENT LIST").text();
            let queued = list.split("omem=").skip(1).map(|rest| {
                let n = rest.split(' ').next().unwrap();
                n.parse::<usize>().unwrap()
            });
            queued_most = queued.chain([queued_most]).max().unwrap();
            match written {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return true,
            }
            assert!(sent < 64 << 20, "{}: never paced", server.name);
            false
        });
        assert!(queued_most < 2_000_000, "{}: {queued_most}", server.name);
        until("it to be counted and forgotten", || {
            let stalled = server.running.counters().closed_for(Closed::Stalled);
            stalled == 1 && other.info("connected_clients") == 1
        });
    });
}

#[test]
fn a_stuck_subscriber_is_cut_and_the_publisher_goes_on() {
    let settings = Settings {
        subscriber_output: 200_000,
        ..Settings::default()
    };
    on_each(&settings, |server| {
        let (mut stuck, mut well) = (server.client(), server.client());
        for subscriber in [&mut stuck, &mut well] {
            assert_eq!(subscriber.ask("SUBSCRIBE news").array().len(), 3);
        }
        let mut publisher = server.client();
        let publish = format!("PUBLISH news {}", "x".repeat(20_000));
        let mut published = 0;
        until("the stuck one to be cut", || {
            assert_ne!(publisher.ask(&publish), Value::Int(0));
            published += 1;
            assert_eq!(well.reply().array().len(), 3);
            server.service.counters().slow_subscribers == 1
        });
        until("only one to be left", || {
            published += 1;
            let reached = publisher.ask(&publish);
            assert_eq!(well.reply().array().len(), 3);
            reached == Value::Int(1)
        });
        assert_eq!(
            server.service.counters().slow_subscribers,
            1,
            "{}",
            server.name
        );
        stuck.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = last_words(&mut stuck);
    });
}

#[test]
fn a_reply_larger_than_the_limit_is_not_built_and_ends_the_connection() {
    let settings = Settings {
        client_output: 1 << 20,
        ..Settings::default()
    };
    on_each(&settings, |server| {
        let mut c = server.client();
        let value = "x".repeat(100_000);
        assert_eq!(c.ask(&format!("SET k {value}")), Value::ok());
        assert_eq!(c.ask(&format!("RPUSH l {value} 1")), Value::Int(2));
        assert_eq!(c.ask(&format!("SADD s {value}")), Value::Int(1));
        assert_eq!(c.ask(&format!("HSET h f {value}")), Value::Int(1));
        assert_eq!(c.ask(&format!("ZADD z 1 {value}")), Value::Int(1));
        // What is below the limit comes, and the whole pipeline too.
        let nine = format!("MGET {}", ["k"; 9].join(" "));
        for reply in c.pipeline(&[&nine[..], &nine]) {
            assert_eq!(reply.array().len(), 9);
        }
        let many = format!("MGET {}", ["k"; 60].join(" "));
        let sort = format!("SORT l BY none{}", " GET #".repeat(1000));
        let amplifying = [
            &many[..],
            &sort,
            "SRANDMEMBER s -1000000",
            "HRANDFIELD h -1000000 WITHVALUES",
            "ZRANDMEMBER z -1000000 WITHSCORES",
        ];
        for (n, line) in amplifying.into_iter().enumerate() {
            let mut greedy = server.client();
            greedy.send(&[line]);
            let _ = last_words(&mut greedy);
            assert_eq!(
                server.service.counters().large_replies,
                2 * n as u64 + 1,
                "{line}"
            );
            // In a transaction everything runs, and nothing of it is sent.
            let mut greedy = server.client();
            greedy.send(&["MULTI", line, "INCR ran", "EXEC"]);
            let _ = last_words(&mut greedy);
            assert_eq!(c.ask("GET ran"), Value::Bulk((n + 1).to_string()), "{line}");
        }
        assert_eq!(c.info("client_output_buffer_limit_disconnections"), 10);
    });
}

#[test]
fn a_transaction_holds_no_more_than_its_limit() {
    let settings = Settings {
        query_buffer: 100_000,
        ..Settings::default()
    };
    on_each(&settings, |server| {
        let mut c = server.client();
        assert_eq!(c.ask("MULTI"), Value::ok());
        // Small commands take more than their text.
        let mut queued = 0;
        let refused = loop {
            match c.ask("PING") {
                Value::Error(text) => break text,
                reply => assert_eq!(reply, Value::Simple("QUEUED".into())),
            }
            queued += 1;
            assert!(queued <= 100_000 / 16, "{queued}");
        };
        assert!(
            refused.contains("larger than the query buffer limit"),
            "{refused}"
        );
        assert!(matches!(c.ask("EXEC"), Value::Error(text) if text.starts_with("EXECABORT")));
        let watched = (0..1000)
            .map(|n| format!("WATCH key{n}"))
            .collect::<Vec<_>>();
        let refused = c
            .pipeline(&watched)
            .into_iter()
            .filter(|r| *r != Value::ok())
            .count();
        assert!((500..999).contains(&refused), "{refused}");
        let list = c.ask("CLIENT LIST").text();
        let held = list
            .split("multi-mem=")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        assert!(
            (90_000..=100_000).contains(&held.parse::<usize>().unwrap()),
            "{held}"
        );
        assert_eq!(c.ask("UNWATCH"), Value::ok());
        assert!(c.ask("CLIENT LIST").text().contains("multi-mem=0 "));
    });
}

#[test]
fn a_small_output_limit_spares_a_slow_reader() {
    let settings = Settings {
        client_output: 256 << 10,
        ..Settings::default()
    };
    on_each(&settings, |server| {
        let mut client = server.client();
        client.ask(&format!("SET k {}", "x".repeat(10_000)));
        // More than the kernel takes, before the first is read.
        client.send(&vec!["GET k"; 2000]);
        until("pacing", || server.service.counters().commands > 100);
        for _ in 0..2000 {
            assert_eq!(client.reply().text().len(), 10_000, "{}", server.name);
        }
    });
}

#[test]
fn what_a_client_waited_for_is_not_built_beyond_the_limit_either() {
    let settings = Settings {
        client_output: 1 << 20,
        ..Settings::default()
    };
    on_each(&settings, |server| {
        let (mut client, mut other) = (server.client(), server.client());
        client.send(&["BLMPOP 0 1 list LEFT COUNT 5000"]);
        until("the wait", || other.info("blocked_clients") == 1);
        let push = format!(
            "RPUSH list{}",
            format!(" {}", "y".repeat(1000)).repeat(2000)
        );
        assert_eq!(other.ask(&push), Value::Int(2000));
        assert_eq!(last_words(&mut client), "", "{}", server.name);
        until("the count", || server.service.counters().large_replies == 1);
    });
}
