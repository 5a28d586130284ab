//! Every workload by the clock, and the workloads that hold or make
//! connections.

use crate::common::{run, server, stderr, stdout};
use serde_json::Value;
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

/// Runs a load; its result. Whether this machine kept the times is not what is tested.
fn result(load: &[&str]) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    let json = file.path().to_str().unwrap();
    let output = run(&[&["bench"], load, &["--no-pin", "--json", json]].concat());
    let said = format!("{load:?}\n{}\n{}", stdout(&output), stderr(&output));
    assert!(matches!(output.status.code(), Some(0 | 4)), "{said}");
    let all: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    all["result"].clone()
}

const TIMES: [&str; 6] = ["--rate", "2k", "--duration", "500ms", "--warmup", "100ms"];

#[test]
fn every_workload_goes_by_the_clock() {
    let loads: [&[&str]; 9] = [
        &["echo", "--engine", "epoll", "--pipeline", "100"],
        &[
            "echo",
            "--engine",
            "threads",
            "-c",
            "3",
            "--arrivals",
            "poisson",
        ],
        &["ack", "--engine", "epoll", "-c", "2"],
        &["ack", "--engine", "epoll", "--preset", "async"],
        &[
            "ack",
            "--engine",
            "epoll",
            "--protocol",
            "native",
            "--level",
            "received",
        ],
        &[
            "kv",
            "--engine",
            "epoll",
            "--keys",
            "1k",
            "--pipeline",
            "100",
        ],
        &[
            "kv",
            "--engine",
            "epoll",
            "--keys",
            "1k",
            "--protocol",
            "binary",
        ],
        &["http", "--engine", "epoll", "--pipeline", "10"],
        &["http", "--engine", "epoll", "--close", "-c", "4"],
    ];
    for load in loads {
        let result = result(&[load, &TIMES].concat());
        let count = |of: &Value| of["count"].as_u64().unwrap_or_else(|| panic!("{result}"));
        let intended = count(&result["schedule"]["latency"]);
        // Chance and the ends of the half second apart, all that was due counts.
        assert!(
            intended.abs_diff(1000) < 200,
            "{load:?}: {intended} of 1,000"
        );
        let unsent = result["schedule"]["unsent"].as_u64().unwrap();
        assert_eq!(count(&result["latency"]) + unsent, intended, "{load:?}");
    }
    let result = result(&[&["discard", "--engine", "epoll"], &TIMES[..]].concat());
    assert!(result["requests"].as_u64().unwrap() <= 1_100, "{result}");
    assert_eq!(result["schedule"]["latency"], Value::Null);
    assert!(result["schedule"]["slip"]["count"].is_u64(), "{result}");
}

#[test]
fn connections_are_opened_and_closed_by_count_and_by_the_clock() {
    for size in ["0", "64"] {
        let load = ["connect", "--engine", "epoll", "--size", size];
        let counted = result(&[&load[..], &["--count", "500", "-c", "5"]].concat());
        assert_eq!(counted["requests"], 500);
        assert_eq!(counted["latency"]["count"], 500);
        let timed = result(&[&load[..], &TIMES, &["-c", "5", "--sources", "3"]].concat());
        let due = timed["schedule"]["latency"]["count"].as_u64().unwrap();
        assert!(due.abs_diff(1000) < 100, "{due} of 1,000");
    }
}

#[test]
fn connections_are_held_and_a_share_of_them_is_active() {
    let load = ["idle", "--engine", "epoll", "-c", "40", "--active", "10"];
    let more = ["--rate", "400", "--duration", "500ms", "--sources", "4"];
    let held = result(&[&load[..], &more].concat());
    assert_eq!(held["connections"], 40);
    let due = held["schedule"]["latency"]["count"].as_u64().unwrap();
    assert!(due.abs_diff(200) < 20, "{due} of 200");
    let still = result(&[
        "idle",
        "--engine",
        "epoll",
        "-c",
        "40",
        "--duration",
        "300ms",
    ]);
    assert_eq!(still["requests"], 0);
}

#[test]
fn a_stall_shows_in_the_tail_from_when_messages_were_due() {
    // Stands still for 700 ms of a run of three seconds.
    let addr = server(|mut socket| {
        let mut bytes = [0; 64];
        for n in 0.. {
            if socket.read_exact(&mut bytes).is_err() || socket.write_all(&bytes).is_err() {
                break;
            }
            if n == 500 {
                thread::sleep(Duration::from_millis(700));
            }
        }
    });
    let addr = addr.to_string();
    let load = ["echo", "--addr", &addr, "--size", "64", "--rate", "1k"];
    let found = result(&[&load[..], &["--duration", "3s", "--warmup", "0"]].concat());
    let p99 = |of: &Value| of["p99_ns"].as_u64().unwrap();
    // A fortieth of all messages waited for more than 630 ms: p99 is among them.
    assert!(p99(&found["schedule"]["latency"]) > 630_000_000, "{found}");
    let count = found["schedule"]["latency"]["count"].as_u64().unwrap();
    // The run may end late, and what was due until then counts.
    let part = |name: &str| found["elapsed"][name].as_u64().unwrap();
    let due = part("secs") * 1000 + part("nanos") / 1_000_000;
    assert!(due >= 3000 && count.abs_diff(due) < 10, "{due}: {found}");
}
