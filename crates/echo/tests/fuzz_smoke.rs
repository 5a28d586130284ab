//! A short, deterministic part of the fuzzing of echo.

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/src/echo.rs"]
mod echo;

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

#[test]
fn echoes() {
    let config = Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let inputs = proptest::collection::vec(any::<u8>(), 0..3000);
    let outcome = TestRunner::new_with_rng(config, rng).run(&inputs, |input| {
        echo::echo(&input);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn corpus() {
    replay::replay("echo", echo::echo);
}
