//! What a store forgets on purpose stays forgotten, and what WAITAOF has promised stays, under SIGKILL: keys that have
//! expired or were evicted, and changes at a level at which replies promise nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::kv::{Client, Reply};
use crate::common::{PATIENCE, Running, addr, run, stderr};
use rustix::process::Signal;

const ROUNDS: u64 = 4;

fn serve(level: &str, data: &Path, more: &[&str]) -> (Running, Client) {
    let data = data.to_str().unwrap();
    let args = ["serve", "kv/resp", "--listen", "kv/resp=0"];
    let durable = ["--durability", level, "--data", data];
    let mut server = Running::start(&[&args[..], &durable, more].concat());
    let client = Client::connect(addr(&server.line())).unwrap();
    (server, client)
}

fn kill(server: Running) {
    server.signal(Signal::KILL);
    server.end();
}

fn number(reply: Reply) -> i64 {
    match reply {
        Reply::Int(n) => n,
        other => panic!("{other:?}"),
    }
}

/// At a level that syncs once in ten minutes, killed as soon as WAITAOF has answered.
#[test]
fn what_waitaof_has_promised_survives_sigkill_at_every_level() {
    for level in ["interval:600s", "os"] {
        let data = tempfile::tempdir().unwrap();
        let mut promised = 0;
        for round in 0..ROUNDS {
            let (server, mut client) = serve(level, data.path(), &[]);
            let there = number(client.ask("INCRBY n 0").unwrap());
            assert!(
                there >= promised,
                "{level}: {promised} was promised, {there} is there"
            );
            for _ in 0..=7 * round {
                promised = number(client.ask("INCR n").unwrap());
                let waited = client.ask("WAITAOF 1 0 30000").unwrap();
                assert_eq!(waited, Reply::Array(vec![Reply::Int(1), Reply::Int(0)]));
            }
            kill(server);
        }
        let (_server, mut client) = serve(level, data.path(), &[]);
        assert!(
            number(client.ask("INCRBY n 0").unwrap()) >= promised,
            "{level}"
        );
    }
}

/// Keys whose end a client has seen do not come back, the others are there with their time.
#[test]
fn what_has_expired_stays_expired_through_sigkill() {
    let data = tempfile::tempdir().unwrap();
    let (mut gone, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..ROUNDS {
        let (server, mut client) = serve("sync", data.path(), &["--kv-snapshot-growth", "4KiB"]);
        check(&mut client, &gone, &kept);
        for n in 0..100 {
            let (short, long) = (format!("short:{round}:{n}"), format!("long:{round}:{n}"));
            client
                .ask(&format!("SET {short} v PX {}", 1 + n % 20))
                .unwrap();
            client.ask(&format!("SET {long} v EX 100000")).unwrap();
            // The name is used again, without a time: it is not to be taken for the key that
            // expired.
            client.ask(&format!("SET again:{n} v PX 1")).unwrap();
            client.ask(&format!("SET again:{n} v")).unwrap();
            gone.insert(short);
            kept.extend([long, format!("again:{n}")]);
        }
        let began = Instant::now();
        for key in &gone {
            while client.ask(&format!("EXISTS {key}")).unwrap() == Reply::Int(1) {
                assert!(began.elapsed() < PATIENCE, "{key} does not expire");
                thread::sleep(Duration::from_millis(1));
            }
        }
        kill(server);
    }
    let (_server, mut client) = serve("sync", data.path(), &[]);
    check(&mut client, &gone, &kept);
    let left = number(client.ask("TTL long:0:0").unwrap());
    assert!((1..=100_000).contains(&left), "{left}");
    assert_eq!(client.ask("TTL again:0").unwrap(), Reply::Int(-1));
}

fn check(client: &mut Client, gone: &BTreeSet<String>, kept: &BTreeSet<String>) {
    for (keys, there) in [(gone, 0), (kept, 1)] {
        let lines: Vec<_> = keys.iter().map(|key| format!("EXISTS {key}")).collect();
        client.send(&lines).unwrap();
        for key in keys {
            assert_eq!(client.reply().unwrap(), Reply::Int(there), "{key}");
        }
    }
}

/// A key that a client has set and then not found was evicted: it does not come back, and what is there is what was
/// written. More memory is given after the kill, so that nothing has to go before it is looked for.
#[test]
fn what_was_evicted_stays_evicted_through_sigkill() {
    let data = tempfile::tempdir().unwrap();
    let mut evicted = BTreeSet::new();
    let (value, mut written) = ("v".repeat(2000), 0);
    for _ in 0..ROUNDS {
        let (server, mut client) = serve("sync", data.path(), &[]);
        check(&mut client, &evicted, &BTreeSet::new());
        client
            .ask("CONFIG SET maxmemory-policy allkeys-random")
            .unwrap();
        client.ask("CONFIG SET maxmemory 4mb").unwrap();
        let from = written;
        for _ in 0..3000 {
            let set = client.ask(&format!("SET key:{written} {value}")).unwrap();
            assert_eq!(set, Reply::Line("OK".into()));
            written += 1;
        }
        for n in from..written {
            let key = format!("key:{n}");
            match client.ask(&format!("STRLEN {key}")).unwrap() {
                Reply::Int(0) => drop(evicted.insert(key)),
                len => assert_eq!(len, Reply::Int(2000)),
            }
        }
        kill(server);
    }
    assert!(evicted.len() > 1000, "{} were evicted", evicted.len());
    let (_server, mut client) = serve("sync", data.path(), &[]);
    check(&mut client, &evicted, &BTreeSet::new());
    assert!(number(client.ask("DBSIZE").unwrap()) > 100);
}

/// The files of the log, the newest last.
fn segments(data: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(data.join("kv")).unwrap();
    let names = entries.map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = names
        .filter(|path| path.extension().is_some_and(|ending| ending == "seg"))
        .collect();
    names.sort();
    names
}

/// What is behind a snapshot and was acknowledged is missed by name when it is damaged, and nothing is changed; a repair
/// leaves the snapshot and what stands before the damage.
#[test]
fn a_damaged_tail_behind_a_snapshot_is_said_and_repaired_when_agreed() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path();
    let (server, mut client) = serve("sync", data, &[]);
    let lines: Vec<_> = (0..500).map(|n| format!("SET before:{n} v")).collect();
    client.send(&lines).unwrap();
    for _ in &lines {
        client.reply().unwrap();
    }
    assert_eq!(client.ask("SAVE").unwrap(), Reply::Line("OK".into()));
    for n in 0..3 {
        client.ask(&format!("SET behind:{n} tail:{n}")).unwrap();
    }
    server.signal(Signal::TERM);
    assert!(server.end().status.success());
    let segment = segments(data).pop().unwrap();
    let whole = fs::read(&segment).unwrap();
    let mut bad = whole.clone();
    let at = bad
        .windows(6)
        .rposition(|window| window == b"tail:2")
        .unwrap();
    bad[at] ^= 1;
    fs::write(&segment, &bad).unwrap();
    let kv = data.join("kv");
    let (path, kv) = (data.to_str().unwrap(), kv.to_str().unwrap());
    let args = [
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--durability",
        "sync",
    ];
    let refused = run(&[&args[..], &["--data", path]].concat());
    let (said, name) = (
        stderr(&refused),
        segment.file_name().unwrap().to_str().unwrap(),
    );
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains(name) && said.contains("log check"), "{said}");
    assert_eq!(fs::read(&segment).unwrap(), bad, "nothing was changed");
    assert_eq!(run(&["log", "check", "--data", kv]).status.code(), Some(2));
    let repaired = run(&["log", "repair", "--data", kv, "--yes"]);
    assert!(repaired.status.success(), "{}", stderr(&repaired));
    // The loss has to be agreed to once more: the store is another without what was in there.
    let refused = run(&[&args[..], &["--data", path]].concat());
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("--kv-accept-loss"), "{said}");
    let dump = data.join("dump.rdb");
    let export = ["kv", "export", "--data", path, dump.to_str().unwrap()];
    let refused = run(&export);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("--accept-loss"), "{said}");
    let exported = run(&[&export[..], &["--accept-loss"]].concat());
    let said = stderr(&exported);
    assert!(exported.status.success(), "{said}");
    assert!(said.contains("502 keys") && said.contains("lost"), "{said}");
    let (_server, mut client) = serve("sync", data, &["--kv-accept-loss"]);
    assert_eq!(client.ask("DBSIZE").unwrap(), Reply::Int(502));
    for (n, there) in [(0, 1), (1, 1), (2, 0)] {
        let found = client.ask(&format!("EXISTS behind:{n}")).unwrap();
        assert_eq!(found, Reply::Int(there), "behind:{n}");
    }
}

