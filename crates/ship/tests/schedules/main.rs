//! Thousands of random schedules: files that grow, are rotated by renaming and by truncating, and
//! removed; directories that are not there for a while; a shipper that is killed between any two of its acts; servers that go away and come back;
//! connections that break. At the end each line is there once, in order.

mod cases;
mod files;
mod servers;
mod world;

use world::{Profile, World};

/// `TIDEWIRE_SEEDS`: how many, or `7..8` for one that has failed.
fn seeds() -> std::ops::Range<u64> {
    let wanted = std::env::var("TIDEWIRE_SEEDS").unwrap_or("800".into());
    let (from, to) = wanted.split_once("..").unwrap_or(("0", &wanted));
    let number = |text: &str| text.parse().expect("a number");
    number(from)..number(to)
}

/// Runs every seed; the first that fails is named.
fn all(profile: Profile) {
    for seed in seeds() {
        let run = std::panic::catch_unwind(|| World::new(seed, profile).run());
        if run.is_err() {
            panic!("{profile:?}, seed {seed}: see above");
        }
    }
}

#[test]
fn files_that_are_renamed() {
    all(Profile::Renamed);
}

/// Of those of one birth the larger number was taken for the older one, always.
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

/// The same seed in two processes takes the same steps: tables with random keys, clocks and addresses would show.
#[test]
fn a_seed_is_the_same_schedule_in_another_process() {
    const CHILD: &str = "TIDEWIRE_TRACED";
    if std::env::var_os(CHILD).is_some() {
        let profiles = [
            Profile::Renamed,
            Profile::Ticks,
            Profile::Pattern,
            Profile::Truncated,
            Profile::Failover,
            Profile::Fleet,
            Profile::Errors,
            Profile::AbsentPattern,
            Profile::SetBack,
        ];
        for profile in profiles {
            for seed in 0..5 {
                let trace = World::new(seed, profile).traced();
                println!("traced {profile:?} {seed} {trace:016x}");
            }
        }
        return;
    }
    let traced = || {
        let name = "a_seed_is_the_same_schedule_in_another_process";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout).into_owned();
        let lines = said.lines().filter(|line| line.contains("traced "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let first = traced();
    assert_eq!(first.len(), 45, "{first:?}");
    assert_eq!(first, traced());
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
