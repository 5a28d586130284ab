//! Each of the classic mistakes is found.

use tidewire::sim::try_seed;
use tidewire_kv::store::Mistakes;

use crate::home::{Wrong, grown, homes, large};
use crate::replay::{same, torn, unclosed};
use crate::scene::lives;
use crate::served::served;
use crate::snapshots::{accidents, any_moment, lost_name};

/// Seeds that may be needed to find one.
const SEEDS: std::ops::Range<u64> = 0..400;

fn is_found(test: fn(u64, Mistakes) -> Result<(), String>, mistakes: Mistakes) {
    let tried = |seed| try_seed(seed, |seed| test(seed, mistakes)).err();
    let found = SEEDS.clone().find_map(|seed| Some((seed, tried(seed)?)));
    let (seed, found) = found.unwrap_or_else(|| panic!("not found: {mistakes:?}"));
    println!("{mistakes:?}: seed {seed}: {found:.200}");
}

fn history(seed: u64, mistakes: Mistakes) -> Result<(), String> {
    served(seed, mistakes).map(drop)
}

#[test]
fn a_reply_before_the_commit_is_found() {
    for test in [lives, history] {
        is_found(
            test,
            Mistakes {
                reply_early: true,
                ..Mistakes::default()
            },
        );
    }
}

#[test]
fn a_dirty_read_is_found() {
    for test in [lives, history] {
        is_found(
            test,
            Mistakes {
                read_dirty: true,
                ..Mistakes::default()
            },
        );
    }
}

#[test]
fn a_transaction_in_several_units_is_found() {
    let split_units = true;
    is_found(
        torn,
        Mistakes {
            split_units,
            ..Mistakes::default()
        },
    );
}

#[test]
fn room_that_is_refused_in_the_middle_is_found() {
    let refuse_midway = true;
    is_found(
        lives,
        Mistakes {
            refuse_midway,
            ..Mistakes::default()
        },
    );
}

#[test]
fn a_unit_without_its_end_is_found() {
    let play_unclosed = true;
    is_found(
        unclosed,
        Mistakes {
            play_unclosed,
            ..Mistakes::default()
        },
    );
}

#[test]
fn a_message_before_what_it_follows_is_found() {
    let publish_early = true;
    is_found(
        lives,
        Mistakes {
            publish_early,
            ..Mistakes::default()
        },
    );
}

#[test]
fn a_replay_by_the_clock_is_found() {
    let replay_late = true;
    is_found(
        same,
        Mistakes {
            replay_late,
            ..Mistakes::default()
        },
    );
}

#[test]
fn a_value_that_was_not_handed_out_before_it_changed_is_found() {
    let forget_before = true;
    is_found(
        any_moment,
        Mistakes {
            forget_before,
            ..Mistakes::default()
        },
    );
}

#[test]
fn a_log_that_is_cut_before_the_snapshot_is_durable_is_found() {
    let cut_early = true;
    is_found(
        accidents,
        Mistakes {
            cut_early,
            ..Mistakes::default()
        },
    );
}

#[test]
fn a_snapshot_that_counts_before_what_it_holds_is_committed_is_found() {
    let count_early = true;
    is_found(
        accidents,
        Mistakes {
            count_early,
            ..Mistakes::default()
        },
    );
}

#[test]
fn a_snapshot_whose_name_is_taken_for_durable_is_found() {
    let trust_names = true;
    is_found(
        lost_name,
        Mistakes {
            trust_names,
            ..Mistakes::default()
        },
    );
}

/// Finds what is wrong with stores that have a home, with small units or large ones.
fn is_found_at_home(test: fn(u64, Wrong) -> Result<(), String>, wrong: Wrong) {
    let tried = |seed| try_seed(seed, |seed| test(seed, wrong)).err();
    let found = SEEDS.clone().find_map(|seed| Some((seed, tried(seed)?)));
    let (seed, found) = found.unwrap_or_else(|| panic!("not found: {wrong:?}"));
    println!("seed {seed}: {found:.200}");
}

fn store(store: Mistakes) -> Wrong {
    Wrong {
        store,
        ..Wrong::default()
    }
}

#[test]
fn a_reply_before_the_commit_at_home_is_found() {
    let reply_before_home = true;
    let mistakes = Mistakes {
        reply_before_home,
        ..Mistakes::default()
    };
    is_found_at_home(homes, store(mistakes));
}

#[test]
fn a_store_that_is_taken_over_before_all_was_read_is_found() {
    let own_unread = true;
    let mistakes = Mistakes {
        own_unread,
        ..Mistakes::default()
    };
    is_found_at_home(homes, store(mistakes));
}

#[test]
fn a_unit_that_is_followed_without_its_end_is_found() {
    let play_unclosed = true;
    let mistakes = Mistakes {
        play_unclosed,
        ..Mistakes::default()
    };
    is_found_at_home(large, store(mistakes));
}

#[test]
fn units_of_two_owners_that_are_taken_for_one_are_found() {
    let join_units = true;
    let mistakes = Mistakes {
        join_units,
        ..Mistakes::default()
    };
    is_found_at_home(large, store(mistakes));
}

#[test]
fn a_watermark_before_the_commit_at_home_is_found() {
    let carrying = tidewire_replicate::Mistakes {
        early_watermark: true,
        ..Default::default()
    };
    let wrong = Wrong {
        carrying,
        ..Wrong::default()
    };
    is_found_at_home(homes, wrong);
}

#[test]
fn a_repeat_of_what_was_not_settled_is_found() {
    let carrying = tidewire_replicate::Mistakes {
        repeat_unsettled: true,
        ..Default::default()
    };
    let wrong = Wrong {
        carrying,
        ..Wrong::default()
    };
    is_found_at_home(homes, wrong);
}

#[test]
fn a_word_for_a_snapshot_before_what_is_in_it_is_at_home_is_found() {
    let wrong = Wrong {
        word_early: true,
        ..Wrong::default()
    };
    is_found_at_home(homes, wrong);
}

#[test]
fn a_promise_of_a_home_that_is_only_a_part_is_found() {
    let carrying = tidewire_replicate::Mistakes {
        promise_part: true,
        ..Default::default()
    };
    let wrong = Wrong {
        carrying,
        ..Wrong::default()
    };
    is_found_at_home(grown, wrong);
}

/// The mistakes that let two servers serve the same store.
#[test]
fn each_mistake_with_leases_is_found() {
    let none = tidewire_replicate::Mistakes::default();
    let carrying = |carrying| Wrong {
        carrying,
        ..Wrong::default()
    };
    let wrongs = [
        carrying(tidewire_replicate::Mistakes {
            lease_from_answer: true,
            ..none
        }),
        carrying(tidewire_replicate::Mistakes {
            lease_unwaited: true,
            ..none
        }),
        store(Mistakes {
            serve_unproven: true,
            ..Mistakes::default()
        }),
        store(Mistakes {
            take_from_any: true,
            ..Mistakes::default()
        }),
        Wrong {
            lease_by_wall: true,
            ..Wrong::default()
        },
    ];
    for wrong in wrongs {
        is_found_at_home(homes, wrong);
    }
}
