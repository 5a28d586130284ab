//! `tidewire log backup` beside a running server, and `log restore`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};

use rustix::fs::{FlockOperation, flock};

use crate::common::durable::{Place, Server, assert_code, lines};
use crate::common::{run, stderr, stdout};

#[test]
fn a_copy_of_a_running_server_is_put_back() {
    let place = Place::new();
    let server = Server::start(&place);
    let all = lines(5000);
    assert_code(&server.send(&["--producer", "p"], &all), 0);
    let (data, copy, back) = (place.path("data"), place.path("copy"), place.path("back"));
    let output = run(&["log", "backup", "--data", &data, &copy]);
    assert_code(&output, 0);
    assert!(
        stdout(&output).contains("5000 records"),
        "{}",
        stdout(&output)
    );
    // Nothing is overwritten.
    assert_code(&run(&["log", "backup", "--data", &data, &copy]), 1);
    assert_code(&server.send(&["--producer", "p"], "later\n"), 0);
    server.stop();
    assert_code(&run(&["log", "check", "--data", &copy]), 0);

    assert_code(&run(&["log", "restore", &copy, "--data", &back]), 0);
    assert_code(&run(&["log", "restore", &copy, "--data", &back]), 1);
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&back, &data).unwrap();
    let server = Server::start(&place);
    assert_eq!(server.read(&["--raw"]), all);
    // The producer goes on where the copy knows it.
    assert_code(&server.send(&["--producer", "p"], "again\n"), 0);
    assert_eq!(server.read(&["--raw"]), all + "again\n");
    server.stop();
}

/// Each copy took as much room as the log.
#[test]
fn a_copy_shares_what_an_earlier_one_has_and_outlives_it() {
    let place = Place::new();
    let server = Server::start(&place);
    let line = "x".repeat(10_000);
    let lines =
        |from: u32, to: u32| -> String { (from..to).map(|n| format!("{n} {line}\n")).collect() };
    assert_code(&server.send(&["--producer", "p"], &lines(0, 4000)), 0);
    let data = place.path("data");
    let (first, second, back) = (place.path("1"), place.path("2"), place.path("back"));
    let backup = |to: &str, since: &[&str]| {
        let output = run(&[&["log", "backup", "--data", &data, to], since].concat());
        assert_code(&output, 0);
        stdout(&output)
    };
    backup(&first, &[]);
    assert_code(&server.send(&["--producer", "p"], &lines(4000, 5000)), 0);
    let told = backup(&second, &["--since", &first]);
    assert!(told.contains("5000 records"), "{told}");
    server.stop();
    // All segments of the first but its newest.
    let segments = |directory: &str| -> BTreeSet<u64> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        let segments =
            entries.filter(|entry| entry.path().extension().is_some_and(|it| it == "seg"));
        segments
            .map(|entry| entry.metadata().unwrap().ino())
            .collect()
    };
    let (old, new) = (segments(&first), segments(&second));
    assert!(old.len() > 3, "{old:?}");
    let shared = old.intersection(&new).count();
    assert_eq!(shared, old.len() - 1);
    assert!(
        told.contains(&format!("shared      {shared} of these")),
        "{told}"
    );
    for copy in [&first, &second] {
        assert_code(&run(&["log", "check", "--data", copy]), 0);
    }
    // A copy of another log shares nothing.
    let other = Place::new();
    let server = Server::start(&other);
    assert_code(&server.send(&[], &lines(0, 4000)), 0);
    server.stop();
    let other = other.path("data");
    let told = backup(&place.path("3"), &["--since", &other]);
    assert!(told.contains("shared      0 of these"), "{told}");
    let empty = place.path("empty");
    fs::create_dir(&empty).unwrap();
    for (since, why) in [
        (&data, "the log itself"),
        (&place.path("none"), "No such file"),
        (&empty, "no segment"),
    ] {
        let to = place.path("4");
        let output = run(&["log", "backup", "--data", &data, &to, "--since", since]);
        assert_code(&output, 2);
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
    fs::remove_dir_all(&first).unwrap();
    assert_code(&run(&["log", "restore", &second, "--data", &back]), 0);
    let read = run(&["read", "--data", &back, "--raw"]);
    assert_eq!(stdout(&read), lines(0, 5000));
}

