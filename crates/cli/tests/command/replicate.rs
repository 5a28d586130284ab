//! The home of a log: what is refused at once, and what a server without a home does.

use crate::common::durable::{Place, Server, assert_code};
use crate::common::{run, stderr};

const HOME: &str = "kafka://127.0.0.1:1/tide";

fn refused(args: &[&str]) -> String {
    let output = run(args);
    assert_code(&output, 2);
    stderr(&output)
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_opened() {
    let place = Place::new();
    let data = place.path("none");
    let data = &*data;
    let serve = [
        "serve",
        "ingest",
        "--listen",
        "ingest=127.0.0.1:0",
        "--data",
        data,
    ];
    for (flags, says) in [
        (&["--replicate", "kafka://a"][..], "names no topic"),
        (
            &["--replicate", HOME, "--sync", "os"],
            "needs a log that syncs",
        ),
        (&["--backlog-bytes", "1GiB"], "no log is replicated:"),
        (&["--replicate-unsafe"], "no log is replicated:"),
        (&["--fleet", "a:1,b:1"], "no log is replicated:"),
        (&["--replicate-record", "message"], "no log is replicated:"),
        (&["--replicate-stream", "app"], "no log is replicated:"),
        (
            &["--replicate-stream", "a*b", "--replicate", HOME],
            "names no streams",
        ),
        (
            &[
                "--replicate-stream",
                "app",
                "--fleet-address",
                "a:1",
                "--replicate",
                HOME,
            ],
            "a fleet replicates all streams",
        ),
        (
            &["--fleet", "a:1,b", "--replicate", HOME],
            "\"b\" is not HOST:PORT",
        ),
    ] {
        let said = refused(&[&serve[..], flags].concat());
        assert!(said.contains(says), "{flags:?}: {said}");
    }
    assert!(!place.0.join("none").exists());
}

#[cfg(not(feature = "kafka"))]
#[test]
fn without_the_feature_every_way_to_a_home_names_it() {
    let place = Place::new();
    let data = place.path("none");
    let data = &*data;
    for args in [
        &["serve", "ingest", "--data", data, "--replicate", HOME][..],
        &["read", "--home", HOME],
        &["log", "restore", "--home", HOME, "--data", data],
    ] {
        let output = run(args);
        assert!(!output.status.success());
        let said = stderr(&output);
        assert!(said.contains("--features kafka"), "{args:?}: {said}");
    }
    assert!(!place.0.join("none").exists());
}

/// The home does not exist: nothing listens there.
#[cfg(feature = "kafka")]
#[test]
fn a_server_that_does_not_reach_its_home_serves_at_level_durable_and_says_so() {
    let place = Place::new();
    let server = Server::with(&place, "ingest=0", &["--replicate", HOME]);
    assert_code(&server.send(&[], "one\ntwo\n"), 0);
    let output = server.send(&["--level", "replicated", "--retry", "0"], "three\n");
    assert!(!output.status.success());
    // The server does not know yet what it can promise: a client comes again.
    let said = stderr(&output);
    assert!(
        said.contains("stopping") && said.contains("has not reached the home of its log yet"),
        "{said}"
    );
    assert_eq!(server.read(&["--raw"]), "one\ntwo\n");
}

/// A sample of the rounds with brokers, where they are here: `clients/rounds` runs many.
#[cfg(feature = "kafka")]
#[test]
fn a_sample_of_the_rounds_that_replicate_to_brokers() {
    use std::path::Path;
    use std::process::Command;

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // The brokers are installed by clients/ingest/brokers, which runs first; a test installs
    // nothing.
    let has_brokers = root.join("target/clients/kafka-4.1.0/done").exists();
    let has_java = Command::new("java").arg("-version").output().is_ok();
    if !has_brokers || !has_java {
        eprintln!("skipped: there are no brokers in target/clients, or no java");
        return;
    }
    let rounds = Command::new(root.join("clients/kv/home"))
        .arg(env!("CARGO_BIN_EXE_tidewire"))
        .args(["--rounds", "2", "--defaults"])
        .current_dir(&root)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&rounds.stdout);
    println!("{said}");
    assert!(rounds.status.success(), "{said}{}", stderr(&rounds));
}

/// Two servers, and no brokers: whose producer it is does not depend on them.
#[cfg(feature = "kafka")]
#[test]
fn a_producer_is_taken_by_the_server_of_its_partition() {
    let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let at = listeners.map(|listener| listener.local_addr().unwrap().to_string());
    let fleet = at.join(",");
    let places = [Place::new(), Place::new()];
    let servers = [0, 1].map(|n| {
        let home = format!("{HOME}?partition={n}");
        let listen = format!("ingest={}", at[n]);
        Server::with(
            &places[n],
            &listen,
            &["--replicate", &home, "--fleet", &fleet],
        )
    });
    for server in &servers {
        assert_code(&server.send(&["--producer", "web-7"], "one\ntwo\n"), 0);
        assert_code(&server.send(&["--producer", "web-8"], "three\n"), 0);
    }
    assert_eq!(servers[0].read(&["--raw"]), "three\nthree\n");
    assert_eq!(servers[1].read(&["--raw"]), "one\ntwo\none\ntwo\n");
}

#[test]
fn a_server_without_a_home_grants_durable() {
    let place = Place::new();
    let server = Server::start(&place);
    let output = server.send(&["--level", "replicated", "--retry", "0"], "one\n");
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(
        said.contains("Durable only, Replicated was asked for; ask for level durable"),
        "{said}"
    );
}
