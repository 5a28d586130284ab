//! `tidewire bench`: honest servers pass, others are found out, and the exit status says which.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc;

use crate::common::{Running, engines, run, server, stderr, stdout};
use rustix::process::Signal;
use serde_json::Value;

/// Where a run writes its JSON; removed at the end.
struct Report(PathBuf);

impl Report {
    fn new() -> Report {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "tidewire-bench-{}-{}.json",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        Report(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&std::fs::read(&self.0).unwrap()).unwrap()
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a load that must succeed; its JSON.
fn good(args: &[&str]) -> Value {
    let report = Report::new();
    let output = run(&[&["bench"], args, &["--json", report.path()]].concat());
    let (out, err) = (stdout(&output), stderr(&output));
    // Whether this machine was quiet enough to believe it is not what is tested.
    let done = matches!(output.status.code(), Some(0 | 4));
    assert!(done, "{args:?}\n{out}\n{err}");
    assert!(out.contains("MiB/s"), "{out}");
    report.json()
}

#[test]
fn every_engine_answers_every_message() {
    for engine in engines() {
        let echo = good(&[
            "echo",
            "--engine",
            engine,
            "--connections",
            "7",
            "--count",
            "1000",
            "--size",
            "3000",
            "--pipeline",
            "5",
        ]);
        assert_eq!(echo["kind"], "bench echo");
        assert_eq!(echo["result"]["server_engine"], engine);
        assert_eq!(echo["result"]["requests"], 1000);
        assert_eq!(echo["result"]["bytes"], 3_000_000);
        assert_eq!(echo["result"]["latency"]["count"], 1000);
        assert!(echo["result"]["metered"]["server"]["total_ns"].is_u64());
        let ack = good(&[
            "ack",
            "--engine",
            engine,
            "--connections",
            "3",
            "--count",
            "10001",
            "--window",
            "500",
        ]);
        assert_eq!(ack["result"]["requests"], 10_001);
        let discard = good(&["discard", "--engine", engine, "--count", "100000"]);
        assert_eq!(discard["result"]["bytes"], 1_700_000);
        assert_eq!(discard["result"]["latency"], Value::Null);
    }
}

#[test]
fn every_client_engine_makes_the_load() {
    for engine in engines() {
        let echo = good(&[
            "echo",
            "--engine",
            "epoll",
            "--client-engine",
            engine,
            "--connections",
            "4",
            "--count",
            "400",
            "--size",
            "100000",
            "--no-pin",
        ]);
        assert_eq!(echo["result"]["client_engine"], engine);
        assert_eq!(echo["result"]["requests"], 400);
    }
}

#[test]
fn every_classic_load_is_acknowledged_to_the_last() {
    for preset in ["request-reply", "throttled", "head-rest", "sync", "async"] {
        let json = good(&[
            "ack",
            "--engine",
            "epoll",
            "--preset",
            preset,
            "--rounds",
            "2",
            "--round-messages",
            "2001",
        ]);
        let result = &json["result"];
        assert_eq!(result["requests"], 4002, "{preset}");
        assert_eq!(result["rounds"].as_array().unwrap().len(), 2, "{preset}");
        assert_eq!(result["rounds"][1]["messages"], 2001, "{preset}");
        assert_eq!(result["workload"]["ack"]["mode"], preset);
    }
}

#[test]
fn every_level_of_both_protocols_is_acknowledged_to_the_last() {
    for level in ["received", "durable"] {
        for protocol in [
            &["--protocol", "native", "--named"][..],
            &["--mode", "sync"],
        ] {
            let load = [
                "ack", "--engine", "epoll", "--level", level, "--count", "20001",
            ];
            let more = ["--connections", "3", "--window", "500", "--batch", "60"];
            let json = good(&[&load[..], &more, protocol].concat());
            assert_eq!(json["result"]["requests"], 20_001, "{level} {protocol:?}");
        }
    }
    let json = good(&[
        "ack",
        "--protocol",
        "native",
        "--engine",
        "epoll",
        "--rate",
        "2000",
        "--duration",
        "300ms",
        "--warmup",
        "50ms",
        "--no-pin",
    ]);
    assert_eq!(json["result"]["workload"]["native"]["level"], "durable");
    assert_eq!(json["result"]["arrivals"]["per_second"], 2000.0);
    assert!(json["result"]["requests"].as_u64().unwrap() <= 2000);
}

#[test]
fn a_wrong_acknowledgement_of_the_native_protocol_is_found() {
    let addr = server(|mut socket| {
        let mut hello = [0; 35];
        let _ = socket.read_exact(&mut hello);
        let mut welcome = vec![1, 0, 0, 0, 32, 0, 0, 0, 2, 0, 0, 0];
        for n in [1000u32, 1000, 1000] {
            welcome.extend(n.to_le_bytes());
        }
        for n in [100_000u64, 0] {
            welcome.extend(n.to_le_bytes());
        }
        // Acknowledges what was never sent.
        welcome.extend([2, 0, 0, 0, 8, 0, 0, 0]);
        welcome.extend(77u64.to_le_bytes());
        let _ = socket.write_all(&welcome);
        while matches!(socket.read(&mut hello), Ok(1..)) {}
    });
    let load = ["ack", "--protocol", "native", "--count", "10"];
    let (status, said) = against(addr, &load);
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("acknowledged 77, which was not sent"),
        "{said}"
    );
}

#[test]
fn time_limits_a_run_and_all_options_go_together() {
    let json = good(&[
        "echo",
        "--engine",
        "epoll",
        "--duration",
        "200ms",
        "--warmup",
        "50ms",
        "--pipeline",
        "8",
        "--batch",
        "4",
        "--server-args",
        "--workers 2 --placement acceptor --busy-poll 20",
    ]);
    assert!(json["result"]["requests"].as_u64().unwrap() > 0);
    assert_eq!(json["result"]["interrupted"], false);
}

#[test]
fn a_rate_is_kept_and_latency_counts_from_the_schedule() {
    // Takes half a second over its second message: the ten due meanwhile are late.
    let addr = server(|mut socket| {
        let mut bytes = [0; 64];
        for n in 0.. {
            if socket.read_exact(&mut bytes).is_err() || socket.write_all(&bytes).is_err() {
                break;
            }
            if n == 0 {
                std::thread::sleep(std::time::Duration::from_millis(500));
            }
        }
    });
    let addr = addr.to_string();
    let json = good(&[
        "echo",
        "--addr",
        &addr,
        "--size",
        "64",
        "--rate",
        "20",
        "--pipeline",
        "2",
        "--count",
        "20",
    ]);
    let result = &json["result"];
    let elapsed = &result["elapsed"];
    let ns = elapsed["secs"].as_u64().unwrap() * 1_000_000_000 + elapsed["nanos"].as_u64().unwrap();
    assert!(
        ns >= 19 * 50_000_000,
        "19 intervals of 50 ms at least: {result}"
    );
    // From the send, only the two in flight are late: 43 ms in the mean.
    let mean = |of: &Value| of["mean_ns"].as_f64().unwrap();
    assert!(mean(&result["schedule"]["latency"]) > 80e6, "{result}");
    assert!(mean(&result["latency"]) < 80e6, "{result}");
}

/// Runs a load against an address; its status and stderr.
fn against(addr: impl ToString, load: &[&str]) -> (Option<i32>, String) {
    let addr = addr.to_string();
    let output = run(&[&["bench"], load, &["--addr", &addr]].concat());
    (output.status.code(), stderr(&output))
}

#[test]
fn a_changed_byte_is_a_wrong_reply() {
    let addr = server(|mut socket| {
        let mut bytes = [0; 4096];
        let mut total = 0;
        while let Ok(n) = socket.read(&mut bytes) {
            if n == 0 {
                break;
            }
            // One bit of the hundredth message.
            if (total..total + n).contains(&6_400) {
                bytes[6_400 - total] ^= 4;
            }
            total += n;
            if socket.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
    });
    let (status, said) = against(addr, &["echo", "--size", "64", "--count", "1000"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("wrong reply") && said.contains("byte 0 of 64"),
        "{said}"
    );
}

#[test]
fn an_echo_of_too_much_is_a_wrong_reply() {
    let addr = server(|mut socket| {
        let mut bytes = [0; 64];
        if let Ok(n) = socket.read(&mut bytes) {
            let _ = socket.write_all(&[&bytes[..n], b"more"].concat());
            while matches!(socket.read(&mut bytes), Ok(1..)) {}
        }
    });
    let (status, said) = against(addr, &["echo", "--size", "64", "--count", "1"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("wrong reply"), "{said}");
}

#[test]
fn a_connection_closed_too_early_is_lost() {
    let addr = server(|mut socket| {
        let mut bytes = [0; 64];
        let _ = socket.read_exact(&mut bytes);
        let _ = socket.write_all(&bytes);
        let _ = socket.read_exact(&mut bytes);
        let _ = socket.shutdown(Shutdown::Both);
    });
    let (status, said) = against(addr, &["echo", "--size", "64", "--count", "1000"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("lost") && said.contains("unanswered"),
        "{said}"
    );
}

#[test]
fn a_gap_in_the_acknowledgements_is_found() {
    let addr = server(|mut socket| {
        let mut message = [0; 17];
        let mut n = 0u64;
        while socket.read_exact(&mut message).is_ok() {
            // Message 7 is never acknowledged.
            if n != 7 {
                let ack = [&n.to_ne_bytes()[..], &0u32.to_le_bytes()].concat();
                if socket.write_all(&ack).is_err() {
                    return;
                }
            }
            n += 1;
        }
    });
    let load = ["ack", "--mode", "sync", "--count", "100", "--batch", "10"];
    let (status, said) = against(addr, &load);
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("acknowledged 8") && said.contains("message 7 was next"),
        "{said}"
    );
}

#[test]
fn acknowledging_what_was_not_sent_is_found() {
    let addr = server(|mut socket| {
        let mut message = [0; 17];
        let _ = socket.read_exact(&mut message);
        let _ = socket.write_all(&[&99u64.to_ne_bytes()[..], &99u32.to_le_bytes()].concat());
        // A close with unread input would be a reset, and could overtake the reply.
        while matches!(socket.read(&mut message), Ok(1..)) {}
    });
    let (status, said) = against(addr, &["ack", "--count", "10", "--batch", "1"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("outstanding"), "{said}");
}

#[test]
fn a_missing_server_is_not_the_servers_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let (status, said) = against(addr, &["echo", "--count", "1"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("cannot connect") && said.contains(&addr.to_string()),
        "{said}"
    );
}

#[test]
fn what_makes_no_sense_has_status_2() {
    for (args, status) in [
        (vec!["echo", "--size", "0"], 2),
        (vec!["echo", "--connections", "0"], 2),
        (vec!["ack", "--protocol", "native", "--level", "none"], 2),
        (vec!["ack", "--protocol", "native", "--mode", "sync"], 2),
        (vec!["ack", "--protocol", "native", "--rounds", "2"], 2),
        (vec!["ack", "--rate", "2", "--batch", "3"], 2),
        (vec!["echo", "--rate", "0"], 2),
        (vec!["echo", "--arrivals", "poisson"], 2),
        (vec!["idle", "--count", "1"], 2),
        (vec!["idle", "--active", "101"], 2),
        (vec!["echo", "--stall", "0"], 2),
        (vec!["echo", "--count", "1.5"], 2),
        (vec!["echo", "--count", "1", "--duration", "1s"], 2),
        (vec!["ack", "--preset", "sync", "--mode", "async"], 2),
        (vec!["discard", "--size", "100000000"], 2),
        (
            vec!["ab", "echo", "--a", "colour=red", "--b", "engine=epoll"],
            2,
        ),
        (
            vec!["echo", "--server-args", "--colour red", "--count", "1"],
            1,
        ),
    ] {
        let output = run(&[&["bench"], &args[..]].concat());
        assert_eq!(
            output.status.code(),
            Some(status),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn an_interrupted_run_shows_what_there_is() {
    let (tell, busy) = mpsc::channel();
    let addr = server(move |mut socket| {
        let mut bytes = [0; 64];
        for n in 0.. {
            if socket.read_exact(&mut bytes).is_err() || socket.write_all(&bytes).is_err() {
                break;
            }
            if n == 100 {
                let _ = tell.send(());
            }
        }
    });
    let addr = addr.to_string();
    let bench = Running::start(&[
        "bench",
        "echo",
        "--addr",
        &addr,
        "--size",
        "64",
        "--duration",
        "1h",
        "--warmup",
        "0",
    ]);
    busy.recv_timeout(crate::common::PATIENCE).unwrap();
    bench.signal(Signal::INT);
    let output = bench.end();
    let done = matches!(output.status.code(), Some(0 | 4));
    assert!(done, "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains("requests/s") && text.contains("interrupted"),
        "{text}"
    );
}

#[test]
fn two_servers_are_compared_run_by_run() {
    let report = Report::new();
    let output = run(&[
        "bench",
        "ab",
        "echo",
        "--a",
        "engine=epoll,name=one",
        "--b",
        "engine=threads,name=two",
        "--rounds",
        "2",
        "--round-time",
        "200ms",
        "--warmup",
        "20ms",
        "--connections",
        "2",
        "--json",
        report.path(),
    ]);
    let text = stdout(&output);
    // Two rounds mean nothing, and that is said.
    assert_eq!(output.status.code(), Some(4), "{text}{}", stderr(&output));
    assert!(
        text.contains("A = one, B = two") && text.contains("kernel"),
        "{text}"
    );
    let json = report.json();
    assert_eq!(json["kind"], "bench ab");
    let samples = &json["result"]["recording"]["samples"];
    for side in ["a", "b", "control"] {
        assert_eq!(samples[side].as_array().unwrap().len(), 2, "{side}");
        assert!(
            samples[side][0]["server_cpu_ns_per_request"].is_f64(),
            "{samples}"
        );
    }
}

#[test]
fn acknowledging_is_compared_with_discarding_the_same_writes() {
    let report = Report::new();
    let output = run(&[
        "bench",
        "ab",
        "ack",
        "--a",
        "engine=epoll,service=discard",
        "--b",
        "engine=epoll,service=ack/async",
        "--rounds",
        "2",
        "--round-time",
        "200ms",
        "--no-control",
        "--json",
        report.path(),
    ]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let result = &report.json()["result"];
    assert_eq!(result["workload_a"]["discard"]["size"], 17);
    assert_eq!(result["workload_a"]["discard"]["batch"], 150);
    assert_eq!(result["workload_b"]["ack"]["mode"], "async");
}

#[test]
fn a_lying_side_ends_a_comparison_with_status_2() {
    let addr = server(|mut socket| {
        let mut bytes = [0; 64];
        while socket.read_exact(&mut bytes).is_ok() && socket.write_all(&[7; 64]).is_ok() {}
    });
    let side = format!("addr={addr}");
    let output = run(&[
        "bench",
        "ab",
        "echo",
        "--size",
        "64",
        "--a",
        "engine=epoll",
        "--b",
        &side,
        "--rounds",
        "1",
        "--round-time",
        "200ms",
    ]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("side B") && said.contains("wrong reply"),
        "{said}"
    );
}

#[test]
fn the_process_behind_an_address_is_found_and_measured() {
    let addr = server(|mut socket| {
        let mut bytes = [0; 64];
        while socket.read_exact(&mut bytes).is_ok() && socket.write_all(&bytes).is_ok() {}
    });
    let addr = addr.to_string();
    let output = run(&[
        "bench",
        "echo",
        "--size",
        "64",
        "--addr",
        &addr,
        "--duration",
        "200ms",
        "--warmup",
        "0",
        "--no-pin",
    ]);
    let said = stdout(&output) + &stderr(&output);
    let found = format!("{} listens at {addr}", std::process::id());
    assert!(said.contains(&found), "{said}");
    assert!(
        said.contains("server CPU") && !said.contains("not measured"),
        "{said}"
    );
}
