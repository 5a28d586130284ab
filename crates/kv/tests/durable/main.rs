//! The durable store on simulated disks: what was acknowledged or seen is there after any crash, no
//! unit is torn, and replay gives the same store. Every accident comes from a seed; each planted
//! mistake is found.
//!
//! `TIDEWIRE_SEEDS=100000 cargo test -p tidewire-kv --test durable` tries more, `TIDEWIRE_SEED=7` only that one.

#![expect(
    clippy::disallowed_methods,
    reason = "what the tests of real servers have in common waits and connects"
)]

#[path = "../concurrent/asks.rs"]
mod asks;
#[path = "../../../../golden/check.rs"]
mod golden_check;
#[path = "../concurrent/history.rs"]
#[allow(dead_code, reason = "a part of it is for the other test")]
mod history;
#[path = "../concurrent/porcupine.rs"]
mod porcupine;
#[path = "../../../replicate/tests/simulated/home.rs"]
#[allow(dead_code, reason = "a part of it is for the other test")]
mod sim_home;
#[path = "../common/wire.rs"]
mod wire;

mod aged;
mod attacks;
mod by_hand;
mod disk;
mod events;
mod facts;
mod following;
mod full_disk;
mod golden;
mod home;
mod midway;
mod mistakes;
mod proof;
mod replay;
mod scene;
mod sentinel;
mod served;
mod slow;
mod snapshots;
mod takeover;
#[path = "../../../log/tests/simulated/twice.rs"]
mod twice;

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "scene::what_was_acknowledged_or_seen_is_there_after_any_crash",
        "served::every_key_has_one_history_whatever_becomes_of_the_server",
        "snapshots::a_snapshot_at_any_moment_is_the_store_at_its_ticket",
        "snapshots::whatever_happens_while_a_snapshot_is_made_nothing_is_lost",
        "home::no_failover_loses_or_tears_what_was_acknowledged",
        "home::a_store_that_was_there_before_its_home_loses_nothing_either",
        "replay::nothing_of_a_transaction_is_there_before_its_end",
        "replay::replay_gives_the_same_store",
    ];
    for test in tests {
        (0..3).for_each(|seed| twice::says_the_same(test, seed, "disk: "));
    }
}
