//! The example's self-test passes on each engine that works here.

use std::path::Path;
use std::process::Command;

#[test]
fn the_example_answers_in_order() {
    let test = std::env::current_exe().expect("this program's path");
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("target/PROFILE/deps/TEST");
    let program = profile.join("examples/worker_pool");
    if !program.exists() {
        eprintln!("skipped: not built; run the whole `cargo test`");
        return;
    }
    for engine in ["threads", "epoll", "auto"] {
        let ran = Command::new(&program)
            .args([engine, "--self-test"])
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(
            ran.status.success() && said.contains("done=3"),
            "{engine}: {ran:?}"
        );
    }
}
