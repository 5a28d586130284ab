//! `serve kv --durability sync` under SIGKILL: whatever a client has heard is there afterwards, on every
//! engine; and what does not start says why.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::kv::{Client, Reply, serve, text};
use crate::common::{PATIENCE, Running, addr, engines, run, stderr};
use rustix::process::Signal;
use tidewire_kv::binary::encode_write;

/// What one client has heard.
#[derive(Default)]
struct Heard {
    pushed: BTreeSet<String>,
    paired: BTreeSet<String>,
    counted: i64,
    written: BTreeSet<String>,
}

/// Asks until the connection ends.
fn writer(
    client: &mut Client,
    name: &str,
    heard: &mut Heard,
    answers: &AtomicUsize,
) -> io::Result<()> {
    for n in 0.. {
        let ids: Vec<String> = (0..4).map(|i| format!("{name}:{n}:{i}")).collect();
        let mut lines: Vec<String> = ids.iter().map(|id| format!("RPUSH l {id}")).collect();
        let pair = format!("{name}:{n}");
        lines.extend([
            "MULTI".into(),
            format!("RPUSH x {pair}"),
            format!("RPUSH y {pair}"),
            "EXEC".into(),
        ]);
        lines.push("INCR n".into());
        client.send(&lines)?;
        for id in ids {
            assert!(matches!(client.reply()?, Reply::Int(_)));
            heard.pushed.insert(id);
        }
        for _ in 0..3 {
            client.reply()?;
        }
        assert!(matches!(client.reply()?, Reply::Array(_)));
        heard.paired.insert(pair);
        let Reply::Int(counted) = client.reply()? else {
            panic!("no number")
        };
        heard.counted = counted;
        answers.fetch_add(1, SeqCst);
    }
    Ok(())
}

/// Reads what others have written, until the connection ends.
fn reader(client: &mut Client, heard: &mut Heard) -> io::Result<()> {
    loop {
        let Reply::Array(newest) = client.ask("LRANGE l -8 -1")? else {
            panic!("no list")
        };
        heard.pushed.extend(newest.into_iter().map(text));
        let Reply::Array(newest) = client.ask("LRANGE y -2 -1")? else {
            panic!("no list")
        };
        heard.paired.extend(newest.into_iter().map(text));
    }
}

/// Writes by the binary protocol, until the connection ends.
fn binary(
    addr: SocketAddr,
    name: &str,
    heard: &mut Heard,
    answers: &AtomicUsize,
) -> io::Result<()> {
    let mut socket = TcpStream::connect(addr)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    for n in 0.. {
        let key = format!("{name}:{n}");
        let mut request = Vec::new();
        encode_write(key.as_bytes(), b"v", &mut request);
        socket.write_all(&request)?;
        // Operation, length, and the value.
        let mut response = [0; 1 + 1 + 1];
        socket.read_exact(&mut response)?;
        heard.written.insert(key);
        answers.fetch_add(1, SeqCst);
    }
    Ok(())
}

/// What is not there that was heard.
fn check(all: &Heard, client: &mut Client) {
    let there: BTreeSet<String> = client.list("l").unwrap().into_iter().collect();
    let lost: Vec<_> = all.pushed.difference(&there).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    let (x, y) = (client.list("x").unwrap(), client.list("y").unwrap());
    assert_eq!(x, y, "a transaction is torn");
    let there: BTreeSet<String> = y.into_iter().collect();
    let lost: Vec<_> = all.paired.difference(&there).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    let Reply::Int(counted) = client.ask("INCRBY n 0").unwrap() else {
        panic!("no number")
    };
    assert!(
        counted >= all.counted,
        "{} was heard, {counted} is there",
        all.counted
    );
    for key in &all.written {
        let value = client.ask(&format!("GET {key}")).unwrap();
        assert_eq!(value, Reply::Bulk(Some("v".into())), "{key} is lost");
    }
}

