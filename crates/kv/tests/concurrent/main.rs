//! Many clients at once, on every engine and on the simulated network: what single commands,
//! transactions and blocking pops promise holds in between.

#![expect(
    clippy::disallowed_methods,
    reason = "these are clients with patience, not protocols"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/wire.rs"]
mod wire;

mod asks;
mod atomic;
mod history;
mod linear;
mod simulated;
#[path = "../../../log/tests/simulated/twice.rs"]
mod twice;
mod waking;

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "simulated::every_element_is_received_once_or_left",
        "simulated::nothing_is_seen_half_done",
        "simulated::single_key_commands_are_linearizable",
    ];
    for test in tests {
        (0..4).for_each(|seed| twice::says_the_same(test, seed, "network: "));
    }
}
