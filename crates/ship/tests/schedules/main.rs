//! Thousands of random schedules: files that grow, are rotated by renaming and by truncating, and
//! removed; directories that are not there for a while; a shipper that is killed between any two of its acts; servers that go away and come back;
//! connections that break. At the end each line is there once, in order.

mod cases;
mod files;
mod holes;
mod mirror;
mod servers;
#[path = "../../../log/tests/simulated/twice.rs"]
mod twice;
mod world;

use world::{Profile, World};

/// `TIDEWIRE_SEEDS`: how many instead of the usual number, or `7..9`; `TIDEWIRE_SEED`: the one that has failed.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    if let Ok(seed) = std::env::var("TIDEWIRE_SEED") {
        return number(&seed)..number(&seed) + 1;
    }
    let wanted = std::env::var("TIDEWIRE_SEEDS").unwrap_or(usual.to_string());
    let (from, to) = wanted.split_once("..").unwrap_or(("0", &wanted));
    number(from)..number(to)
}

/// Runs every seed; the first that fails is named.
fn all(profile: Profile) {
    some(profile, 800);
}

fn some(profile: Profile, usual: u64) {
    let is_traced = std::env::var_os("TIDEWIRE_TRACED").is_some();
    for seed in seeds(usual) {
        let run = std::panic::catch_unwind(|| match World::new(seed, profile) {
            world if is_traced => println!("schedule: {:016x}", world.traced()),
            world => world.run(),
        });
        if run.is_err() {
            panic!("{profile:?}, seed {seed}: see above");
        }
    }
}

#[test]
fn files_that_are_renamed() {
    all(Profile::Renamed);
}

#[test]
fn files_that_are_renamed_with_few_descriptors() {
    all(Profile::Crowded);
}

/// Among files of one birth, the larger number was always taken for the older one.
#[test]
fn files_that_are_renamed_within_one_tick_of_the_clock() {
    all(Profile::Ticks);
}

#[test]
fn files_that_are_renamed_and_matched_by_one_pattern() {
    all(Profile::Pattern);
}

#[test]
fn files_that_are_copied_and_truncated() {
    all(Profile::Truncated);
}

#[test]
fn errors_that_pass() {
    all(Profile::Errors);
}

#[test]
fn file_systems_that_are_not_mounted_for_a_while() {
    all(Profile::Absent);
}

#[test]
fn file_systems_that_are_not_mounted_for_a_while_and_a_pattern() {
    all(Profile::AbsentPattern);
}

#[test]
fn several_servers() {
    all(Profile::Failover);
}

/// Each line is there once among all of them, as at one server.
#[test]
fn several_servers_of_a_fleet() {
    all(Profile::Fleet);
}

#[test]
fn a_server_that_is_set_back() {
    all(Profile::SetBack);
}

/// `TIDEWIRE_SEEDS=10000 cargo test --profile seeds -p tidewire-ship --test schedules histories` tries more.
#[test]
fn histories_with_all_that_can_happen_to_a_file() {
    all(Profile::Mixed);
}

#[test]
fn histories_with_all_that_can_happen_to_a_file_and_a_pattern() {
    all(Profile::MixedPattern);
}

/// Fewer: each call is one of the system. `TIDEWIRE_SEEDS=200` tries more.
#[test]
fn histories_in_a_real_directory() {
    some(Profile::Real, 40);
}

#[test]
fn a_seed_is_the_same_schedule_in_another_process() {
    let tests = [
        "files_that_are_renamed",
        "files_that_are_renamed_within_one_tick_of_the_clock",
        "files_that_are_renamed_and_matched_by_one_pattern",
        "files_that_are_copied_and_truncated",
        "errors_that_pass",
        "file_systems_that_are_not_mounted_for_a_while",
        "file_systems_that_are_not_mounted_for_a_while_and_a_pattern",
        "several_servers",
        "several_servers_of_a_fleet",
        "a_server_that_is_set_back",
        "histories_with_all_that_can_happen_to_a_file",
        "histories_with_all_that_can_happen_to_a_file_and_a_pattern",
    ];
    for test in tests {
        (0..4).for_each(|seed| twice::says_the_same(test, seed, "schedule: "));
    }
}

/// A test of the test: ids that do not say where a line ends would be noticed.
#[test]
fn a_server_that_forgets_its_marks_is_noticed() {
    let found = (0..200).any(|seed| {
        let world = World::new(seed, Profile::Forgetful);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run())).is_err()
    });
    assert!(found);
}