#[test]
fn a_damaged_copy_is_not_put_back() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&[], &lines(100)), 0);
    server.stop();
    let (data, copy, back) = (place.path("data"), place.path("copy"), place.path("back"));
    assert_code(&run(&["log", "backup", "--data", &data, &copy]), 0);
    let segment = format!("{copy}/00000000000000000001.seg");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[300] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let output = run(&["log", "restore", &copy, "--data", &back]);
    assert_code(&output, 2);
    assert!(stderr(&output).contains("damage"), "{}", stderr(&output));
    assert!(!fs::exists(&back).unwrap());
    assert!(!fs::exists(place.path("back.partial")).unwrap());
    assert_code(
        &run(&["log", "backup", "--data", &place.path("none"), &back]),
        1,
    );
}

/// Two that ran at once removed what the other one had copied.
#[test]
fn a_second_copy_to_the_same_place_is_refused() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&[], &lines(100)), 0);
    server.stop();
    let (data, copy) = (place.path("data"), place.path("copy"));
    let partial = place.path("copy.partial");
    fs::create_dir(&partial).unwrap();
    fs::write(format!("{partial}/file"), "of the other one").unwrap();
    let other = File::open(&partial).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    for command in [
        &["log", "backup", "--data", &data, &copy][..],
        &["log", "restore", &data, "--data", &copy],
    ] {
        let output = run(command);
        assert_code(&output, 2);
        let told = stderr(&output);
        assert!(
            told.contains("another process") && told.contains(&partial),
            "{told}"
        );
        assert!(fs::exists(format!("{partial}/file")).unwrap());
    }
    drop(other);
    assert_code(&run(&["log", "backup", "--data", &data, &copy]), 0);
    assert!(!fs::exists(&partial).unwrap());
    // All at once: one makes it, and it is whole.
    let copy = place.path("again");
    let done = std::thread::scope(|scope| {
        let all = [(); 4].map(|()| scope.spawn(|| run(&["log", "backup", "--data", &data, &copy])));
        let done = all.map(|one| one.join().expect("it ends").status.success());
        done.into_iter().filter(|done| *done).count()
    });
    assert_eq!(done, 1);
    assert_code(&run(&["log", "check", "--data", &copy]), 0);
}

/// Files that an operator has given each other's names, and what else may lie there.
#[test]
fn segments_under_other_names_are_named_by_a_repair() {
    let place = Place::new();
    let server = Server::with(
        &place,
        "ingest=0",
        &["--segment", "1M", "--log-payload", "64K"],
    );
    let all = (0..60_000).map(|n| format!("{n:060}\n"));
    let all = all.collect::<String>();
    assert_code(&server.send(&["--producer", "p"], &all), 0);
    server.stop();
    let data = place.path("data");
    let segments = || {
        let names = fs::read_dir(&data).unwrap();
        let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
        let mut names = names
            .filter(|name| name.ends_with(".seg"))
            .collect::<Vec<_>>();
        names.sort();
        names
    };
    let names = segments();
    assert!(names.len() > 2, "{names:?}");
    let at = |name: &str| format!("{data}/{name}");
    fs::rename(at(&names[0]), at("aside")).unwrap();
    fs::rename(at(&names[1]), at(&names[0])).unwrap();
    fs::rename(at("aside"), at(&names[1])).unwrap();
    // An empty segment, and a segment with the content of another.
    fs::write(at("00000000000000000002.seg"), "").unwrap();
    symlink(at(&names[2]), at("00000000000000000003.seg")).unwrap();
    let output = run(&["log", "repair", "--data", &data]);
    assert_code(&output, 2);
    let told = stdout(&output);
    for [file, name] in [[&names[0], &names[1]], [&names[1], &names[0]]] {
        let line = format!("misnamed    {file} contains the segment {name}");
        assert!(told.contains(&line), "{told}");
    }
    assert!(!told.contains("lost "), "{told}");
    assert_code(&run(&["log", "repair", "--data", &data, "--yes"]), 0);
    assert_code(&run(&["log", "check", "--data", &data]), 0);
    assert_eq!(segments(), names);
    let server = Server::start(&place);
    assert_eq!(server.read(&["--raw"]), all);
    server.stop();
    // Two that say the same.
    fs::rename(at(&names[1]), at("00000000000000000002.seg")).unwrap();
    fs::copy(
        at("00000000000000000002.seg"),
        at("00000000000000000003.seg"),
    )
    .unwrap();
    let output = run(&["log", "repair", "--data", &data, "--yes"]);
    assert_code(&output, 1);
    let told = stderr(&output);
    assert!(
        told.contains("00000000000000000002.seg and 00000000000000000003.seg both say"),
        "{told}"
    );
}
