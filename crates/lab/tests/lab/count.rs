//! Counting instructions and system calls: `bench ab --count` and `lab counts`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{Running, engines, stderr, stdout, tidewire};

/// Whether the tool is here; says why a test is skipped if not.
fn is_here(tool: &str, flag: &str) -> bool {
    let here = Command::new(tool).arg(flag).stdout(Stdio::null()).status();
    let here = here.is_ok_and(|status| status.success());
    if !here {
        eprintln!("skipped: no {tool} here");
    }
    here
}

/// Runs the command to its end, however long that takes on a busy machine: a server under valgrind is fifty times as slow.
fn run(args: &[&str]) -> Output {
    tidewire(args).output().unwrap()
}

pub(crate) fn valgrind() -> bool {
    is_here("valgrind", "--version")
}

/// What every message costs the server below.
#[inline(never)]
fn plain_loop() {
    for n in 0..750u32 {
        std::hint::black_box(n);
    }
}

/// What is planted in it.
#[inline(never)]
fn planted_loop(times: u32) {
    for n in 0..times {
        std::hint::black_box(n);
    }
}

/// This program as a server, for the tests below: an echo on one thread, with a loop that is planted, or a fault in a reply.
/// Without the variable it is no server, and no test either.
#[test]
fn as_a_server() {
    let of = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u32>().ok())
    };
    let (Some(planted), flipped) = (of("TIDEWIRE_PLANTED"), of("TIDEWIRE_FLIPPED")) else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!(
        "\nlistening service=echo addr={}",
        listener.local_addr().unwrap()
    );
    for socket in listener.incoming() {
        let mut socket = socket.unwrap();
        let mut buffer = [0; 64];
        let mut replies = 0;
        while socket.read_exact(&mut buffer).is_ok() {
            plain_loop();
            planted_loop(planted);
            replies += 1;
            if flipped == Some(replies) {
                buffer[7] ^= 1;
            }
            if socket.write_all(&buffer).is_err() {
                break;
            }
        }
    }
}

/// A side that is this program as a server.
fn side(name: &str, settings: &str) -> String {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    format!(
        "name={name},cmd=env {settings} AT=127.0.0.1:0 {own} --exact count::as_a_server --nocapture"
    )
}

fn counted(a: &str, b: &str, more: &[&str]) -> Output {
    let load = [
        "bench",
        "ab",
        "echo",
        "--size",
        "64",
        "--count-messages",
        "200",
        "--a",
        a,
        "--b",
        b,
    ];
    run(&[&load[..], more].concat())
}

#[test]
fn a_planted_loop_is_found_and_named_and_equal_servers_are_level() {
    if !valgrind() {
        return;
    }
    let (plain, planted) = (
        side("plain", "TIDEWIRE_PLANTED=0"),
        side("planted", "TIDEWIRE_PLANTED=25"),
    );
    let output = counted(&plain, &planted, &["--count-only"]);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}{}", stderr(&output));
    assert!(said.contains("more instructions"), "{said}");
    let change = said.lines().find(|line| line.trim_start().starts_with('+'));
    assert!(
        change.is_some_and(|line| line.contains("planted_loop")),
        "{said}"
    );
    let output = counted(&plain, &plain, &["--count-only"]);
    let said = stdout(&output);
    assert!(said.contains("level: instructions differ by 0.0"), "{said}");
}