/// A log whose end is gone, and the file of claims that would miss it, ends before its snapshot: a start would write before that,
/// so it is refused, but what the snapshot has can be had.
#[test]
fn a_log_that_ends_before_its_snapshot_is_said_and_what_that_has_is_exported() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path();
    let args = ["--segment", "7MiB", "--kv-snapshot-growth", "0"];
    let (server, mut client) = serve("sync", data, &args);
    let fill = |client: &mut Client, name: &str| {
        for n in 0..8 {
            let set = format!("SET {name}:{n} {}", "x".repeat(1 << 20));
            assert_eq!(client.ask(&set).unwrap(), Reply::Line("OK".into()));
        }
    };
    fill(&mut client, "before");
    assert_eq!(client.ask("SAVE").unwrap(), Reply::Line("OK".into()));
    fill(&mut client, "behind");
    server.signal(Signal::TERM);
    assert!(server.end().status.success());
    // Taken when nothing is removed any more: SAVE answers before the log is cut behind its snapshot.
    let first = segments(data).remove(0);
    // A segment is left that ends before the next snapshot.
    let kv = data.join("kv");
    let kept = fs::read(&first).unwrap();
    let (server, mut client) = serve("sync", data, &args);
    assert_eq!(client.ask("SAVE").unwrap(), Reply::Line("OK".into()));
    server.signal(Signal::TERM);
    assert!(server.end().status.success());
    for segment in segments(data) {
        fs::remove_file(segment).unwrap();
    }
    fs::remove_file(kv.join("claims")).unwrap();
    fs::write(&first, kept).unwrap();

    let path = data.to_str().unwrap();
    let refused = run(&[
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--durability",
        "sync",
        "--data",
        path,
    ]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("its end is lost") && said.contains("kv export"),
        "{said}"
    );
    let dump = data.join("dump.rdb");
    let export = ["kv", "export", "--data", path, dump.to_str().unwrap()];
    assert_eq!(run(&export).status.code(), Some(1));
    let exported = run(&[&export[..], &["--accept-loss"]].concat());
    let said = stderr(&exported);
    assert!(exported.status.success(), "{said}");
    assert!(
        said.contains("16 keys") && said.contains("the end of the log"),
        "{said}"
    );
}
