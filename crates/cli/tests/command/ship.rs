//! `tidewire ship` with real servers and real files, killed and rotated under it.

use crate::common::pki;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::durable::{Place, Server, assert_code, sending};
use crate::common::{PATIENCE, Running, run, stderr, stdout, tidewire};
use rustix::process::Signal;

/// Ships what is there and ends.
fn once(place: &Place, to: &str, more: &[&str]) -> std::process::Output {
    let state = place.path("state");
    run(&[&["ship", "--once", "--to", to, "--state", &state], more].concat())
}

fn following(place: &Place, to: &str, more: &[&str]) -> Running {
    let state = place.path("state");
    let common = ["ship", "--to", to, "--state", &state, "--poll", "20ms"];
    let quick = ["--rotate-wait", "100ms", "--failover-after", "300ms"];
    Running::start(&[&common[..], &quick, more].concat())
}

/// Waits until the server has so many messages.
fn until_stored(server: &Server, count: usize) -> Vec<String> {
    until_read(server, &[], count)
}

/// The messages, read with these options.
fn until_read(server: &Server, how: &[&str], count: usize) -> Vec<String> {
    let since = Instant::now();
    loop {
        let read = server.read(&[&["--raw"], how].concat());
        let lines: Vec<String> = read.lines().map(str::to_owned).collect();
        if lines.len() >= count {
            return lines;
        }
        assert!(since.elapsed() < PATIENCE, "{} of {count}", lines.len());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn what_was_shipped_is_not_shipped_again() {
    let place = Place::new();
    let server = Server::start(&place);
    let log = PathBuf::from(place.file("app.log", "one\ntwo\nthr"));
    let path = log.to_str().unwrap();
    let output = once(&place, &server.to, &[path]);
    assert_code(&output, 0);
    assert!(
        stderr(&output).contains("lines without an end"),
        "{}",
        stderr(&output)
    );
    assert_eq!(server.read(&["--raw"]), "one\ntwo\n");
    append(&log, "ee\n");
    assert_code(&once(&place, &server.to, &[path]), 0);
    // Rotated while `ship` did not run, twice, and a last line without an end.
    fs::rename(&log, place.path("app.log.2")).unwrap();
    append(Path::new(&place.path("app.log.2")), "four");
    append(Path::new(&place.path("app.log.1")), "five\n");
    append(&log, "six\n");
    assert_code(
        &once(&place, &server.to, &[path, "--rotate-wait", "50ms"]),
        0,
    );
    assert_code(&once(&place, &server.to, &[path]), 0);
    assert_eq!(
        server.read(&["--raw"]),
        "one\ntwo\nthree\nfour\nfive\nsix\n"
    );
    server.stop();
}

/// As with a file system that is not mounted for a while.
#[test]
fn a_directory_that_is_away_for_a_while_is_not_shipped_again() {
    let place = Place::new();
    let server = Server::start(&place);
    let (here, away) = (place.path("logs"), place.path("away"));
    fs::create_dir(&here).unwrap();
    let log = PathBuf::from(place.file("logs/app.log", "one\n"));
    let named = place.path("logs/*.log");
    assert_code(&once(&place, &server.to, &[&named]), 0);
    fs::rename(&here, &away).unwrap();
    let output = once(&place, &server.to, &[&named]);
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains("is not there"),
        "{}",
        stderr(&output)
    );
    // The user was told before.
    assert_code(&once(&place, &server.to, &[&named]), 0);
    fs::rename(&away, &here).unwrap();
    append(&log, "two\n");
    assert_code(&once(&place, &server.to, &[&named]), 0);
    assert_eq!(server.read(&["--raw"]), "one\ntwo\n");
    server.stop();
}

/// As with Kubernetes, where all links are in one directory and the files of each container in one of their own.
#[test]
fn what_was_rotated_behind_a_link_is_found() {
    let place = Place::new();
    let server = Server::start(&place);
    fs::create_dir(place.path("pod")).unwrap();
    fs::create_dir(place.path("containers")).unwrap();
    let log = PathBuf::from(place.file("pod/0.log", "one\n"));
    let link = place.path("containers/app.log");
    std::os::unix::fs::symlink(&log, &link).unwrap();
    assert_code(&once(&place, &server.to, &[&link]), 0);
    append(&log, "two\n");
    fs::rename(&log, place.path("pod/0.log.20260101")).unwrap();
    append(&log, "three\n");
    fs::rename(&log, place.path("pod/0.log.20260102")).unwrap();
    append(&log, "four\n");
    assert_code(
        &once(&place, &server.to, &[&link, "--rotate-wait", "50ms"]),
        0,
    );
    assert_eq!(server.read(&["--raw"]), "one\ntwo\nthree\nfour\n");
    server.stop();
}

#[test]
fn directories_patterns_lines_that_belong_together() {
    let place = Place::new();
    let server = Server::start(&place);
    fs::create_dir(place.path("logs")).unwrap();
    place.file("logs/a.log", "1 a\n  b\n2 c\n");
    place.file("logs/b.log.gz", "no\n");
    place.file("logs/.hidden", "no\n");
    place.file("logs/c.tmp", "no\n");
    let args = [
        &*place.path("logs"),
        "--exclude",
        "*.tmp",
        "--multiline-start",
        "^[0-9]",
    ];
    assert_code(&once(&place, &server.to, &args), 0);
    let read = server.read(&["--json"]);
    assert_eq!(read.lines().count(), 2, "{read}");
    assert!(read.contains(r"1 a\n  b"), "{read}");
    assert!(read.contains("logs/a.log#"), "{read}");
    server.stop();
}

#[test]
fn another_content_is_an_error() {
    let place = Place::new();
    let server = Server::start(&place);
    let log = place.file("app.log", "one\n".repeat(1000));
    assert_code(&once(&place, &server.to, &[&log]), 0);
    // In place, so that it stays the same file; its beginning stays too.
    let mut file = OpenOptions::new().write(true).open(&log).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(3990)).unwrap();
    file.write_all(b"other").unwrap();
    append(Path::new(&log), "two\n");
    let output = once(&place, &server.to, &[&log]);
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains("is not what was shipped"),
        "{}",
        stderr(&output)
    );
    assert_eq!(server.read(&["--raw"]).lines().count(), 1000);
    server.stop();
}

