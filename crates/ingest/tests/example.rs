//! The example of a program that stores durably does so, and ends on a signal.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tidewire_ingest::testing;

#[test]
fn readings_are_stored_until_a_signal() {
    let test = std::env::current_exe().expect("this program's path");
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("target/PROFILE/deps/TEST");
    let program = profile.join("examples/durable_readings");
    if !program.exists() {
        eprintln!("skipped: not built; run the whole `cargo test`");
        return;
    }
    let server = testing::server();
    let mut child = Command::new(program)
        .arg(server.addrs()[0].to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("the next is"), "{line:?}");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it is there");
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    assert!(rest.starts_with("on the disk up to "), "{rest:?}");
}
