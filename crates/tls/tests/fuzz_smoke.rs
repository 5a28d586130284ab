//! A short, deterministic part of the fuzzing of TLS.

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/src/tls.rs"]
mod tls;

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

#[test]
fn nothing_is_heard_that_was_not_said() {
    let config = Config {
        cases: 60,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let inputs = proptest::collection::vec(any::<u8>(), 0..60);
    let outcome = TestRunner::new_with_rng(config, rng).run(&inputs, |input| {
        tls::tls_server(&input);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn corpus() {
    replay::replay("tls_server", tls::tls_server);
}
