//! One seed takes equal steps in two processes: tables with random keys, clocks and addresses would show. Used by the
//! tests of every crate that simulates something.
//!
//! A child process has `TIDEWIRE_TRACED` in its environment. Then simulated networks and disks print a hash of all that happened when they are
//! dropped (`network: ...`, `disk: ...`), and worlds of other kinds print what they have. With the word `sizes: `, networks leave the
//! contents out: keys of TLS and dates of HTTP differ.

use std::process::{Child, Command, Stdio};

/// Runs a test with this one seed in two other processes, and compares what both print of its steps, which must contain `word`.
pub(crate) fn says_the_same(test: &str, seed: u64, word: &str) {
    let (one, other) = (started(test, seed, word), started(test, seed, word));
    let (one, other) = (said(one, test, seed), said(other, test, seed));
    let is_told = one.iter().any(|line| line.contains(word));
    assert!(is_told, "{test} says nothing of its steps: {one:?}");
    for (step, (one, other)) in one.iter().zip(&other).enumerate() {
        assert_eq!(
            one, other,
            "{test}, seed {seed}: step {step} in two processes"
        );
    }
    assert_eq!(one.len(), other.len(), "{test}, seed {seed}");
}

fn started(test: &str, seed: u64, word: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env("TIDEWIRE_SEED", seed.to_string())
        .env("TIDEWIRE_TRACED", word.trim_end_matches(": "))
        .env_remove("TIDEWIRE_SEEDS")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn said(child: Child, test: &str, seed: u64) -> Vec<String> {
    let child = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{test}, seed {seed}: {said}");
    assert!(said.contains("1 passed"), "there is no test {test}: {said}");
    // How long that took is no step.
    let steps = said.lines().filter(|line| !line.contains("finished in"));
    steps.map(str::to_owned).collect()
}
