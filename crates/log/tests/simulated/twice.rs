//! The same seed in two processes takes the same steps: tables with random keys, clocks and addresses would show. Taken in by the
//! tests of several crates.

use std::process::Command;

/// Runs a test with this one seed in two other processes, and holds what both say of its steps against each other; `word` is in that.
pub(crate) fn says_the_same(test: &str, seed: u64, word: &str) {
    let (one, other) = (said(test, seed), said(test, seed));
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

fn said(test: &str, seed: u64) -> Vec<String> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env("TIDEWIRE_SEED", seed.to_string())
        .env_remove("TIDEWIRE_SEEDS")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{test}, seed {seed}: {said}");
    assert!(said.contains("1 passed"), "there is no test {test}: {said}");
    // How long that took is no step.
    let steps = said.lines().filter(|line| !line.contains("finished in"));
    steps.map(str::to_owned).collect()
}
