//! A node that lost its disk, with brokers that run already: `TIDEWIRE_KAFKA=host:port,...` says where, at least three. Without
//! it nothing is tested.

use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use tidewire_kafka::{Reader, Settings, Target};
use tidewire_replicate::{Held, Share};

use crate::common::durable::{Place, Server, assert_code, lines};
use crate::common::kv::Client;
use crate::common::{Running, addr, run, stderr, stdout};

/// Brokers that have just begun may ask for patience.
const PATIENCE: Duration = Duration::from_secs(240);

fn home(name: &str) -> Option<String> {
    let Ok(brokers) = std::env::var("TIDEWIRE_KAFKA") else {
        let told = writeln!(
            std::io::stderr(),
            "skipped {name}: TIDEWIRE_KAFKA names no brokers"
        );
        told.unwrap();
        return None;
    };
    Some(format!("kafka://{brokers}/{name}-{}", std::process::id()))
}

fn wait<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn held(target: &Target) -> Option<Held> {
    tidewire_kafka::held(target, Share::Whole, &Settings::default()).ok()
}

/// The offset of the record of a stream that begins at a position.
fn offset(target: &Target, stream: &str, position: u64) -> Option<u64> {
    let mut reader = Reader::open(target, &Settings::default(), None).unwrap();
    while let Some(found) = reader.next(false).unwrap() {
        if &*found.record.stream == stream && found.record.first == position {
            return Some(found.offset);
        }
    }
    None
}

/// The home has lost its first records meanwhile: what is left has its positions, and producers and
/// readers go on.
#[test]
fn a_log_is_made_anew_from_what_its_home_has_kept() {
    let Some(home) = home("restored") else { return };
    let target: Target = home.parse().unwrap();
    let place = Place::new();
    let server = Server::with(&place, "ingest=0", &["--replicate", &home]);
    let sent = |server: &Server, more: &[&str], what: &str| {
        // A server that has not reached its home yet grants less.
        wait("nothing comes home", || {
            let args = [&["--level", "replicated"], more].concat();
            let output = server.send(&args, what);
            output.status.success().then_some(())
        });
    };
    sent(&server, &["--stream", "t", "--producer", "q"], "one\n");
    sent(&server, &["--producer", "p"], &lines(100));
    let read = |server: &Server, cursor| server.read(&["--raw", "--cursor", cursor]);
    assert_eq!(read(&server, "c"), lines(100));
    wait("the cursor does not come home", || {
        held(&target)?
            .cursors
            .get(&("default".into(), "c".into()))
            .copied()
    });
    sent(&server, &["--producer", "p"], "more\n");
    server.kill();

    let data = place.path("data");
    let restore = |to: &str| run(&["log", "restore", "--home", &home, "--data", to]);
    fs::rename(&data, place.path("lost")).unwrap();
    let output = restore(&place.path("whole"));
    assert_code(&output, 0);
    let said = stdout(&output);
    assert!(
        said.starts_with("restored    102 records in 2 streams"),
        "{said}"
    );
    assert!(
        said.contains("cursors     1") && !said.contains("missing"),
        "{said}"
    );

    let before = wait("the last record is not seen", || {
        offset(&target, "default", 100)
    });
    tidewire_kafka::forget(&target, &Settings::default(), before, 0).unwrap();
    let output = restore(&data);
    assert_code(&output, 0);
    let said = stdout(&output);
    for line in [
        "restored    1 records in 2 streams",
        "producers   1 of whom no record is left",
        "missing     positions 0 to 99 of stream \"default\"",
        "missing     positions 0 to 0 of stream \"t\"",
    ] {
        assert!(said.contains(line), "{said}");
    }
    assert_code(&restore(&data), 2);

    let server = Server::with(&place, "ingest=0", &["--replicate", &home]);
    sent(&server, &["--stream", "t", "--producer", "q"], "two\n");
    assert_eq!(server.read(&["--raw", "--stream", "t"]), "two\n");
    assert_eq!(read(&server, "c"), "more\n");
    sent(&server, &["--producer", "p"], "again\n");
    assert_eq!(read(&server, "c"), "again\n");
    server.stop();
    let place = held(&target).unwrap().streams["t"];
    assert_eq!(place.next, 2);
}

#[test]
fn the_home_of_a_store_is_told_from_that_of_a_log() {
    let Some(home) = home("stored") else { return };
    let place = Place::new();
    let data = place.path("data");
    let mut server = Running::start(&[
        "serve",
        "kv",
        "--listen",
        "kv/resp=0",
        "--data",
        &data,
        "--durability",
        "replicated",
        "--kv-replicate",
        &home,
    ]);
    let at = addr(&server.line());
    wait("it does not serve", || {
        let mut client = Client::connect(at).ok()?;
        client
            .ask("SET k v")
            .ok()
            .filter(|reply| format!("{reply:?}").contains("OK"))
    });
    let other = place.path("other");
    let output = run(&["log", "restore", "--home", &home, "--data", &other]);
    assert_code(&output, 2);
    let said = stderr(&output);
    assert!(
        said.contains("kv promote") && said.contains("--follow"),
        "{said}"
    );
    assert!(!fs::exists(&other).unwrap() && !fs::exists(place.path("other.partial")).unwrap());
}