#[test]
fn a_wrong_reply_ends_with_status_2_and_its_name_when_counted_too() {
    if !valgrind() {
        return;
    }
    let good = side("good", "TIDEWIRE_PLANTED=0");
    let bad = side("bad", "TIDEWIRE_PLANTED=0 TIDEWIRE_FLIPPED=90");
    let output = counted(&good, &bad, &["--count-only"]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    let said = stderr(&output);
    assert!(
        said.contains("flipped byte") && said.contains("counting bad"),
        "{said}"
    );
}

#[test]
fn both_halves_stand_beside_each_other() {
    if !valgrind() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("r.json");
    let (plain, more) = (
        side("plain", "TIDEWIRE_PLANTED=0"),
        side("more", "TIDEWIRE_PLANTED=100"),
    );
    let rounds = [
        "--count",
        "--rounds",
        "2",
        "--round-time",
        "50ms",
        "--no-pin",
        "--json",
    ];
    let output = counted(
        &plain,
        &more,
        &[&rounds[..], &[json.to_str().unwrap()]].concat(),
    );
    let said = stdout(&output);
    for half in ["\ncounted ", "\ntimed ", "\nverdict "] {
        assert!(said.contains(half), "{said}{}", stderr(&output));
    }
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let schema = crate::common::schema::bench();
    crate::common::schema::check(&schema, &schema, &value, "").unwrap();
    assert!(
        value["result"]["counted"]["instructions"]["ratio"]
            .as_f64()
            .unwrap()
            > 1.05
    );
}

#[test]
fn what_cannot_be_counted_is_said() {
    let own = side("own", "TIDEWIRE_PLANTED=0");
    let foreign = counted(&own, "name=p,cmd=python3 -m http.server", &["--count-only"]);
    let said = stderr(&foreign);
    if valgrind() {
        assert_eq!(foreign.status.code(), Some(2), "{said}");
        assert!(said.contains("time alone"), "{said}");
    }
    let there = counted("addr=127.0.0.1:9", &own, &["--count-only"]);
    assert_eq!(there.status.code(), Some(2));
    assert!(
        stderr(&there).contains("runs already"),
        "{}",
        stderr(&there)
    );
    let mut alone = tidewire(&[
        "bench",
        "ab",
        "echo",
        "--count-only",
        "--a",
        "engine=epoll",
        "--b",
        "engine=epoll",
    ]);
    let child = alone
        .env("PATH", "")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = Running::from(child).end();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("no valgrind here"),
        "{}",
        stderr(&output)
    );
    let discard = [
        "bench",
        "ab",
        "discard",
        "--count-only",
        "--a",
        "engine=epoll",
        "--b",
        "engine=epoll",
    ];
    let output = run(&discard);
    assert!(
        stderr(&output).contains("end with a reply"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_table_of_paths_is_written_compared_and_a_change_is_named() {
    if !valgrind() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("counts.txt");
    let at = table.to_str().unwrap();
    let counts = |more: &[&str]| {
        let base = [
            "lab",
            "counts",
            "--only",
            "echo, epoll, 64 bytes, 1",
            "--messages",
            "100",
        ];
        run(&[&base[..], more].concat())
    };
    let written = counts(&["--write", at]);
    assert_eq!(
        written.status.code(),
        Some(0),
        "{}{}",
        stdout(&written),
        stderr(&written)
    );
    let compared = counts(&["--check", at]);
    assert_eq!(
        compared.status.code(),
        Some(0),
        "{}{}",
        stdout(&compared),
        stderr(&compared)
    );
    let text = std::fs::read_to_string(&table).unwrap();
    assert!(text.contains("toolchain: rustc version 1."), "{text}");
    // As if the dearest function had cost 300 less.
    let path = text.lines().find(|line| line.starts_with("path ")).unwrap();
    let dearest = text.lines().find(|line| line.starts_with("  ")).unwrap();
    let (cost, name) = dearest.trim().split_once(' ').unwrap();
    let whole: f64 = path.split(' ').rev().nth(2).unwrap().parse().unwrap();
    let less = format!("{:.1}", whole - 100.0);
    let cheaper = path.replace(&format!(" {whole:.1} "), &format!(" {less} "));
    let lower = format!("  {:.1} {name}", cost.parse::<f64>().unwrap() - 100.0);
    let text = text
        .replacen(path, &cheaper, 1)
        .replacen(dearest, &lower, 1);
    write(&table, &text);
    let changed = counts(&["--check", at]);
    let said = stdout(&changed);
    assert_eq!(changed.status.code(), Some(3), "{said}");
    let named = said.lines().find(|line| line.starts_with("  +"));
    assert!(named.is_some_and(|line| line.ends_with(name)), "{said}");
    // The table says nothing of another compiler.
    let mark = "toolchain: rustc version ";
    write(
        &table,
        &text.replacen(mark, "toolchain: rustc version 0.", 1),
    );
    let other = counts(&["--check", at]);
    assert_eq!(other.status.code(), Some(0));
    assert!(stdout(&other).contains("not valid"), "{}", stdout(&other));
}

#[test]
fn io_uring_is_counted_and_paths_are_added_to_a_table() {
    if !valgrind() || !engines().contains(&"uring") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("counts.txt");
    for only in ["echo, io_uring, 64", "INCR"] {
        let more = [
            "--write",
            table.to_str().unwrap(),
            "--messages",
            "100",
            "--no-calls",
        ];
        let output = run(&[&["lab", "counts", "--only", only][..], &more].concat());
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}{}",
            stdout(&output),
            stderr(&output)
        );
    }
    let text = std::fs::read_to_string(&table).unwrap();
    let paths = text
        .lines()
        .filter(|line| line.starts_with("path "))
        .count();
    assert_eq!(paths, 2, "{text}");
    let more = [
        "--write",
        table.to_str().unwrap(),
        "--messages",
        "120",
        "--no-calls",
    ];
    let output = run(&[&["lab", "counts", "--only", "INCR"][..], &more].concat());
    assert_eq!(
        output.status.code(),
        Some(1),
        "of another number of messages"
    );
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

/// The server is counted with 0, 50, 100, 200 and 400 commands in one pipeline, which cost the same each.
#[test]
fn what_one_more_costs_is_counted_and_a_name_that_nothing_has_is_refused() {
    let refused = run(&["lab", "growth", "--only", "unheard of"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let shown = stdout(&run(&["lab", "growth", "--print"]));
    assert!(shown.lines().count() >= 30, "{shown}");
    if !valgrind() {
        return;
    }
    let words = [
        "lab",
        "growth",
        "--only",
        "pipelined commands",
        "--scale",
        "0.025",
    ];
    let counted = run(&words);
    let said = stdout(&counted);
    assert_eq!(counted.status.code(), Some(0), "{said}{}", stderr(&counted));
    let line = said
        .lines()
        .find(|line| line.ends_with("pipelined commands"));
    let exponent = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    assert!(exponent.is_some_and(|exponent| exponent > 0.5), "{said}");
}