/// As one that was restored from an older backup, or begun anew.
#[test]
fn a_server_that_lost_what_it_had_is_sent_it_again() {
    let place = Place::new();
    let server = Server::start(&place);
    let log = place.file("app.log", "one\n");
    let to = server.to.clone();
    assert_code(&once(&place, &to, &[&log]), 0);
    server.stop();
    fs::remove_dir_all(place.path("data")).unwrap();
    let server = Server::with(&place, &format!("ingest={to}"), &[]);
    // Nothing new is there.
    let output = once(&place, &to, &[&log]);
    assert_code(&output, 0);
    let said = stderr(&output);
    assert!(said.contains("it is sent again from there"), "{said}");
    append(Path::new(&log), "two\n");
    assert_code(&once(&place, &to, &[&log]), 0);
    assert_eq!(server.read(&["--raw"]), "one\ntwo\n");
    server.stop();
}

/// A status of 0 says that all that was named is stored.
#[test]
fn once_does_not_end_with_0_when_something_was_left() {
    let place = Place::new();
    let server = Server::start(&place);
    let (one, two) = (place.file("a.log", "a\n"), place.file("b.log", "b\n"));
    let output = once(&place, &server.to, &["--files", "1", &one, &two]);
    assert_code(&output, 2);
    assert!(stderr(&output).contains("--files"), "{}", stderr(&output));
    let misspelt = place.path("misspelt.log");
    let output = once(&place, &server.to, &[&one, &misspelt]);
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains("misspelt.log"),
        "{}",
        stderr(&output)
    );
    assert_code(&once(&place, &server.to, &[&misspelt]), 1);
    assert_code(&once(&place, &server.to, &[&one, &two]), 0);
    server.stop();
}

/// What rotation has compressed while `ship` did not run is read, from where shipping was on.
#[test]
fn rotated_files_that_were_compressed_are_shipped() {
    let place = Place::new();
    let server = Server::start(&place);
    let log = PathBuf::from(place.file("app.log", "one\n"));
    let path = log.to_str().unwrap();
    assert_code(&once(&place, &server.to, &[path]), 0);
    append(&log, "two\n");
    fs::rename(&log, place.path("app.log.1")).unwrap();
    let packed = std::process::Command::new("gzip")
        .arg(place.path("app.log.1"))
        .status();
    if !packed.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no gzip");
        return;
    }
    append(&log, "three\n");
    let output = once(&place, &server.to, &[path, "--rotate-wait", "50ms"]);
    assert_code(&output, 0);
    assert_eq!(server.read(&["--raw"]), "one\ntwo\nthree\n");
    server.stop();
}

