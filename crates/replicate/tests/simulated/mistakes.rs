//! The classic mistakes of replicators, planted: the checks that the other tests rest on must find each of them.

use tidewire_replicate::Mistakes;

use crate::seeds::some;
use crate::world::run;

#[test]
fn a_promise_before_the_marks_are_read_is_found() {
    let mistakes = Mistakes {
        promise_unread: true,
        ..Mistakes::default()
    };
    some(500, |seed| run(seed, 1, mistakes));
}

#[test]
fn marks_in_another_transaction_than_their_records_are_found() {
    let mistakes = Mistakes {
        marks_apart: true,
        ..Mistakes::default()
    };
    some(500, |seed| run(seed, 1, mistakes));
}

#[test]
fn a_watermark_before_the_commit_is_found() {
    let mistakes = Mistakes {
        early_watermark: true,
        ..Mistakes::default()
    };
    some(500, |seed| run(seed, 1, mistakes));
}

#[test]
fn a_repeat_of_what_was_not_settled_is_found() {
    let mistakes = Mistakes {
        repeat_unsettled: true,
        ..Mistakes::default()
    };
    some(500, |seed| run(seed, 1, mistakes));
}

#[test]
fn a_copy_that_is_not_recognised_is_found() {
    let mistakes = Mistakes {
        trust_positions: true,
        ..Mistakes::default()
    };
    some(2000, |seed| run(seed, 2, mistakes));
}

#[test]
fn a_cursor_ahead_of_its_records_is_found() {
    let mistakes = Mistakes {
        cursors_ahead: true,
        ..Mistakes::default()
    };
    some(500, |seed| run(seed, 1, mistakes));
}
