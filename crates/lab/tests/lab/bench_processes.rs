//! `tidewire bench --processes`: what several processes find is what one would have found.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{PATIENCE, Running, run, schema, server, stderr, stdout};

fn in_three(args: &[&str]) -> std::process::Output {
    run(&[&["bench"], args, &["--processes", "3", "--no-pin"]].concat())
}

/// The result of a run that has to succeed, whatever the machine made of the figures.
fn good(args: &[&str]) -> Value {
    let path = std::env::temp_dir().join(format!(
        "tidewire-processes-{}-{}.json",
        std::process::id(),
        args.join("-").replace('/', "_")
    ));
    let output = in_three(&[args, &["--json", path.to_str().unwrap()]].concat());
    let done = matches!(output.status.code(), Some(0 | 4));
    assert!(done, "{args:?}\n{}\n{}", stdout(&output), stderr(&output));
    let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let schema = schema::bench();
    schema::check(&schema, &schema, &json, "").unwrap();
    json["result"].clone()
}

#[test]
fn counts_histograms_and_rounds_of_several_processes_are_added_up() {
    let echo = good(&["echo", "-c", "8", "-n", "1001", "--size", "100"]);
    assert_eq!(echo["requests"], 1001);
    assert_eq!(echo["bytes"], 100_100);
    assert_eq!(echo["latency"]["count"], 1001);
    assert_eq!(echo["generator_processes"], 3);
    assert!(echo["metered"]["generator"]["total_ns"].as_u64().unwrap() > 0);
    let kv = good(&[
        "kv",
        "-c",
        "5",
        "-n",
        "500",
        "--keys",
        "100",
        "--pipeline",
        "3",
    ]);
    assert_eq!(kv["requests"], 500);
    let rounds = good(&["ack", "-c", "4", "--rounds", "2", "--round-messages", "300"]);
    assert_eq!(rounds["requests"], 4 * 2 * 300);
    let mut of: Vec<u64> = rounds["rounds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|round| round["connection"].as_u64().unwrap())
        .collect();
    of.sort_unstable();
    assert_eq!(
        of,
        [0, 0, 1, 1, 2, 2, 3, 3],
        "each connection in one process only"
    );
}

#[test]
fn a_rate_is_that_of_all_processes_together() {
    let echo = good(&["echo", "-c", "7", "--rate", "700", "--duration", "2s"]);
    let due = echo["schedule"]["latency"]["count"].as_f64().unwrap();
    // No process measures for less than two seconds, or for longer than this.
    let elapsed = &echo["elapsed"];
    let longest = elapsed["secs"].as_f64().unwrap() + elapsed["nanos"].as_f64().unwrap() / 1e9;
    // Seven schedules, each of which may have one more or less at either end.
    assert!(
        (1386.0..=700.0 * longest + 14.0).contains(&due),
        "{due} were due in {longest} s"
    );
    let course = echo["progress"].as_array().unwrap();
    assert!(
        course.last().unwrap()[1].as_u64().unwrap() > 0,
        "{course:?}"
    );
}

#[test]
fn a_wrong_reply_to_one_process_is_found_and_named() {
    let connections = Arc::new(AtomicU64::new(0));
    let addr = server(move |mut socket| {
        let wrong = connections.fetch_add(1, Relaxed) == 4;
        let mut message = [0; 100];
        while socket.read_exact(&mut message).is_ok() {
            if wrong {
                message[17] ^= 1;
            }
            if socket.write_all(&message).is_err() {
                return;
            }
        }
    });
    let addr = addr.to_string();
    let output = in_three(&["echo", "-c", "6", "--size", "100", "--addr", &addr]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("process") && said.contains("flipped byte"),
        "{said}"
    );
}

#[test]
fn ctrl_c_gives_what_all_processes_have_found_so_far() {
    let messages = Arc::new(AtomicU64::new(0));
    let echoed = messages.clone();
    let addr = server(move |mut socket| {
        let mut message = [0; 512];
        while socket.read_exact(&mut message).is_ok() && socket.write_all(&message).is_ok() {
            echoed.fetch_add(1, Relaxed);
        }
    });
    let addr = addr.to_string();
    let bench = Running::start(&[
        "bench",
        "echo",
        "-c",
        "6",
        "--processes",
        "3",
        "--no-pin",
        "--duration",
        "1h",
        "--warmup",
        "0",
        "--addr",
        &addr,
    ]);
    let begin = Instant::now();
    while messages.load(Relaxed) < 100 {
        assert!(begin.elapsed() < PATIENCE, "no load");
        std::thread::sleep(Duration::from_millis(5));
    }
    bench.signal(Signal::INT);
    let output = bench.end();
    let (out, err) = (stdout(&output), stderr(&output));
    assert!(matches!(output.status.code(), Some(0 | 4)), "{out}\n{err}");
    assert!(
        out.contains("interrupted") && out.contains("requests/s"),
        "{out}\n{err}"
    );
}

#[test]
fn what_makes_many_runs_refuses_several_processes() {
    for args in [
        &[
            "ab",
            "echo",
            "-c",
            "4",
            "--a",
            "engine=epoll",
            "--b",
            "engine=epoll",
        ][..],
        &["echo", "-c", "4", "--sweep"],
        &["echo", "-c", "2"],
    ] {
        let output = in_three(args);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {}",
            stdout(&output)
        );
        assert!(
            stderr(&output).contains("--processes"),
            "{}",
            stderr(&output)
        );
    }
}
