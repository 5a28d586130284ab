//! Tests of the server and its store. One program, because many would each be built and linked; `compare`, `concurrent`
//! and `durable` have theirs.

mod acl;
mod acl_compared;
mod advisories;
mod binary;
mod blocking;
mod busy;
mod commands;
#[allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]
mod commands_compared;
#[path = "../common/mod.rs"]
mod common;
mod effects;
mod events;
mod expiring;
mod frequency;
mod functions;
mod fuzz_smoke;
#[path = "../compare/generate.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod generate;
mod golden;
#[path = "../../../../golden/check.rs"]
#[allow(clippy::disallowed_methods, reason = "it reads files")]
mod golden_check;
mod guard;
mod holdings;
mod hostile;
mod latency;
mod loading;
mod locks;
#[allow(
    clippy::disallowed_methods,
    reason = "it starts threads beside a server on real sockets"
)]
mod log_keys;
mod many_shards;
mod memory;
mod monitor;
mod orders;
#[allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]
mod random_compared;
mod said;
mod same_as_redis;
mod scripts;
mod scripts_compared;
mod session;
#[allow(
    clippy::disallowed_methods,
    reason = "it starts threads beside a server on real sockets"
)]
mod stuck;
mod suites;
#[path = "../compare/templates.rs"]
mod templates;
mod tracking;
#[path = "../../../log/tests/simulated/twice.rs"]
mod twice;
#[path = "../common/valkey.rs"]
mod valkey;
#[path = "../common/wire.rs"]
#[allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]
mod wire;
#[path = "../../../tidewire/tests/shared/worked.rs"]
mod worked;

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "blocking::each_type_serves_its_own_in_their_order_whichever_client_leaves",
        "tracking::keys_that_expire_or_are_evicted_are_told_of",
        "events::whichever_client_does_it_and_however",
        "scripts::nothing_of_a_script_stays_for_the_next",
        "expiring::keys_expire_in_virtual_time",
        "orders::channels_are_listed_in_order",
        "orders::what_is_flushed_is_told_in_order",
        "orders::what_databases_bring_when_they_are_swapped_is_served_in_order",
        "orders::notes_that_are_too_many_go_as_the_stores_key_says",
    ];
    for test in tests {
        (0..1).for_each(|seed| twice::says_the_same(test, seed, "network: "));
    }
}
