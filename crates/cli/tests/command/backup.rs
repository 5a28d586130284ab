//! `tidewire log backup` beside a running server, and `log restore`.

use std::fs;

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