#[test]
fn what_any_client_has_heard_survives_sigkill_on_every_engine() {
    let data = tempfile::tempdir().unwrap();
    let mut all = Heard::default();
    let mut rng = fastrand::Rng::new();
    // The next engine finds what the one before has left.
    let rounds: Vec<_> = engines()
        .into_iter()
        .flat_map(|engine| [engine; 3])
        .collect();
    for (round, engine) in rounds.into_iter().enumerate() {
        let (server, resp, binary_at) = serve(engine, "sync", data.path());
        check(&all, &mut Client::connect(resp).unwrap());
        let answers = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..6)
            .map(|at| {
                let answers = answers.clone();
                thread::spawn(move || {
                    let mut heard = Heard::default();
                    let name = format!("{round}:{at}");
                    let ended = match at {
                        0..3 => Client::connect(resp).and_then(|mut client| {
                            writer(&mut client, &name, &mut heard, &answers)
                        }),
                        3 => binary(binary_at, &name, &mut heard, &answers),
                        _ => Client::connect(resp)
                            .and_then(|mut client| reader(&mut client, &mut heard)),
                    };
                    assert!(ended.is_err());
                    heard
                })
            })
            .collect();
        let (enough, began) = (rng.usize(20..400), Instant::now());
        while answers.load(SeqCst) < enough {
            assert!(began.elapsed() < PATIENCE, "no answers");
            thread::yield_now();
        }
        server.signal(Signal::KILL);
        for client in clients {
            let heard = client.join().unwrap();
            all.pushed.extend(heard.pushed);
            all.paired.extend(heard.paired);
            all.written.extend(heard.written);
            all.counted = all.counted.max(heard.counted);
        }
    }
    let (_server, resp, _) = serve("auto", "sync", data.path());
    check(&all, &mut Client::connect(resp).unwrap());
    assert!(all.pushed.len() > 20 && all.written.len() > 3);
}

#[test]
fn an_orderly_stop_keeps_everything_and_every_level_says_what_it_is() {
    for level in ["sync", "interval:50ms", "os", "none"] {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().to_string_lossy();
        let args = [
            "serve",
            "kv/resp",
            "--listen",
            "kv/resp=0",
            "--durability",
            level,
            "--data",
            &path,
        ];
        let mut server = Running::start(&args);
        let line = server.line();
        assert!(line.contains(&format!(" durability={level}")), "{line}");
        let mut client = Client::connect(addr(&line)).unwrap();
        client.ask("SET k v").unwrap();
        let Reply::Bulk(Some(info)) = client.ask("INFO persistence").unwrap() else {
            panic!()
        };
        let word = level.split(':').next().unwrap();
        assert!(info.contains(&format!("\r\ndurability:{word}")), "{info}");
        let directory = match level {
            "none" => "/".into(),
            _ => data.path().join("kv").to_string_lossy().into_owned(),
        };
        let Reply::Array(told) = client.ask("CONFIG GET dir").unwrap() else {
            panic!()
        };
        assert_eq!(told[1], Reply::Bulk(Some(directory)));
        let waited = client.ask("WAITAOF 1 0 30000").unwrap();
        match level {
            "none" => assert!(matches!(waited, Reply::Line(_)), "{waited:?}"),
            _ => assert_eq!(waited, Reply::Array(vec![Reply::Int(1), Reply::Int(0)])),
        }
        // A client that stayed would be waited for.
        drop(client);
        server.signal(Signal::TERM);
        assert!(server.end().status.success());
        let mut server = Running::start(&args);
        let mut client = Client::connect(addr(&server.line())).unwrap();
        let kept = (level != "none").then(|| "v".to_owned());
        assert_eq!(client.ask("GET k").unwrap(), Reply::Bulk(kept), "{level}");
    }
}

#[test]
fn what_cannot_be_opened_is_said() {
    let data = tempfile::tempdir().unwrap();
    let (_server, _, _) = serve("auto", "sync", data.path());
    let path = data.path().to_string_lossy().into_owned();
    let again = run(&[
        "serve",
        "kv",
        "--listen",
        "kv/resp=0",
        "--durability",
        "sync",
        "--data",
        &path,
    ]);
    assert!(!again.status.success());
    let said = stderr(&again);
    assert!(said.contains("another process has this log open"), "{said}");

    let file = data.path().join("file");
    fs::write(&file, "no directory").unwrap();
    let file = file.to_string_lossy();
    let refused = run(&[
        "serve",
        "kv",
        "--listen",
        "kv/resp=0",
        "--durability",
        "sync",
        "--data",
        &file,
    ]);
    assert!(!refused.status.success() && stderr(&refused).contains("cannot open the log in"));

    let wrong = run(&["serve", "kv", "--durability", "always"]);
    assert!(
        stderr(&wrong).contains("sync, replicated, interval:TIME, os or none"),
        "{}",
        stderr(&wrong)
    );
}

