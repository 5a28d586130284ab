//! A full disk under the log of messages, a real one: what makes room is taken, whether or not a limit was ever set, and what it frees can be used at once.
//! Skipped, with the reason, where no file system can be mounted.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use crate::admin::{get, value};
use crate::common::durable::{Place, Server, assert_code};
use crate::common::small_disk::SmallDisk;
use crate::common::{PATIENCE, addr, run};

/// What is done on the full disk.
#[derive(Clone, Copy, Debug)]
enum Done {
    Limit,
    Deletion,
    /// The server's own retention, which came with a restart.
    Retention,
}

fn serve(disk: &SmallDisk, more: &[&str]) -> Server {
    let data = disk.path().join("data");
    let args = [
        "serve",
        "ingest",
        "--listen",
        "ingest=0",
        "--control",
        "off",
        "--segment",
        "1MiB",
        "--log-payload",
        "100KiB",
        "--data",
        data.to_str().unwrap(),
    ];
    Server::run(disk.tidewire(&[&args[..], more].concat()))
}

fn stream(server: &Server, args: &[&str]) {
    assert_code(
        &run(&[&["stream"], args, &["--to", &server.to]].concat()),
        0,
    );
}

fn full_and_freed(done: Done, had_limits: bool) -> bool {
    let Some(disk) = SmallDisk::mount(12) else {
        return false;
    };
    let place = Place::new();
    let input = place.file("input", format!("{}\n", "x".repeat(1000)).repeat(20_000));
    let quiet = ["--admin", "off"];
    let mut server = serve(&disk, &quiet);
    if had_limits {
        stream(&server, &["create", "logs", "--retain-age", "100d"]);
        stream(&server, &["set", "logs", "--limit-bytes", "1MiB"]);
    }
    let filled = server.send(&["--producer", "p", "--retry", "1s", &input], "");
    assert_code(&filled, 2);
    let since = Instant::now();
    match done {
        Done::Limit => stream(&server, &["set", "default", "--retain-bytes", "1MiB"]),
        Done::Deletion => stream(&server, &["delete", "default", "--yes"]),
        Done::Retention => {
            server.stop();
            server = serve(&disk, &["--retain-bytes", "4MiB", "--admin", "off"]);
        }
    }
    let sent = server.send(&["--stream", "after", "--retry", "60s"], "there is room\n");
    assert_code(&sent, 0);
    let seconds = since.elapsed().as_secs_f32();
    // `cargo test -- --nocapture` shows it.
    println!("{done:?}, limits before: {had_limits}: room within {seconds:.2} s");
    assert_eq!(
        server.read(&["--stream", "after", "--raw"]),
        "there is room\n"
    );
    server.stop();
    let data = disk.path().join("data");
    let checked = disk
        .tidewire(&["log", "check", "--data", data.to_str().unwrap()])
        .output();
    assert_code(&checked.unwrap(), 0);
    true
}

#[test]
fn what_makes_room_on_a_full_disk_is_taken() {
    for done in [Done::Limit, Done::Deletion, Done::Retention] {
        for had_limits in [false, true] {
            if !full_and_freed(done, had_limits) {
                writeln!(std::io::stderr(), "skipped: {done:?}").unwrap();
                return;
            }
        }
    }
}

/// Every producer was refused, and gauge, `/ready` and all else said that the server was well.
#[test]
fn a_full_disk_is_shown_as_long_as_it_lasts() {
    let Some(disk) = SmallDisk::mount(12) else {
        writeln!(std::io::stderr(), "skipped").unwrap();
        return;
    };
    let place = Place::new();
    let input = place.file("input", format!("{}\n", "x".repeat(1000)).repeat(20_000));
    let mut server = serve(&disk, &["--admin", "127.0.0.1:0"]);
    let admin = addr(&server.running.line());
    let blocked = || {
        let page = get(admin, "/metrics").body;
        let labels = "log=\"messages\",because=\"disk_full\"";
        value(&page, "tidewire_log_blocked", labels)
    };
    let is_shown = |is_full: bool| {
        let ready = get(admin, "/ready");
        match is_full {
            true => {
                ready.status == 503 && ready.body.contains("its disk is full") && blocked() == 1.0
            }
            false => ready.status == 200 && blocked() == 0.0,
        }
    };
    until("it is ready", || is_shown(false));
    assert_code(
        &server.send(&["--producer", "p", "--retry", "1s", &input], ""),
        2,
    );
    until("the disk is shown to be full", || is_shown(true));
    stream(&server, &["set", "default", "--retain-bytes", "1MiB"]);
    until("there is room", || is_shown(false));
    server.stop();
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