/// Half an entry is no entry: what prints the journal was killed between two fields.
#[test]
fn an_entry_that_was_cut_is_not_stored() {
    let place = Place::new();
    let server = Server::start(&place);
    let script = |name: &str, text: &str| {
        let script = place.file(name, format!("#!/bin/sh\n{text}"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&script, mode).unwrap();
        script
    };
    let whole = r"printf '__CURSOR=c1\nMESSAGE=m1\n\n__CURSOR=c2\nMESSAGE=m2\n'";
    let dies = script("dies", &format!("{whole}; kill -9 $$\n"));
    let lives = script("lives", &format!("{whole}; printf '_PID=77\\n\\n'\n"));
    let output = once(&place, &server.to, &["--journal", "--journalctl", &dies]);
    assert_code(&output, 2);
    assert_eq!(messages(&server).len(), 1);
    assert_code(
        &once(&place, &server.to, &["--journal", "--journalctl", &lives]),
        0,
    );
    let read = server.read(&["--raw"]);
    assert!(read.contains("m2") && read.contains("77"), "{read}");
    assert!(messages(&server).values().all(|count| *count == 1));
    server.stop();
}

/// No server listens there, and it is tried for a minute.
#[test]
fn a_signal_ends_what_connects_for_the_first_time() {
    let place = Place::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let (path, state) = (place.file("app.log", "one\n"), place.path("state"));
    let journal = [
        "ship",
        "--journal",
        "--journalctl",
        "cat",
        "--state",
        &state,
    ];
    for args in [&["send", &*path][..], &journal] {
        for signal in [Signal::INT, Signal::TERM] {
            let running = Running::start(&[args, &["--to", &to]].concat());
            until_caught(&running);
            running.signal(signal);
            let output = running.end();
            assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
            assert!(
                stderr(&output).contains("ended before"),
                "{}",
                stderr(&output)
            );
        }
    }
}

/// Waits until a process has its own way with SIGTERM.
fn until_caught(running: &Running) {
    let pid = running.pid().as_raw_nonzero();
    let since = Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap_or(0));
        if caught.is_some_and(|mask| mask & (1 << 14) != 0) {
            return;
        }
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn two_of_one_state_and_wrong_usage_are_refused() {
    let place = Place::new();
    let server = Server::start(&place);
    let log = place.file("app.log", "one\n");
    let first = following(&place, &server.to, &[&log]);
    until_stored(&server, 1);
    let output = once(&place, &server.to, &[&log]);
    assert_code(&output, 1);
    assert!(
        stderr(&output).contains("used by another"),
        "{}",
        stderr(&output)
    );
    first.signal(Signal::TERM);
    assert_code(&first.end(), 0);
    assert_code(&run(&["ship"]), 2);
    assert_code(&once(&place, "nonsense", &[&log]), 2);
    server.stop();
}

/// Every line is there once, and of each writer in order.
#[test]
fn killed_and_rotated_at_any_moment() {
    killed_and_rotated(12, &[], &[]);
}

#[test]
fn killed_and_rotated_with_tls() {
    let files = pki::Files::new();
    let trusting = ["--tls-ca", files.authority()];
    killed_and_rotated(4, &files.serve(), &trusting);
}

/// Nothing is shipped to a server that cannot prove its identity, nor in clear text to one that
/// speaks TLS; what was not shipped is, once it can.
#[test]
fn only_the_right_server_is_shipped_to() {
    let (files, others) = (pki::Files::new(), pki::Files::new());
    let place = Place::new();
    let server = Server::with(&place, "ingest=0", &files.serve());
    let path = place.file("app.log", "one\n");
    for wrong in [&["--tls-ca", others.authority()][..], &[]] {
        let more = [&[&*path, "--retry", "1s"][..], wrong].concat();
        let output = once(&place, &server.to, &more);
        assert_ne!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let trusting = ["--tls-ca", files.authority()];
    assert_eq!(server.read(&[&["--raw"][..], &trusting].concat()), "");
    let right = [&[&*path][..], &trusting].concat();
    assert_code(&once(&place, &server.to, &right), 0);
    assert_eq!(until_read(&server, &trusting, 1), ["one"]);
    server.stop();
}

/// As for `send`: not for ever.
#[test]
fn a_retry_of_0_is_not_at_all() {
    let place = Place::new();
    let path = place.file("app.log", "one\n");
    // No server listens there.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let state = place.path("state");
    let args = [
        "ship", &path, "--to", &to, "--state", &state, "--retry", "0",
    ];
    for more in [&[][..], &["--to", &to], &["--once"]] {
        let output = run(&[&args[..], more].concat());
        assert_code(&output, 2);
        let said = stderr(&output);
        assert!(said.contains("gave up"), "{said}");
    }
}

fn killed_and_rotated(rounds: u32, serving: &[&str], trusting: &[&str]) {
    let rounds: u32 = std::env::var("TIDEWIRE_ROUNDS").map_or(rounds, |n| n.parse().unwrap());
    let place = Place::new();
    fs::create_dir(place.path("logs")).unwrap();
    let log = PathBuf::from(place.path("logs/app.log"));
    let path = log.to_str().unwrap();
    let options = [&[path][..], trusting].concat();
    let mut server = Some(Server::with(&place, "ingest=0", serving));
    let to = server.as_ref().unwrap().to.clone();
    let listen = format!("ingest={to}");
    let mut rng = fastrand::Rng::with_seed(7);
    let mut written = 1;
    let mut rotated = 0;
    let mut shipping = Some(following(&place, &to, &options));
    // A file that comes and goes before the first look is not known.
    append(&log, "line 1\n");
    until_read(server.as_ref().unwrap(), trusting, 1);
    for _ in 0..rounds {
        for _ in 0..rng.u32(1..6) {
            let mut text = String::new();
            for _ in 0..rng.u32(1..3000) {
                written += 1;
                text.push_str(&format!("line {written}\n"));
            }
            append(&log, &text);
            std::thread::sleep(Duration::from_millis(rng.u64(0..30)));
            if rng.u8(..3) == 0 {
                rotated += 1;
                fs::rename(&log, format!("{path}.{rotated}")).unwrap();
                File::create(&log).unwrap();
            }
        }
        match rng.u8(..3) {
            0 => {
                server.take().unwrap().kill();
                server = Some(Server::with(&place, &listen, serving));
            }
            _ => {
                let old = shipping.take().unwrap();
                old.signal(Signal::KILL);
                old.end();
                shipping = Some(following(&place, &to, &options));
            }
        }
    }
    let server = server.unwrap();
    let lines = until_read(&server, trusting, written);
    let want: Vec<String> = (1..=written).map(|n| format!("line {n}")).collect();
    assert!(lines == want, "{} lines of {written}", lines.len());
    let shipping = shipping.unwrap();
    shipping.signal(Signal::INT);
    let output = shipping.end();
    assert_code(&output, 0);
    server.stop();
}

#[test]
fn the_next_server_takes_over() {
    let (one, two, place) = (Place::new(), Place::new(), Place::new());
    let (first, second) = (Server::start(&one), Server::start(&two));
    let to = format!("{},{}", first.to, second.to);
    let log = PathBuf::from(place.file("app.log", "one\n"));
    let shipping = following(&place, &to, &[log.to_str().unwrap()]);
    until_stored(&first, 1);
    let listen = format!("ingest={}", first.kill());
    append(&log, "two\n");
    assert_eq!(until_stored(&second, 1), ["two"]);
    let first = Server::with(&one, &listen, &[]);
    second.kill();
    append(&log, "three\n");
    assert_eq!(until_stored(&first, 2), ["one", "three"]);
    shipping.signal(Signal::TERM);
    assert_code(&shipping.end(), 0);
    first.stop();
}

#[test]
fn memory_is_bounded() {
    let place = Place::new();
    let server = Server::start(&place);
    let line = "x".repeat(999) + "\n";
    let log = place.file("app.log", line.repeat(120_000));
    let shipping = following(&place, &server.to, &[&log, "--memory", "8MiB"]);
    let since = Instant::now();
    let state = place.path("state/checkpoint.json");
    while !fs::read_to_string(&state).is_ok_and(|state| state.contains("\"acked\": 120000000")) {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    let pid = shipping.pid().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 48 << 10, "{peak} KiB for 120 MB");
    shipping.signal(Signal::TERM);
    assert_code(&shipping.end(), 0);
    server.stop();
}

fn entry(n: u32) -> String {
    format!("__CURSOR=c{n}\n__REALTIME_TIMESTAMP={n}\nMESSAGE=m{n}\n\n")
}

fn messages(server: &Server) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for line in server.read(&["--raw"]).lines() {
        let from = line.find("\"m").unwrap() + 1;
        let to = from + line[from..].find('"').unwrap();
        *found.entry(line[from..to].to_owned()).or_default() += 1;
    }
    found
}

#[test]
fn the_journal_from_a_command_and_from_standard_input() {
    let place = Place::new();
    let server = Server::start(&place);
    // What journalctl does with --cursor: it begins with that entry.
    let script = place.file(
        "journalctl",
        format!(
            "#!/bin/sh\nfor a; do case \"$a\" in --cursor=*) c=${{a#--cursor=}};; esac; done\n\
             # One that is gone is the next that is there.\n\
             grep -q \"^__CURSOR=$c$\" {0} || c=\n\
             awk -v c=\"$c\" '/^__CURSOR=/ {{ if (c == \"\" || $0 == \"__CURSOR=\" c) on = 1 }} on' {0}\n",
            place.path("journal")
        ),
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).unwrap();
    let journal = PathBuf::from(place.path("journal"));
    append(&journal, &(1..=5000).map(entry).collect::<String>());
    let args = ["--journal", "--journalctl", &*script, "_SYSTEMD_UNIT=x"];
    assert_code(&once(&place, &server.to, &args), 0);
    append(&journal, &(5001..=5010).map(entry).collect::<String>());
    let output = once(&place, &server.to, &args);
    assert_code(&output, 0);
    assert!(
        stderr(&output).contains("10 entries"),
        "{}",
        stderr(&output)
    );
    let found = messages(&server);
    assert_eq!(found.len(), 5010);
    assert!(found.values().all(|count| *count == 1));
    // Another question is another count.
    let output = once(&place, &server.to, &["--journal", "--journalctl", &script]);
    assert_code(&output, 1);
    // Entries that were removed are missed.
    let rest = entry(5012);
    fs::write(&journal, &rest).unwrap();
    let output = once(&place, &server.to, &args);
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains("may have been removed"),
        "{}",
        stderr(&output)
    );
    // From standard input, with more than is needed.
    let all: String = (4000..=5012).map(entry).collect();
    let state = place.path("state");
    let (mut stdin, shipping) = sending(&[
        "ship",
        "--once",
        "--to",
        &server.to,
        "--state",
        &state,
        "--journal",
        "--journalctl",
        "-",
        "_SYSTEMD_UNIT=x",
    ]);
    stdin.write_all(all.as_bytes()).unwrap();
    drop(stdin);
    assert_code(&shipping.end(), 0);
    assert_eq!(messages(&server).len(), 5012);
    assert!(messages(&server).values().all(|count| *count == 1));
    server.stop();
}

