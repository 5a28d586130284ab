//! Random commands against our store and against a real server: the replies must be the same.
//!
//! The peer is a Valkey (of any version that says it is Redis 7.2) or, for the commands it has,
//! Redis 7.0; `peer.rs` says where it is looked for. Without one the comparison is skipped and says
//! so. `TIDEWIRE_COMPARE_SEED` and `TIDEWIRE_COMPARE_CASES` choose other sequences than the usual
//! ones; a failure prints a seed and the shortest sequence that was found for it.

mod generate;
mod ours;
mod peer;
mod same;
mod templates;
#[path = "../common/valkey.rs"]
mod valkey;
mod value;

use fastrand::Rng;
use tidewire_kv::reply::Proto;

use generate::Args;
use ours::Ours;
use peer::Peer;
use value::show;

/// Commands of a sequence.
const LENGTH: usize = 150;
/// After so many differences no more are looked for.
const FAILURES_MAX: usize = 30;

fn number(name: &str, usual: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => usual,
    }
}

/// The sequence of a seed.
fn sequence(seed: u64, is_7_2: bool) -> Vec<Args> {
    let mut rng = Rng::with_seed(seed);
    let mut all = Vec::new();
    for _ in 0..LENGTH {
        all.push(generate::command(&mut rng, is_7_2));
        if rng.usize(..LENGTH) == 0 {
            all.extend(generate::burst(&mut rng));
        }
    }
    all
}

fn compare(name: &str, proto: Proto) {
    let mut peer = match Peer::start(name) {
        Ok(peer) => peer,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    if proto == Proto::Resp3 {
        peer.say("HELLO 3");
    }
    let first = number("TIDEWIRE_COMPARE_SEED", 1);
    let mut failures: Vec<String> = Vec::new();
    for seed in first..first + number("TIDEWIRE_COMPARE_CASES", 100) {
        let commands = sequence(seed, peer.is_7_2);
        let few = seed % 2 == 0;
        let Err(why) = same::run(&commands, proto, few, &mut peer) else {
            continue;
        };
        let (commands, why) = shorter(commands, why, proto, few, &mut peer);
        let lines: Vec<String> = commands.iter().map(|args| show(args)).collect();
        failures.push(format!("seed {seed}:\n{}\n{why}\n", lines.join("\n")));
        if failures.len() == FAILURES_MAX {
            break;
        }
    }
    assert!(
        failures.is_empty(),
        "RESP {proto:?}\n{}",
        failures.join("\n")
    );
}

/// Leaves out what does not matter for a difference, pieces of half the length at a time.
fn shorter(
    mut commands: Vec<Args>,
    mut why: String,
    proto: Proto,
    few: bool,
    peer: &mut Peer,
) -> (Vec<Args>, String) {
    let mut piece = commands.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < commands.len() {
            let mut fewer = commands.clone();
            fewer.drain(at..(at + piece).min(fewer.len()));
            match same::run(&fewer, proto, few, peer) {
                Err(again) => (commands, why) = (fewer, again),
                Ok(()) => at += piece,
            }
        }
        piece /= 2;
    }
    (commands, why)
}

#[test]
fn the_same_replies_in_resp2() {
    compare("resp2", Proto::Resp2);
}

#[test]
fn the_same_replies_in_resp3() {
    compare("resp3", Proto::Resp3);
}

#[test]
fn the_effects_give_the_same_keys() {
    let first = number("TIDEWIRE_COMPARE_SEED", 1);
    for seed in first..first + number("TIDEWIRE_COMPARE_CASES", 100) {
        let (mut ours, mut replica) = (
            Ours::new(Proto::Resp2, seed),
            Ours::new(Proto::Resp2, !seed),
        );
        for args in sequence(seed, true) {
            ours.run(&args);
            for effect in ours.effects() {
                let reply = replica.run(&effect);
                assert!(
                    !reply.is_error(),
                    "seed {seed}: {} came to {}: {reply:?}",
                    show(&args),
                    show(&effect)
                );
            }
            let (left, right) = (
                same::dump(|args| ours.run(args), true),
                same::dump(|args| replica.run(args), true),
            );
            assert_eq!(left, right, "seed {seed}: after {}", show(&args));
        }
    }
}
