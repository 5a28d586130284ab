//! What `tidewire ship` shows of what it follows: a list, a page, metrics; and where files begin.

use std::fs;

use crate::common::durable::{Place, Server, assert_code};
use crate::common::{Running, run, stderr, stdout};

fn get(addr: &str, path: &str) -> String {
    let url = format!("http://{addr}{path}");
    let mut answer = ureq::get(&url).call().unwrap();
    answer.body_mut().read_to_string().unwrap()
}

#[test]
fn the_status_page_and_the_list_say_how_far_each_file_is() {
    let place = Place::new();
    let server = Server::start(&place);
    let to = server.to.clone();
    let state = place.path("state");
    let log = place.file("a<b>.log", "one\ntwo\n");
    let old = place.file("old.log", "old\n");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3 * 86400);
    fs::File::options()
        .write(true)
        .open(&old)
        .and_then(|file| file.set_modified(long_ago))
        .unwrap();
    let shipping = Running::start(&[
        "ship",
        &log,
        &old,
        "--to",
        &to,
        "--state",
        &state,
        "--poll",
        "20ms",
        "--status",
        "127.0.0.1:0",
        "--ignore-older",
        "2d",
    ]);
    shipping.hear("status on http://");
    let said = shipping.said();
    let (_, rest) = said.split_once("status on http://").unwrap();
    let addr = rest[..rest.find('/').unwrap()].to_owned();
    let metric = |line: &str| get(&addr, "/metrics").lines().any(|other| other == line);
    let patience = std::time::Instant::now();
    while !(metric("tidewire_ship_messages_total 2") && metric("tidewire_ship_behind_bytes 0")) {
        assert!(
            patience.elapsed().as_secs() < 60,
            "{}",
            get(&addr, "/metrics")
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(metric("tidewire_ship_ignored_files 1"));
    let page = get(&addr, "/");
    assert!(
        page.contains("a&lt;b&gt;.log") && page.contains("followed"),
        "{page}"
    );
    let files: serde_json::Value = serde_json::from_str(&get(&addr, "/files.json")).unwrap();
    assert_eq!(files["files"][0]["path"], log.as_str());
    assert_eq!(files["files"][0]["stored"], 8);
    assert_eq!(files["files"][0]["lag_seconds"], 0.0);
    // `--list` works while `ship` runs, too.
    let listed = run(&["ship", "--list", "--state", &state]);
    assert_code(&listed, 0);
    let listed = stdout(&listed);
    let rows: Vec<Vec<&str>> = listed
        .lines()
        .map(|row| row.split('\t').collect())
        .collect();
    assert_eq!(
        rows[0][..5],
        ["STATE", "STORED", "LENGTH", "BEHIND", "FILE"]
    );
    assert_eq!(rows[1][0], "followed");
    assert_eq!(
        rows[1][2..5],
        [
            "8",
            &(8 - rows[1][1].parse::<u64>().unwrap()).to_string(),
            &log
        ]
    );
    shipping.signal(rustix::process::Signal::TERM);
    assert_code(&shipping.end(), 0);
    server.stop();
    let none = run(&["ship", "--list", "--state", &place.path("other")]);
    assert_code(&none, 1);
    assert!(
        stderr(&none).contains("checkpoint.json"),
        "{}",
        stderr(&none)
    );
}

#[test]
fn files_begin_at_their_end() {
    let place = Place::new();
    let server = Server::start(&place);
    let state = place.path("state");
    let log = place.file("a.log", "one\ntwo\nthr");
    let ship = || {
        let args = [
            "ship", "--once", "--from", "end", "--to", &server.to, "--state", &state,
        ];
        run(&[&args[..], &[&log]].concat())
    };
    assert_code(&ship(), 0);
    assert_eq!(server.read(&["--raw"]), "");
    let more = fs::read_to_string(&log).unwrap() + "ee\nfour\n";
    fs::write(&log, more).unwrap();
    assert_code(&ship(), 0);
    assert_eq!(server.read(&["--raw"]), "three\nfour\n");
    server.stop();
}
