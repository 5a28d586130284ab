//! `tidewire bench kv`: keys, values and commands of the user's own, against this project's store, against servers
//! that lie, and against Redis where there is one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{run, stderr, stdout};

const REDIS: &str = "/usr/bin/redis-server";

fn bench(args: &[&str]) -> Output {
    run(&[&["bench", "kv"], args].concat())
}

/// What a run that has to succeed shows.
#[track_caller]
fn good(args: &[&str]) -> String {
    let output = bench(args);
    // Whether this machine was quiet enough to believe it is not what is tested.
    let done = matches!(output.status.code(), Some(0 | 4));
    assert!(done, "{args:?}\n{}\n{}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// The status of a run that fails, and what it says.
fn bad(args: &[&str]) -> (i32, String) {
    let output = bench(args);
    (output.status.code().unwrap(), stderr(&output))
}

const FEW: [&str; 4] = ["--engine", "epoll", "--count", "3000"];

#[test]
fn zipf_keys_and_values_of_many_lengths_are_checked_to_the_byte() {
    for size in ["1..300", "1:90,1k:9,8k:1"] {
        let args = ["--keys", "500,zipf:0.99", "--value-size", size, "-c", "3"];
        let out = good(&[&FEW[..], &args, &["--pipeline", "20"]].concat());
        assert!(out.contains("zipf 0.99"), "{out}");
        assert!(out.contains("(3,000 in"), "{out}");
    }
    let binary = [
        "--protocol",
        "binary",
        "--value-size",
        "1..255",
        "--keys",
        "100",
    ];
    good(&[&FEW[..], &binary].concat());
}

#[test]
fn any_command_is_sent_and_its_replies_are_checked() {
    let hash = [
        "--keys",
        "50",
        "--command",
        "HGET h:{key} f",
        "--fill-command",
        "HSET h:{key} f {value}",
        "--value-size",
        "1..200",
        "-c",
        "2",
    ];
    // Every key is there, so none may be missing.
    let out = good(&[&FEW[..], &hash, &["--reply", "bulk:{value}"]].concat());
    assert!(out.contains("HGET h:{key} f"), "{out}");
    // Without being filled they are.
    let unfilled = [
        "--keys",
        "50",
        "--command",
        "HGET h:{key} f",
        "--reply",
        "bulk:{value}",
    ];
    let (status, said) = bad(&[&FEW[..], &unfilled].concat());
    assert_eq!(status, 2, "{said}");
    assert!(
        said.contains("HGET h:{key} f") && said.contains("$-1"),
        "{said}"
    );
    // By kind alone.
    good(
        &[
            &FEW[..],
            &["--keys", "9", "--command", "RPUSH l:{n} {value}"],
        ]
        .concat(),
    );
    let wrong = [
        "--keys",
        "9",
        "--command",
        "INCR c:{n}",
        "--reply",
        "status",
    ];
    let (status, said) = bad(&[&FEW[..], &wrong].concat());
    assert_eq!(status, 2, "{said}");
    // An error is never what was asked for, unless it was.
    let (status, said) = bad(&[&FEW[..], &["--command", "NOSUCHCOMMAND {key}"]].concat());
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("-ERR"), "{said}");
    good(
        &[
            &FEW[..],
            &["--command", "NOSUCHCOMMAND {key}", "--reply", "error"],
        ]
        .concat(),
    );
}

#[test]
fn nonsense_is_refused_before_anything_is_started() {
    for args in [
        &["--keys", "zipf:-1"][..],
        &["--keys", "zipf:nan"],
        &["--keys", "10,zipf"],
        &["--value-size", "9..8"],
        &["--value-size", "0"],
        &["--value-size", "64:0"],
        &["--value-size", "9k"],
        &["--command", "GET {who}"],
        &["--command", ""],
        &["--command", "GET 'a"],
        &["--command", "GET {key}", "--reply", "text"],
        &["--command", "GET {key}", "--reads", "10"],
    ] {
        let (status, said) = bad(args);
        assert_eq!(status, 2, "{args:?}: {said}");
        assert!(said.contains(args[args.len() - 2]), "{args:?}: {said}");
    }
    for args in [
        &["--reply", "any"][..],
        &["--command", "GET {key}", "--protocol", "binary"],
        &["--command", "EVALSHA {sha} 1 {key}"],
        &["--script", "/nonexistent/script.lua"],
        &["--seed", "3"],
        &["--protocol", "binary", "--value-size", "1..256"],
    ] {
        let (status, said) = bad(args);
        assert_eq!(status, 2, "{args:?}: {said}");
    }
}

/// A script in a file; removed at the end.
struct Script(PathBuf);

impl Script {
    fn new(name: &str, text: &str) -> Script {
        let name = format!("tidewire-bench-{}-{name}.lua", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Script(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_server_without_scripts_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut bytes = [0; 4096];
        let _ = socket.read(&mut bytes);
        let _ = socket.write_all(b"-ERR unknown command 'SCRIPT'\r\n");
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let script = Script::new("refused", "return 1");
    let (status, said) = bad(&["--addr", &addr, "--script", script.path(), "--count", "1"]);
    assert_eq!(status, 1, "{said}");
    assert!(
        said.contains("does not take the script") && said.contains("unknown command"),
        "{said}"
    );
}

/// A Redis of its own on a free port.
struct Redis {
    child: Child,
    addr: SocketAddr,
}

impl Redis {
    fn start() -> Option<Redis> {
        if !Path::new(REDIS).exists() {
            eprintln!("skipped: there is no {REDIS}");
            return None;
        }
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = free.local_addr().unwrap();
        drop(free);
        let port = addr.port().to_string();
        let child = Command::new(REDIS)
            .args([
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Redis { child, addr };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(addr).is_err() {
            assert!(Instant::now() < deadline, "Redis does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Some(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn redis_runs_scripts_and_any_command() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let addr = redis.addr.to_string();
    let with = |args: &[&str]| good(&[&["--addr", &*addr, "--count", "3000"], args].concat());
    let script = Script::new(
        "redis",
        "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])",
    );
    with(&[
        "--keys",
        "200,zipf:1.2",
        "--value-size",
        "1..500",
        "-c",
        "4",
        "--pipeline",
        "8",
        "--script",
        script.path(),
        "--command",
        "EVALSHA {sha} 1 {key} {value}",
        "--reply",
        "bulk:{value}",
    ]);
    // GET has to find the value that the script stored.
    with(&[
        "--keys",
        "200",
        "--value-size",
        "1..500",
        "--no-fill",
        "--reads",
        "100",
    ]);
    let short = Script::new("default", "return KEYS[1]");
    with(&[
        "--keys",
        "10",
        "--script",
        short.path(),
        "--reply",
        "bulk:{key}",
    ]);
    with(&[
        "--keys",
        "10",
        "--command",
        "HSET h:{key} f {value}",
        "--reply",
        "integer:0|integer:1",
    ]);
    with(&["--keys", "10", "--command", "HGETALL h:{key}"]);
    let broken = Script::new("broken", "return (");
    let (status, said) = bad(&["--addr", &addr, "--script", broken.path(), "--count", "1"]);
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("does not take the script"), "{said}");
}