/// For a server that may not write there: because there was nothing before, or because something was.
#[test]
fn a_directory_that_may_not_be_written_is_said_and_left_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let (fresh, used) = (place.path().join("fresh"), place.path().join("used"));
    fs::create_dir(&fresh).unwrap();
    let (server, resp, _) = serve("auto", "sync", &used);
    Client::connect(resp).unwrap().ask("SET k v").unwrap();
    server.signal(Signal::TERM);
    server.end();
    let read_only =
        "mount --bind '$0' '$0' && mount -o remount,bind,ro '$0'".replace("'$0'", "\"$0\"");
    let run = |data: &Path, command: &[&str]| {
        Command::new("unshare")
            .args(["-rm", "sh", "-c", &format!("{read_only} && exec \"$@\"")])
            .arg(data)
            .args(command)
            .output()
    };
    let works = run(&fresh, &["true"]);
    if !works.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: nothing can be mounted in a namespace of one's own here");
    }
    for data in [&fresh, &used] {
        let path = data.to_str().unwrap();
        let args = [
            "serve",
            "kv/resp",
            "--listen",
            "kv/resp=0",
            "--admin",
            "off",
            "--control",
            "off",
        ];
        let more = ["--durability", "sync", "--data", path];
        let refused = run(
            data,
            &[&[env!("CARGO_BIN_EXE_tidewire")][..], &args, &more].concat(),
        );
        let refused = refused.unwrap();
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(
            said.contains("cannot open the log in") && said.contains("--data DIR"),
            "{said}"
        );
    }
    assert_eq!(fs::read_dir(&fresh).unwrap().count(), 0);
    let (_server, resp, _) = serve("auto", "sync", &used);
    let kept = Client::connect(resp).unwrap().ask("GET k").unwrap();
    assert_eq!(kept, Reply::Bulk(Some("v".into())));
}

/// A start that is cut short, at any step, has lost nothing for the next one.
#[test]
fn a_server_that_is_killed_while_it_recovers_has_all_of_it_the_next_time() {
    let data = tempfile::tempdir().unwrap();
    let (server, resp, _) = serve("auto", "sync", data.path());
    let mut client = Client::connect(resp).unwrap();
    let lines: Vec<String> = (0..20_000).map(|n| format!("SET key:{n} {n}")).collect();
    for some in lines.chunks(500) {
        client.send(some).unwrap();
        for _ in some {
            assert_eq!(client.reply().unwrap(), Reply::Line("OK".into()));
        }
    }
    server.signal(Signal::KILL);
    server.end();
    let path = data.path().to_str().unwrap();
    let args = [
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--durability",
        "sync",
        "--data",
        path,
    ];
    for millis in [0, 1, 3, 9, 20, 50, 100] {
        let starting = Running::start(&[&args[..], &["--kv-snapshot-growth", "1KiB"]].concat());
        // Wherever it is then.
        thread::sleep(Duration::from_millis(millis));
        starting.signal(Signal::KILL);
        starting.end();
    }
    let (_server, resp, _) = serve("auto", "sync", data.path());
    let mut client = Client::connect(resp).unwrap();
    assert_eq!(client.ask("DBSIZE").unwrap(), Reply::Int(20_000));
    assert_eq!(
        client.ask("GET key:19999").unwrap(),
        Reply::Bulk(Some("19999".into()))
    );
}

/// Syncs that fail, by strace: what cannot be promised is not acknowledged, and the server says why
/// it ends.
#[test]
fn when_a_sync_fails_nothing_more_is_acknowledged_and_the_rest_is_there() {
    let traced = Command::new("strace")
        .args(["-e", "trace=none", "true"])
        .output();
    if !traced.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: strace is not there, or may not trace here");
    }
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_str().unwrap();
    let mut command = Command::new("strace");
    command
        .args(["-f", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"])
        .args(["-e", "inject=fdatasync:error=EIO:when=40+"])
        .arg(env!("CARGO_BIN_EXE_tidewire"))
        .args([
            "serve",
            "kv/resp",
            "--listen",
            "kv/resp=0",
            "--admin",
            "off",
            "--control",
            "off",
        ])
        .args(["--durability", "sync", "--data", path])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut server = Running::from(command.spawn().unwrap());
    let mut client = Client::connect(addr(&server.line())).unwrap();
    let mut acknowledged = 0;
    while let Ok(Reply::Int(n)) = client.ask("INCR n") {
        acknowledged = n;
        assert!(n < 10_000, "no sync fails");
    }
    let ended = server.end();
    assert_eq!(ended.status.code(), Some(2), "{}", stderr(&ended));
    assert!(
        stderr(&ended).contains("the durable log has stopped for good"),
        "{}",
        stderr(&ended)
    );
    assert!(acknowledged > 0);
    let (_server, resp, _) = serve("auto", "sync", data.path());
    let Reply::Int(there) = Client::connect(resp).unwrap().ask("INCRBY n 0").unwrap() else {
        panic!("no number")
    };
    assert!(
        there >= acknowledged,
        "{acknowledged} was heard, {there} is there"
    );
}
