//! A server that is restored from an older backup is sent what it lacks, by each client that still has it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::durable::{Place, Server, assert_code};
use crate::common::{Running, run, stderr};

fn backup(place: &Place) {
    let (data, copy) = (place.path("data"), place.path("backup"));
    assert_code(&run(&["log", "backup", "--data", &data, &copy]), 0);
}

/// What was stored since the backup is gone, and the server is where it was.
fn restored(place: &Place, server: Server) -> Server {
    let to = server.kill();
    let (data, copy) = (place.path("data"), place.path("backup"));
    fs::remove_dir_all(&data).unwrap();
    assert_code(&run(&["log", "restore", &copy, "--data", &data]), 0);
    Server::with(place, &format!("ingest={to}"), &[])
}

fn lines(numbers: std::ops::RangeInclusive<u32>) -> String {
    numbers.map(|n| format!("line {n:0>500}\n")).collect()
}

#[test]
fn a_send_that_is_under_way_sends_its_files_again() {
    let place = Place::new();
    let server = Server::start(&place);
    let to = server.to.clone();
    let stream = |args: &[&str]| {
        let output = run(&[&["stream"], args, &["--to", &to]].concat());
        assert_code(&output, 0);
    };
    stream(&["create", "logs"]);
    let file = place.file("file", lines(1..=10));
    let send = [
        "send",
        &*file,
        "--to",
        &to,
        "--stream",
        "logs",
        "--producer",
        "p",
        "--retry",
        "300s",
    ];
    assert_code(&run(&send), 0);
    backup(&place);
    // The limit lets some be acknowledged, and not all.
    stream(&["set", "logs", "--limit-bytes", "500000"]);
    fs::write(&file, lines(1..=5000)).unwrap();
    let sending = Running::start(&send);
    sending.hear("stream full");
    let server = restored(&place, server);
    let output = sending.end();
    assert_code(&output, 0);
    let said = stderr(&output);
    assert!(
        said.contains("the missing messages are sent again"),
        "{said}"
    );
    let stored = server.read(&["--stream", "logs", "--raw"]);
    assert!(
        stored == lines(1..=5000),
        "{} lines",
        stored.lines().count()
    );
    server.stop();
}

#[test]
fn entries_of_the_journal_are_sent_again_from_the_servers_mark() {
    let place = Place::new();
    let server = Server::start(&place);
    let journal = place.path("journal");
    // What journalctl does with --cursor and --reverse, an entry a paragraph.
    let script = place.file(
        "journalctl",
        format!(
            "#!/bin/sh\nfor a; do case \"$a\" in --cursor=*) c=${{a#--cursor=}};; --reverse) r=1;; esac; done\n\
             awk -v c=\"$c\" -v r=\"$r\" 'BEGIN {{ RS = \"\"; ORS = \"\\n\\n\" }} {{ all[NR] = $0; if ($1 == \"__CURSOR=\" c) at = NR }}\n\
             END {{ if (r) for (n = at; n > 0; n--) print all[n]; else for (n = at > 0 ? at : 1; n <= NR; n++) print all[n] }}' {journal}\n",
        ),
    );
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let entries = |numbers: std::ops::RangeInclusive<u32>| {
        let entry = |n| format!("__CURSOR=c{n}\n__REALTIME_TIMESTAMP={n}\nMESSAGE=m{n}\n\n");
        fs::write(&journal, numbers.map(entry).collect::<String>()).unwrap();
    };
    let state = place.path("state");
    let to = server.to.clone();
    let ship = || {
        run(&[
            "ship",
            "--once",
            "--to",
            &to,
            "--state",
            &state,
            "--journal",
            "--journalctl",
            &script,
        ])
    };
    let stored = |server: &Server| {
        let mut found: BTreeMap<u32, u32> = BTreeMap::new();
        for line in server.read(&["--raw"]).lines() {
            let (_, rest) = line.split_once("\"m").unwrap();
            let number = rest[..rest.find('"').unwrap()].parse().unwrap();
            *found.entry(number).or_default() += 1;
        }
        assert!(found.values().all(|count| *count == 1), "{found:?}");
        found.into_keys().collect::<Vec<u32>>()
    };
    entries(1..=100);
    assert_code(&ship(), 0);
    backup(&place);
    entries(1..=3000);
    assert_code(&ship(), 0);
    let server = restored(&place, server);
    let output = ship();
    assert_code(&output, 0);
    let said = stderr(&output);
    assert!(
        said.contains("the entries after that are sent again\n"),
        "{said}"
    );
    assert_eq!(stored(&server), (1..=3000).collect::<Vec<_>>());
    // Some of the entries that it lacks are not in the journal any more.
    let server = restored(&place, server);
    entries(151..=3001);
    let output = ship();
    assert_code(&output, 2);
    let said = stderr(&output);
    assert!(said.contains("50 entries that a server has lost"), "{said}");
    let expected: Vec<u32> = (1..=100).chain(151..=3001).collect();
    assert_eq!(stored(&server), expected);
    entries(151..=3002);
    assert_code(&ship(), 0);
    server.stop();
}
