//! A short, deterministic part of the fuzzing of dumps: good ones, of which some bytes are others.

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/src/rdb.rs"]
mod rdb;

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::fs;
use std::path::Path;

use fastrand::Rng;

/// Those that are kept, which have every encoding.
fn kept() -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rdb_decode");
    let mut paths: Vec<_> = fs::read_dir(corpus)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn changed_dumps_are_read_or_refused() {
    let kept = kept();
    let mut random = Rng::with_seed(1);
    for _ in 0..1500 {
        let mut input = kept[random.usize(..kept.len())].clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..input.len());
            match random.u8(..4) {
                0 => input.truncate(at.max(1)),
                1 => {
                    let from = random.usize(..input.len());
                    let piece = input[from..input.len().min(from + 20)].to_vec();
                    input.splice(at..at, piece);
                }
                _ => input[at] = random.u8(..),
            }
        }
        rdb::rdb_decode(&input);
    }
}

#[test]
fn anything_is_read_or_refused() {
    let mut random = Rng::with_seed(2);
    for _ in 0..1500 {
        let length = random.usize(..300);
        let input: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(length)
            .collect();
        rdb::rdb_decode(&input);
    }
}

#[test]
fn corpus() {
    replay::replay("rdb_decode", rdb::rdb_decode);
}
