//! Tests of the service and its clients. One program, because many would each be built and linked; `memory` and
//! `system` have theirs.

mod chunking;
mod classic_levels;
mod classic_stall;
mod client;
mod client_sim;
#[path = "../common/mod.rs"]
mod common;
mod engines;
mod fuzz_smoke;
#[path = "../common/native.rs"]
mod native;
mod native_chunking;
mod native_edges;
mod native_engines;
mod native_fleet;
mod native_fuzz_smoke;
mod native_many;
mod native_producer;
mod native_reader;
mod native_replicated;
mod native_vectors;
#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../log/tests/simulated/twice.rs"]
mod twice;
#[path = "../../../tidewire/tests/shared/worked.rs"]
mod worked;

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "client_sim::every_message_is_stored_once_whatever_the_network",
        "client_sim::connections_that_break_lose_and_repeat_nothing",
        "native_many::connected_many_times_at_once_each_id_is_stored_once",
        "native_many::what_was_acknowledged_survives_a_crash",
        "native_fleet::a_tenure_knows_nothing_of_the_one_before",
        "native_reader::a_follower_sees_each_commit",
        "native_replicated::an_acknowledgement_waits_for_the_home_and_that_of_others_does_not",
        "classic_levels::durable_comes_after_the_commit",
    ];
    for test in tests {
        (0..1).for_each(|seed| twice::says_the_same(test, seed, "network: "));
    }
}