/// Together the servers have each entry, under one name and one id.
#[test]
fn the_journal_goes_to_the_next_server_when_one_fails() {
    let (here, there) = (Place::new(), Place::new());
    let (first, second) = (Server::start(&here), Server::start(&there));
    let script = here.file(
        "journalctl",
        format!(
            "#!/bin/sh\nfor a; do case \"$a\" in --cursor=*) c=${{a#--cursor=}};; esac; done\n\
             awk -v c=\"$c\" '/^__CURSOR=/ {{ if (c == \"\" || $0 == \"__CURSOR=\" c) on = 1 }} on' {0}\n",
            here.path("journal")
        ),
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).unwrap();
    let journal = PathBuf::from(here.path("journal"));
    append(&journal, &(1..=50).map(entry).collect::<String>());
    let to = format!("{},{}", first.to, second.to);
    let args = [
        "--journal",
        "--journalctl",
        &*script,
        "--failover-after",
        "200ms",
    ];
    assert_code(&once(&here, &to, &args), 0);
    assert_eq!(messages(&first).len(), 50);
    first.stop();
    append(&journal, &(51..=60).map(entry).collect::<String>());
    let output = once(&here, &to, &args);
    assert_code(&output, 0);
    let said = stderr(&output);
    assert!(said.contains("has its turn"), "{said}");
    // From the entry on that was acknowledged last: earlier ones are not asked for.
    let found = messages(&second);
    assert_eq!(found.len(), 11, "{found:?}");
    assert!(found.values().all(|count| *count == 1));
    // The journal stays in use.
    append(&journal, &entry(61));
    let output = once(&here, &to, &args);
    assert_code(&output, 0);
    assert!(!stderr(&output).contains("has its turn"));
    assert_eq!(messages(&second).len(), 12);
    second.stop();
}

