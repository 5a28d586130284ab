//! Scripts run on a real Redis and here: raw replies must be equal, in both versions of the
//! protocol.
//!
//! The other server is `redis-server` on the path; without one this says so and passes.

#![expect(
    clippy::disallowed_methods,
    reason = "these are clients with patience, not protocols"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::wire::{ENGINES, PATIENCE, Server, until};
use tidewire_kv::service::Settings;

/// A server that is stopped with the test.
pub(crate) struct Redis(Child, pub(crate) SocketAddr);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn redis() -> Option<Redis> {
    let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?;
    let child = Command::new("redis-server")
        .args(["--port", &port.port().to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir", "/"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let redis = Redis(child, port);
    until("redis-server to listen", || {
        TcpStream::connect(port).is_ok()
    });
    Some(redis)
}

/// Sends commands, then one whose answer is known, and shows all that comes before that.
fn replies(to: SocketAddr, commands: &[&[&str]]) -> String {
    const END: &str = "the-end-of-it";
    let mut socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    let mut put = |args: &[&str]| {
        bytes.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
        for arg in args {
            bytes.extend_from_slice(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes());
        }
    };
    commands.iter().for_each(|args| put(args));
    put(&["ECHO", END]);
    socket.write_all(&bytes).unwrap();
    let end = format!("${}\r\n{END}\r\n", END.len());
    let (mut got, mut chunk) = (Vec::new(), [0; 4096]);
    while !got.ends_with(end.as_bytes()) {
        match socket.read(&mut chunk).unwrap() {
            0 => break,
            n => got.extend_from_slice(&chunk[..n]),
        }
    }
    got.truncate(got.len().saturating_sub(end.len()));
    String::from_utf8_lossy(&got).into_owned()
}

/// Scripts without keys and arguments.
const SCRIPTS: &str = include_str!("compared.lua");

#[test]
fn scripts_answer_as_on_a_real_server() {
    let Some(redis) = redis() else {
        eprintln!("left out: there is no redis-server");
        return;
    };
    let Some(server) = ENGINES
        .into_iter()
        .find_map(|engine| Server::start(engine, 64, Settings::default()))
    else {
        return;
    };
    std::thread::sleep(Duration::from_millis(50));
    let mut wrong = Vec::new();
    for script in SCRIPTS.split("\n--\n") {
        let script = script.trim_end();
        for hello in ["2", "3"] {
            let setup: &[&[&str]] = &[
                &["FLUSHALL"],
                &["SET", "s", "text"],
                &["SET", "n", "10"],
                &["RPUSH", "l", "a", "b", "c"],
                &["HSET", "h", "f", "v"],
                &["SADD", "set", "m"],
                &["ZADD", "z", "1.5", "m"],
            ];
            let eval = ["EVAL", script, "2", "s", "key2", "one", "2", ""];
            let read_only = ["EVAL_RO", script, "1", "s"];
            let asked: &[&[&str]] = &[&eval, &read_only, &["GET", "s"], &["GET", "new"]];
            let run = |at| {
                replies(at, setup);
                if hello == "3" {
                    // What HELLO says differs.
                    let with: Vec<&[&str]> = [&["HELLO", "3"][..]]
                        .into_iter()
                        .chain(asked.iter().copied())
                        .collect();
                    let all = replies(at, &with);
                    let begin = all.find("modules").map_or(0, |at| at);
                    return all[begin..].to_owned();
                }
                replies(at, asked)
            };
            let (theirs, ours) = (run(redis.1), run(server.addr()));
            if theirs != ours {
                wrong.push(format!(
                    "RESP{hello}: {script}\n  redis: {theirs:?}\n  here:  {ours:?}"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
