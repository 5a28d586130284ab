//! A short, deterministic part of the fuzzing of the classic protocol: streams drawn from a seed,
//! well-formed and not.

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../../fuzz/src/classic.rs"]
mod classic;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::replay;

/// Messages in runs of equal sizes, some of them spoilt, with settings in front.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![4 => 0..6u32, 2 => 0..300u32, 1 => any::<u32>()];
    let run = (size, prop_oneof![1..4usize, 1..40usize], any::<u64>());
    let runs = proptest::collection::vec(run, 0..12);
    let spoil = proptest::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>()));
    let settings = any::<[u8; 6]>();
    (settings, runs, spoil, 0..30usize).prop_map(|(settings, runs, spoil, cut)| {
        let mut stream = Vec::new();
        for (size, n, id) in runs {
            for i in 0..n {
                stream.extend_from_slice(&id.wrapping_add(i as u64).to_ne_bytes());
                let size_bytes = match settings[0] & 1 {
                    0 => size.to_le_bytes(),
                    _ => size.to_be_bytes(),
                };
                stream.extend_from_slice(&size_bytes);
                stream.resize(stream.len() + size.min(1000) as usize, i as u8);
            }
        }
        stream.truncate(stream.len() - cut.min(stream.len()));
        if let (Some((at, byte)), false) = (spoil, stream.is_empty()) {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        [&settings[..], &stream].concat()
    })
}

fn run(cases: u32, target: fn(&[u8])) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&input(), |input| {
        target(&input);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn codec() {
    run(2000, classic::classic_codec);
}

#[test]
fn service() {
    run(1000, classic::classic_service);
}

#[test]
fn codec_corpus() {
    replay::replay("classic_codec", classic::classic_codec);
}

#[test]
fn service_corpus() {
    replay::replay("classic_service", classic::classic_service);
}
