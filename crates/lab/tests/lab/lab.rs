//! `tidewire lab` and `bench compare`, and what both and `bench` write.

use crate::common::schema;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Running, run, server, stderr, stdout};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};

const SUITE: &str = r#"
title = "A <small> suite"
rounds = 2
run_time = "60ms"
warm_up = "10ms"
[[server]]
name = "one"
serve = "--engine epoll"
[[server]]
name = "two & more"
serve = "--engine epoll"
[[server]]
name = "nowhere"
command = ["no-such-program"]
optional = true
[[workload]]
name = "echo"
load = "echo --size 64 -c 2 --no-pin"
[[workload]]
name = "by the clock"
load = "echo --size 64 --rate 1k --no-pin"
"#;

fn json(path: &Path) -> Value {
    let value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let schema = schema::bench();
    schema::check(&schema, &schema, &value, "").unwrap();
    value
}

#[test]
fn a_matrix_is_run_resumed_and_shown_in_every_way() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (suite, runs, result, page) = (at("s.toml"), at("runs"), at("r.json"), at("r.html"));
    std::fs::write(&suite, SUITE).unwrap();
    let lab = [
        "lab", &suite, "--runs", &runs, "--json", &result, "--html", &page,
    ];
    let output = run(&lab);
    let said = stdout(&output) + &stderr(&output);
    // Two blocks are too few for any verdict, and that is the verdict.
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("left out: nowhere") && said.contains("tidewire serve"),
        "{said}"
    );
    assert!(
        stdout(&output)
            .lines()
            .filter(|line| line.starts_with("one again"))
            .count()
            == 2,
        "{said}"
    );
    let report = json(result.as_ref());
    let works = report["result"]["workloads"].as_array().unwrap();
    assert_eq!(works.len(), 2);
    for work in works {
        assert_eq!(work["rounds"], 2);
        for server in work["servers"].as_array().unwrap() {
            assert_eq!(server["runs"].as_array().unwrap().len(), 2, "{server}");
        }
    }
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("A &lt;small&gt; suite") && html.contains("two &amp; more"));
    assert!(!html.contains("<small>") && !html.contains("<script"));
    // The header, and 2 x 2 x 3 runs. What is there is not run again.
    let lines = || std::fs::read_to_string(&runs).unwrap().lines().count();
    assert_eq!(lines(), 13);
    let text = std::fs::read_to_string(&runs).unwrap();
    let half: Vec<&str> = text.lines().take(8).collect();
    std::fs::write(&runs, half.join("\n") + "\n{\"round\":").unwrap();
    assert_eq!(run(&lab).status.code(), Some(4));
    assert_eq!(lines(), 13);
    let again = std::fs::read_to_string(&runs).unwrap();
    assert!(
        again.starts_with(&(half.join("\n") + "\n")),
        "kept as they were"
    );
    // Another seed gives other results.
    let output = run(&[&lab[..], &["--seed", "2"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn an_interrupted_matrix_shows_what_there_is_and_can_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let suite = dir.path().join("s.toml");
    std::fs::write(&suite, SUITE.replace("rounds = 2", "rounds = 10000")).unwrap();
    let runs = dir.path().join("runs");
    let (suite, path) = (suite.to_str().unwrap(), runs.to_str().unwrap());
    let lab = Running::start(&["lab", suite, "--runs", path]);
    let lines = || std::fs::read_to_string(&runs).map_or(0, |text| text.lines().count());
    let begin = std::time::Instant::now();
    while lines() < 9 {
        assert!(begin.elapsed() < crate::common::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    lab.signal(Signal::INT);
    let output = lab.end();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(4), "{text}{}", stderr(&output));
    assert!(
        text.contains("interrupted") && text.contains("one again"),
        "{text}"
    );
}

#[test]
fn suites_built_in_are_shown_and_planned() {
    for suite in ["engines", "classic", "kv", "connections", "http", "peers"] {
        let shown = run(&["lab", suite, "--print"]);
        assert!(stdout(&shown).contains("[[workload]]"), "{suite}");
        let planned = run(&["lab", suite, "--plan"]);
        assert_eq!(planned.status.code(), Some(0), "{}", stderr(&planned));
        assert!(stdout(&planned).contains(" runs in "), "{suite}");
    }
    assert_eq!(run(&["lab", "no-such-suite"]).status.code(), Some(2));
}

#[test]
fn a_lying_server_ends_a_matrix_with_status_2_and_its_name() {
    let addr = server(|mut socket| {
        let mut bytes = [0; 64];
        while socket.read_exact(&mut bytes).is_ok() && socket.write_all(&[7; 64]).is_ok() {}
    });
    let dir = tempfile::tempdir().unwrap();
    let suite = dir.path().join("s.toml");
    let text = format!(
        "title='t'\nrun_time='50ms'\nwarm_up='0'\n[[server]]\nname='liar'\ncommand=['sleep','60']\naddr='{addr}'\n\
         [[workload]]\nname='w'\nload='echo --size 64 --no-pin'\n"
    );
    std::fs::write(&suite, text).unwrap();
    let runs = dir.path().join("runs");
    let output = run(&[
        "lab",
        suite.to_str().unwrap(),
        "--runs",
        runs.to_str().unwrap(),
    ]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("w, liar: wrong reply"), "{said}");
}

#[test]
fn every_report_is_what_its_schema_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let to = ["--json", path.to_str().unwrap(), "--no-pin"];
    let short = ["--duration", "100ms", "--warmup", "0"];
    let loads: [&[&str]; 7] = [
        &["echo", "--rate", "500"],
        &[
            "ack",
            "--preset",
            "sync",
            "--rounds",
            "2",
            "--round-messages",
            "2k",
        ],
        &["kv", "--keys", "100", "--count", "100"],
        &["http", "--count", "100"],
        &["discard"],
        &["idle", "-c", "120"],
        &["connect", "--count", "20"],
    ];
    for load in loads {
        let more: &[&str] = match load
            .iter()
            .any(|word| ["--count", "--rounds"].contains(word))
        {
            true => &[],
            false => &short,
        };
        let output = run(&[&["bench"], load, more, &to].concat());
        assert!(
            matches!(output.status.code(), Some(0 | 4)),
            "{}",
            stderr(&output)
        );
        let report = json(&path);
        assert_eq!(report["kind"], format!("bench {}", load[0]));
    }
    let ab = [
        "bench",
        "ab",
        "echo",
        "--a",
        "engine=epoll",
        "--b",
        "engine=epoll",
        "--rounds",
        "1",
    ];
    let output = run(&[&ab[..], &["--round-time", "50ms"], &to].concat());
    // A round means nothing.
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(json(&path)["kind"], "bench ab");
    let schema = schema::bench();
    let mut broken = json(&path);
    broken["result"]["colour"] = "red".into();
    assert!(
        schema::check(&schema, &schema, &broken, "").is_err(),
        "it can fail"
    );
}

/// A report of `lab` with these runs of one server.
fn report(dir: &Path, name: &str, cost: f64, runs: u32) -> String {
    let run = |round: u32, factor: f64| {
        let cost = factor * cost * (1.0 + 0.001 * f64::from(round % 5));
        serde_json::json!({"metrics": {"server_cpu_ns_per_request": cost}})
    };
    let all = |factor| {
        (0..runs)
            .map(|round| run(round, factor))
            .collect::<Vec<_>>()
    };
    let report = serde_json::json!({"format": 1, "kind": "lab", "result": {"workloads": [{
        "name": "w", "base": "s", "servers": [
            {"name": "s", "control": false, "runs": all(1.0)},
            {"name": "s", "control": true, "runs": all(1.003)},
        ],
    }]}});
    let path = dir.join(name);
    std::fs::write(&path, report.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn results_on_disk_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let a = report(dir.path(), "a", 1000.0, 12);
    let status = |b: &str, more: &[&str]| {
        let output = run(&[&["bench", "compare", &a, b], more].concat());
        (output.status.code(), stdout(&output) + &stderr(&output))
    };
    let (code, said) = status(&report(dir.path(), "worse", 1100.0, 12), &["--markdown"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("**a regression in 1 of 1") && said.contains("| w, s | 1.100 |"),
        "{said}"
    );
    let out = dir.path().join("c.json");
    let (code, said) = status(
        &report(dir.path(), "better", 900.0, 12),
        &["--json", out.to_str().unwrap()],
    );
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(json(&out)["result"]["rows"][0]["change"], "better");
    assert_eq!(status(&a, &[]).0, Some(0));
    assert_eq!(
        status(&report(dir.path(), "few", 1100.0, 5), &[]).0,
        Some(4)
    );
    assert_eq!(status("/no/such/file", &[]).0, Some(1));
    assert_eq!(status(&a, &["--metric", "colour"]).0, Some(1));
}

#[test]
fn latencies_are_written_as_other_tools_read_them_and_a_run_as_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let (hgrm, page) = (dir.path().join("l.hgrm"), dir.path().join("p.html"));
    let to = [
        "--hgrm",
        hgrm.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
    ];
    let load = [
        "bench", "http", "--count", "2k", "--no-pin", "-H", "X: <b>&",
    ];
    let output = run(&[&load[..], &to].concat());
    assert!(
        matches!(output.status.code(), Some(0 | 4)),
        "{}",
        stderr(&output)
    );
    let text = std::fs::read_to_string(hgrm).unwrap();
    assert!(
        text.trim_start().starts_with("Value") && text.contains("Total count    =         2000")
    );
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("<svg") && !html.contains("<b>"));
}

#[test]
fn results_that_are_not_read_to_the_end_are_no_mistake() {
    for args in [
        &["lab", "engines", "--plan"][..],
        &["lab", "engines", "--print"],
        &["bench", "compare", "--help"],
    ] {
        // The reading end is closed before the command begins.
        let (_, closed) = std::io::pipe().unwrap();
        let child = crate::common::tidewire(args)
            .stdout(closed)
            .stderr(Stdio::piped())
            .spawn();
        let ended = child.unwrap().wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{args:?}: {}", stderr(&ended));
        assert!(ended.stderr.is_empty(), "{args:?}: {}", stderr(&ended));
    }
}
