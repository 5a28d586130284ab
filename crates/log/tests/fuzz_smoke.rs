//! A short, deterministic part of the fuzzing of recovery.

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/src/log.rs"]
mod log;

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use fastrand::Rng;

#[test]
fn recovery_stands_anything() {
    let mut random = Rng::with_seed(1);
    for _ in 0..1500 {
        let length = random.usize(0..random.clone().usize(1..600));
        let mut input: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(length)
            .collect();
        if let Some(first) = input.first_mut().filter(|_| random.u8(0..8) > 0) {
            // Mostly changes to a good log: what is not like one is soon done with.
            *first |= 1;
            input.truncate(1 + 6 * random.usize(1..5));
        }
        log::log_recovery(&input);
    }
}

#[test]
fn corpus() {
    replay::replay("log_recovery", log::log_recovery);
}
