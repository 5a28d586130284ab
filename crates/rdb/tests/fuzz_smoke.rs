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

/// The kept dumps, which have every encoding.
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

/// The slow input of the fuzzing: a long key in small pieces, which begins with a string that is far longer than it is in the file.
#[test]
fn a_long_key_in_small_pieces_is_not_decoded_for_each() {
    // A list of many strings.
    let mut input = vec![1, 1, 1, b'k', 0x80, 0, 0, 4, 0];
    // 60,000 times the same byte: one as it is, then runs that repeat it.
    let (long, mut packed) = (60_000, vec![0, b'x']);
    for _ in 0..(long - 1) / 264 {
        packed.extend([0xe0, 255, 0]);
    }
    let rest = (long - 1) % 264;
    packed.extend([0xe0, (rest - 9) as u8, 0]);
    input.extend([0xc3, 0x40 | (packed.len() >> 8) as u8, packed.len() as u8]);
    input.push(0x80);
    input.extend((long as u32).to_be_bytes());
    input.extend(packed);
    // One more that a key has room for, and one byte of it is not there.
    input.extend([0x80, 0, 0, 0x14, 0]);
    input.resize(input.len() + 0x13ff, b'y');
    rdb::rdb_decode(&input);
}
