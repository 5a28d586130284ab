//! The example is part of the documentation: it does what it says, and again after a restart.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Examples are built beside the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let built = test.ancestors().nth(2).expect("the profile's directory");
    built.join("examples/append_and_read")
}

fn run(directory: &Path, input: &str) -> String {
    let mut child = Command::new(example())
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example");
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn what_was_appended_is_there_after_a_restart() {
    if !example().exists() {
        println!("skipped: the example is not built: run the whole `cargo test`");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    assert_eq!(
        run(place.path(), "one\ntwo\n"),
        "one\ntwo\n2 records in the log\n"
    );
    assert_eq!(
        run(place.path(), "three\n"),
        "three\n3 records in the log\n"
    );
}