/// Shipped entries may be removed from the journal: at the end, and while nothing comes.
#[test]
fn the_place_in_the_journal_moves_with_what_is_acknowledged() {
    let place = Place::new();
    let server = Server::start(&place);
    let journal = PathBuf::from(place.file("journal", (1..=5).map(entry).collect::<String>()));
    let script = place.file(
        "journalctl",
        format!(
            "#!/bin/sh\ncat {0}\nexec 2>&-\nwhile [ -e {0}.wait ]; do sleep 0.1; done\n",
            journal.display()
        ),
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).unwrap();
    let args = ["--journal", "--journalctl", &*script];
    let origin = || fs::read_to_string(place.path("state/journal.json")).unwrap_or_default();
    assert_code(&once(&place, &server.to, &args), 0);
    assert!(origin().contains(r#""cursor":"c5","id":5"#), "{}", origin());
    // Vacuumed, and followed.
    fs::write(&journal, (5..=7).map(entry).collect::<String>()).unwrap();
    place.file("journal.wait", "");
    let shipping = following(&place, &server.to, &args);
    let since = Instant::now();
    while !origin().contains(r#""cursor":"c7","id":7"#) {
        assert!(since.elapsed() < PATIENCE, "{}", origin());
        std::thread::sleep(Duration::from_millis(50));
    }
    shipping.signal(Signal::KILL);
    shipping.end();
    assert_eq!(messages(&server).len(), 7);
    assert!(messages(&server).values().all(|count| *count == 1));
    server.stop();
}

#[test]
fn the_real_journal_is_understood() {
    let journal = std::process::Command::new("journalctl")
        .args(["-n", "20", "-o", "export", "--all"])
        .output();
    let Ok(journal) = journal else {
        eprintln!("skipped: there is no journalctl");
        return;
    };
    if !journal.status.success() || journal.stdout.is_empty() {
        eprintln!("skipped: journalctl has nothing to show");
        return;
    }
    let place = Place::new();
    let server = Server::start(&place);
    let state = place.path("state");
    let mut command = tidewire(&[
        "ship",
        "--once",
        "--to",
        &server.to,
        "--state",
        &state,
        "--journal",
        "--journalctl",
        "-",
    ]);
    fs::write(place.path("export"), &journal.stdout).unwrap();
    command.stdin(File::open(place.path("export")).unwrap());
    let output = command.output().unwrap();
    assert_code(&output, 0);
    assert!(!stdout(&run(&["read", "--to", &server.to])).is_empty());
    server.stop();
}

/// Nothing at all was shipped: each file was held open, and no directory could be listed any more.
#[test]
fn with_more_files_than_descriptors_some_are_shipped_and_the_others_are_told() {
    let place = Place::new();
    let server = Server::start(&place);
    fs::create_dir(place.path("logs")).unwrap();
    (0..200).for_each(|n| drop(place.file(&format!("logs/{n:03}.log"), format!("{n}\n"))));
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_tidewire"))
        .args(["ship", "--once", "--to", &server.to])
        .args(["--state", &place.path("state"), &place.path("logs")]);
    let output = command.output().unwrap();
    assert_code(&output, 2);
    let said = stderr(&output);
    assert_eq!(said.matches("further files wait").count(), 1, "{said}");
    assert!(
        said.contains("ulimit -n") && !said.contains("os error 24"),
        "{said}"
    );
    // 64 are kept back, and two for each of 16 connections.
    assert_eq!(server.read(&["--raw"]).lines().count(), 32);
    server.stop();
}
