//! The log on a simulated disk: thousands of seeds of producers, crashes and faults, each held
//! against a model of what was committed.
//!
//! `TIDEWIRE_SEEDS=n` runs n seeds of each test, `TIDEWIRE_SEED=s` only the seed s.

mod crashes;
mod cursors;
mod decay;
mod failures;
mod full;
mod lives;
mod mistakes;
mod model;
mod profile;
mod reading;
mod seeds;
mod settings;
mod twice;
mod world;

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "crashes::nothing_committed_is_lost_when_power_is",
        "crashes::what_retention_leaves_is_whole",
        "crashes::nor_is_what_was_set_about_streams",
        "failures::a_failed_write_or_sync_is_final_and_loses_nothing_committed",
        "full::a_full_disk_refuses_and_the_log_goes_on_when_there_is_room",
    ];
    for test in tests {
        (0..4).for_each(|seed| twice::says_the_same(test, seed, "disk: "));
    }
}
