//! `serve kv --durability sync` under SIGKILL: whatever a client has heard is there afterwards, on every
//! engine; and what does not start says why.

mod common;
#[path = "common/kv.rs"]
mod kv;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use common::{PATIENCE, Running, addr, engines, run, stderr};
use kv::{Client, Reply, text};
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

/// A server with both ports; where they are.
fn serve(engine: &str, data: &Path) -> (Running, SocketAddr, SocketAddr) {
    let data = data.to_string_lossy();
    let mut server = Running::start(&[
        "serve",
        "kv",
        "--listen",
        "kv/resp=0",
        "--listen",
        "kv/binary=0",
        "--engine",
        engine,
        "--workers",
        "2",
        "--durability",
        "sync",
        "--data",
        &data,
        // One is made nearly all the time.
        "--kv-snapshot-growth",
        "4KiB",
    ]);
    let (one, other) = (server.line(), server.line());
    assert!(one.contains(" durability=sync dir="), "{one}");
    let (resp, binary) = if one.contains("mode=resp") {
        (one, other)
    } else {
        (other, one)
    };
    let ports = (addr(&resp), addr(&binary));
    (server, ports.0, ports.1)
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
        let (server, resp, binary_at) = serve(engine, data.path());
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
    let (_server, resp, _) = serve("auto", data.path());
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
        let waited = client.ask("WAITAOF 1 0 30000").unwrap();
        match level {
            "none" => assert!(matches!(waited, Reply::Line(_)), "{waited:?}"),
            _ => assert_eq!(waited, Reply::Array(vec![Reply::Int(1), Reply::Int(0)])),
        }
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
    let (_server, _, _) = serve("auto", data.path());
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
    assert!(said.contains("another process has it open"), "{said}");

    let file = data.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
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
        stderr(&wrong).contains("sync, interval:TIME, os or none"),
        "{}",
        stderr(&wrong)
    );
}
