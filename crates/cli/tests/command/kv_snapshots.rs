//! Snapshots of a real server: asked for, made by themselves, read at the start; and what is said when
//! that cannot be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::kv::{Client, Reply};
use crate::common::{PATIENCE, Running, addr, run, stderr};
use rustix::process::Signal;

fn server(data: &Path, more: &[&str]) -> (Running, Client) {
    let data = data.to_string_lossy();
    let args = ["serve", "kv/resp", "--listen", "kv/resp=0", "--data", &data];
    let mut running = Running::start(&[&args[..], more].concat());
    let line = running.line();
    let client = Client::connect(addr(&line)).unwrap();
    (running, client)
}

const SYNC: &[&str] = &["--durability", "sync"];

fn bulk(reply: Reply) -> String {
    match reply {
        Reply::Bulk(Some(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn field(client: &mut Client, name: &str) -> String {
    let info = bulk(client.ask("INFO persistence").unwrap());
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.strip_prefix(':'))
        .unwrap_or_else(|| panic!("{name} in {info}"))
        .to_owned()
}

/// Asks until a field of INFO is as it should be.
fn wait_for(client: &mut Client, name: &str, is: impl Fn(&str) -> bool) {
    let began = Instant::now();
    while !is(&field(client, name)) {
        assert!(
            began.elapsed() < PATIENCE,
            "{name}: {}",
            field(client, name)
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// Units that are not in a snapshot; a key that has expired since is one.
fn changes(client: &mut Client) -> u64 {
    field(client, "rdb_changes_since_last_save")
        .parse()
        .unwrap()
}

fn snapshots(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("kv")).unwrap();
    let names = entries.map(|entry| entry.unwrap().path());
    names
        .filter(|path| path.to_string_lossy().contains("snapshot-"))
        .collect()
}

fn fill(client: &mut Client) {
    let lines: Vec<String> = (0..2000)
        .map(|n| format!("SET key:{n} value:{n}"))
        .collect();
    client.send(&lines).unwrap();
    for _ in &lines {
        assert_eq!(client.reply().unwrap(), Reply::Line("OK".into()));
    }
    for n in 0..500 {
        client
            .ask(&format!("RPUSH list {n} a{n} b{n} c{n}"))
            .unwrap();
        client.ask(&format!("ZADD zset {n} m{n}")).unwrap();
        client.ask(&format!("HSET hash f{n} {n}")).unwrap();
        client.ask(&format!("SADD set m{n}")).unwrap();
    }
    client.ask("SETRANGE long 1000000 end").unwrap();
    client.ask("SET soon gone PX 1").unwrap();
    client.ask("SET later there EX 1000").unwrap();
}

fn check(client: &mut Client) {
    assert_eq!(bulk(client.ask("GET key:1999").unwrap()), "value:1999");
    assert_eq!(client.ask("LLEN list").unwrap(), Reply::Int(2000));
    assert_eq!(bulk(client.ask("LINDEX list 1999").unwrap()), "c499");
    assert_eq!(bulk(client.ask("ZSCORE zset m77").unwrap()), "77");
    assert_eq!(bulk(client.ask("HGET hash f499").unwrap()), "499");
    assert_eq!(client.ask("SCARD set").unwrap(), Reply::Int(500));
    assert_eq!(client.ask("STRLEN long").unwrap(), Reply::Int(1_000_003));
    assert_eq!(client.ask("GET soon").unwrap(), Reply::Bulk(None));
    assert_eq!(bulk(client.ask("GET later").unwrap()), "there");
}

#[test]
fn save_bgsave_and_shutdown_save_make_snapshots_that_a_start_reads() {
    let data = tempfile::tempdir().unwrap();
    let (running, mut client) = server(data.path(), SYNC);
    fill(&mut client);
    assert!(changes(&mut client) > 4000);
    assert_eq!(client.ask("SAVE").unwrap(), Reply::Line("OK".into()));
    assert!(changes(&mut client) <= 1);
    assert_eq!(field(&mut client, "rdb_saves"), "1");
    let Reply::Int(saved) = client.ask("LASTSAVE").unwrap() else {
        panic!("no time")
    };
    assert_eq!(field(&mut client, "rdb_last_save_time"), saved.to_string());
    assert_eq!(snapshots(data.path()).len(), 1);
    running.signal(Signal::KILL);
    running.end();

    let (running, mut client) = server(data.path(), SYNC);
    check(&mut client);
    client.ask("SET behind it").unwrap();
    let started = client.ask("BGSAVE").unwrap();
    assert_eq!(started, Reply::Line("Background saving started".into()));
    wait_for(&mut client, "rdb_saves", |saves| saves == "1");
    assert_eq!(field(&mut client, "rdb_bgsave_in_progress"), "0");
    let rewriting = client.ask("BGREWRITEAOF").unwrap();
    assert!(matches!(rewriting, Reply::Line(text) if text.starts_with("Background append only")));
    wait_for(&mut client, "rdb_saves", |saves| saves == "2");
    client.ask("SET last one").unwrap();
    let _ = client.ask("SHUTDOWN SAVE");
    assert!(running.end().status.success());

    let (_running, mut client) = server(data.path(), SYNC);
    check(&mut client);
    assert!(changes(&mut client) <= 1);
    assert_eq!(bulk(client.ask("GET behind").unwrap()), "it");
    assert_eq!(bulk(client.ask("GET last").unwrap()), "one");
    assert_eq!(snapshots(data.path()).len(), 1, "older ones are removed");
}

#[test]
fn a_snapshot_is_made_when_the_log_has_grown_and_at_every_level() {
    for level in ["sync", "interval:20ms", "os"] {
        let data = tempfile::tempdir().unwrap();
        let more = ["--durability", level, "--kv-snapshot-growth", "40KiB"];
        let (running, mut client) = server(data.path(), &more);
        fill(&mut client);
        wait_for(&mut client, "rdb_saves", |saves| saves != "0");
        // Everything that was asked for is on the disk then, at any level.
        assert_eq!(
            client.ask("WAITAOF 1 0 30000").unwrap(),
            Reply::Array(vec![Reply::Int(1), Reply::Int(0)])
        );
        running.signal(Signal::KILL);
        running.end();
        let (_running, mut client) = server(data.path(), &more);
        check(&mut client);
    }
}

#[test]
fn without_durability_there_is_nothing_to_save_to_and_that_is_said() {
    let data = tempfile::tempdir().unwrap();
    let (running, mut client) = server(data.path(), &[]);
    for line in ["SAVE", "BGSAVE", "BGREWRITEAOF", "SHUTDOWN SAVE"] {
        let refused = client.ask(line).unwrap();
        assert!(
            matches!(&refused, Reply::Line(text) if text.contains("durability is none")),
            "{line}: {refused:?}"
        );
    }
    assert_eq!(field(&mut client, "rdb_saves"), "0");
    let _ = client.ask("SHUTDOWN NOSAVE");
    assert!(running.end().status.success());
}

/// As in Redis: SAVE would hold it up, the others begin behind it.
#[test]
fn within_a_transaction_save_is_refused_and_bgsave_is_scheduled() {
    let data = tempfile::tempdir().unwrap();
    let (_running, mut client) = server(data.path(), SYNC);
    client.ask("MULTI").unwrap();
    let refused = client.ask("SAVE").unwrap();
    let why = "ERR Command not allowed inside a transaction";
    assert_eq!(refused, Reply::Line(why.into()));
    let aborted = client.ask("EXEC").unwrap();
    assert!(
        matches!(&aborted, Reply::Line(text) if text.starts_with("EXECABORT")),
        "{aborted:?}"
    );
    let lines = ["MULTI", "SET k v", "BGSAVE", "BGREWRITEAOF", "EXEC"];
    client.send(&lines.map(str::to_owned)).unwrap();
    let replies = lines.map(|_| client.reply().unwrap());
    let says = [
        "OK",
        "Background saving scheduled",
        "Background append only file rewriting scheduled",
    ];
    assert_eq!(
        replies[4],
        Reply::Array(says.map(|text| Reply::Line(text.into())).into())
    );
    wait_for(&mut client, "rdb_saves", |saves| saves != "0");
}

/// Bytes of the files of the log.
fn segments(data: &Path) -> Vec<u64> {
    let entries = fs::read_dir(data.join("kv"))
        .unwrap()
        .map(|entry| entry.unwrap());
    let segments = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "seg"));
    segments
        .map(|segment| segment.metadata().unwrap().len())
        .collect()
}

#[test]
fn segments_are_as_long_as_is_said_and_large_units_are_refused_by_name() {
    let data = tempfile::tempdir().unwrap();
    let set = |bytes: usize| format!("SET large {}", "x".repeat(bytes));
    let (running, mut client) = server(data.path(), SYNC);
    assert_eq!(client.ask(&set(3 << 20)).unwrap(), Reply::Line("OK".into()));
    running.signal(Signal::TERM);
    running.end();
    // Units that shorter segments would not take are read from the present segments.
    let (_running, mut client) = server(data.path(), &[SYNC, &["--segment", "8MiB"]].concat());
    assert_eq!(client.ask("STRLEN large").unwrap(), Reply::Int(3 << 20));
    let refused = client.ask(&set(3 << 20)).unwrap();
    assert!(
        matches!(&refused, Reply::Line(text) if text.contains("as one unit")),
        "{refused:?}"
    );
    for _ in 0..20 {
        assert_eq!(client.ask(&set(1 << 20)).unwrap(), Reply::Line("OK".into()));
    }
    assert_eq!(client.ask("SAVE").unwrap(), Reply::Line("OK".into()));
    assert!(
        segments(data.path()).iter().all(|bytes| *bytes <= 8 << 20),
        "{:?}",
        segments(data.path())
    );

    let path = data.path().join("other").to_string_lossy().into_owned();
    let args = [
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--data",
        &path,
        "--segment",
        "1MiB",
    ];
    let refused = run(&[&args[..], SYNC].concat());
    assert!(
        stderr(&refused).contains("--segment 1MiB: the log of kv needs"),
        "{refused:?}"
    );
}

/// A server whose data is on a file system of 100 MiB; `None` if this machine does not let it be made.
fn on_a_small_disk(data: &Path) -> Option<(Running, Client)> {
    let path = data.to_str().unwrap();
    let mount = format!("mount -t tmpfs -o size=100m none '{path}'");
    let works = Command::new("unshare")
        .args(["-rm", "sh", "-c", &mount])
        .status();
    if !works.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no file system can be mounted in a namespace of one's own here");
        return None;
    }
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", &format!("{mount} && exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_tidewire"))
        .args(["serve", "kv/resp", "--listen", "kv/resp=0", "--data", path])
        .args([
            "--admin",
            "off",
            "--control",
            "off",
            "--kv-snapshot-growth",
            "0",
        ])
        .args(SYNC)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = Running::from(command.spawn().unwrap());
    let client = Client::connect(addr(&running.line())).unwrap();
    Some((running, client))
}

#[test]
fn on_a_small_disk_there_is_always_room_for_the_next_snapshot() {
    let data = tempfile::tempdir().unwrap();
    let Some((_running, mut client)) = on_a_small_disk(data.path()) else {
        return;
    };
    fill(&mut client);
    let ok = Reply::Line("OK".into());
    let value = "x".repeat(1 << 19);
    let mut keys = 0;
    // Until there would be no room for a second one beside the first. No snapshot is made by itself here.
    let refused = loop {
        assert_eq!(client.ask("SAVE").unwrap(), ok, "after {keys} keys");
        match client.ask(&format!("SET large:{keys} {value}")).unwrap() {
            Reply::Line(text) if text == "OK" => keys += 1,
            refused => break refused,
        }
        assert!(keys < 180);
    };
    assert!(keys > 40, "{keys}");
    assert!(
        matches!(&refused, Reply::Line(text) if text.starts_with("MISCONF the disk")),
        "{refused:?}"
    );
    check(&mut client);
    assert_eq!(client.ask("SAVE").unwrap(), ok);
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok");
    assert_eq!(
        client.ask(&format!("STRLEN large:{}", keys - 1)).unwrap(),
        Reply::Int(1 << 19)
    );
    // Removals make room once a snapshot has them.
    for key in 0..keys {
        let removed = client.ask(&format!("DEL large:{key}")).unwrap();
        assert_eq!(removed, Reply::Int(1));
    }
    assert_eq!(client.ask("SAVE").unwrap(), ok);
    let began = Instant::now();
    while client.ask(&format!("SET more {value}")).unwrap() != ok {
        assert!(began.elapsed() < PATIENCE, "there is no room again");
        thread::sleep(Duration::from_millis(5));
    }
    check(&mut client);
}

#[test]
fn a_snapshot_that_is_damaged_or_gone_is_said_and_nothing_is_changed() {
    let data = tempfile::tempdir().unwrap();
    let (running, mut client) = server(data.path(), SYNC);
    fill(&mut client);
    client.ask("SAVE").unwrap();
    let snapshot = snapshots(data.path()).remove(0);
    running.signal(Signal::TERM);
    running.end();
    let whole = fs::read(&snapshot).unwrap();
    let path = data.path().to_string_lossy().into_owned();
    let again = || {
        let args = ["serve", "kv/resp", "--listen", "kv/resp=0", "--data", &path];
        run(&[&args[..], SYNC].concat())
    };
    let mut bad = whole.clone();
    bad[30_000] ^= 4;
    for (bytes, says) in [
        (&bad[..], "expected the checksum"),
        (&whole[..whole.len() - 1], "the end of the file"),
        (&whole[..10], "the end of the file"),
    ] {
        fs::write(&snapshot, bytes).unwrap();
        let refused = again();
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(2), "another start is of no use");
        assert!(said.contains("snapshot-") && said.contains(says), "{said}");
        assert_eq!(fs::read(&snapshot).unwrap(), bytes, "nothing was changed");
        assert!(said.contains("start from the log alone"), "{said}");
    }
    // As it was told.
    fs::remove_file(&snapshot).unwrap();
    let (running, mut client) = server(data.path(), SYNC);
    check(&mut client);
    running.signal(Signal::TERM);
    running.end();
    fs::write(&snapshot, &whole).unwrap();
    let (_running, mut client) = server(data.path(), SYNC);
    check(&mut client);
}

#[test]
fn a_backup_has_the_snapshot_and_what_came_behind_it() {
    let data = tempfile::tempdir().unwrap();
    let (_running, mut client) = server(data.path(), SYNC);
    fill(&mut client);
    client.ask("SAVE").unwrap();
    client.ask("SET behind it").unwrap();
    let (kv, copy) = (data.path().join("kv"), data.path().join("copy"));
    let [kv, copy] = [kv, copy].map(|path| path.to_string_lossy().into_owned());
    let copied = run(&["log", "backup", "--data", &kv, &copy]);
    assert!(copied.status.success(), "{}", stderr(&copied));
    let elsewhere = tempfile::tempdir().unwrap();
    let to = elsewhere.path().join("kv").to_string_lossy().into_owned();
    let restored = run(&["log", "restore", &copy, "--data", &to]);
    assert!(restored.status.success(), "{}", stderr(&restored));
    let (_other, mut client) = server(elsewhere.path(), SYNC);
    check(&mut client);
    assert_eq!(bulk(client.ask("GET behind").unwrap()), "it");
}
