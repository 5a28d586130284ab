//! The mistakes of members, planted.

use tidewire_replicate::Mistakes;

use super::world::run;
use crate::seeds::some;

#[test]
fn a_welcome_before_the_marks_are_read_is_found() {
    let mistakes = Mistakes {
        promise_unread: true,
        ..Mistakes::default()
    };
    some(1000, |seed| run(seed, mistakes));
}

#[test]
fn marks_in_another_transaction_than_their_records_are_found_in_a_fleet() {
    let mistakes = Mistakes {
        marks_apart: true,
        ..Mistakes::default()
    };
    some(1000, |seed| run(seed, mistakes));
}

#[test]
fn a_watermark_before_the_commit_is_found_in_a_fleet() {
    let mistakes = Mistakes {
        early_watermark: true,
        ..Mistakes::default()
    };
    some(1000, |seed| run(seed, mistakes));
}

#[test]
fn a_repeat_of_what_was_not_settled_is_found_in_a_fleet() {
    let mistakes = Mistakes {
        repeat_unsettled: true,
        ..Mistakes::default()
    };
    some(1000, |seed| run(seed, mistakes));
}

#[test]
fn what_an_earlier_tenure_has_left_and_is_carried_is_found() {
    let mistakes = Mistakes {
        carry_past: true,
        ..Mistakes::default()
    };
    some(1000, |seed| run(seed, mistakes));
}
