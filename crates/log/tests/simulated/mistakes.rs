//! The classic mistakes of durable logs, planted: the checks that the other tests rest on must find
//! each of them.

use tidewire_log::{Mistakes, Policy};

use crate::seeds::some;
use crate::settings::{draw, draw_with_retention, with};
use crate::{crashes, decay, failures};

#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    let mistakes = Mistakes {
        ack_before_sync: true,
        ..Mistakes::default()
    };
    some(200, |seed| {
        crashes::run(seed, |random| with(mistakes, draw(random, Policy::Sync)))
    });
}

#[test]
fn a_failed_sync_tried_again_is_found() {
    let mistakes = Mistakes {
        retry_sync: true,
        ..Mistakes::default()
    };
    some(200, |seed| {
        failures::run(seed, |random| with(mistakes, draw(random, Policy::Sync)))
    });
}

#[test]
fn an_index_ahead_of_its_log_is_found() {
    let mistakes = Mistakes {
        trust_index: true,
        ..Mistakes::default()
    };
    some(200, |seed| {
        crashes::run(seed, |random| with(mistakes, draw(random, Policy::Sync)))
    });
}

#[test]
fn a_segment_removed_before_its_successor_is_durable_is_found() {
    let mistakes = Mistakes {
        delete_early: true,
        ..Mistakes::default()
    };
    some(200, |seed| {
        crashes::run(seed, |random| {
            with(mistakes, draw_with_retention(random, Policy::Sync))
        })
    });
}

#[test]
fn a_last_group_without_a_claim_is_found() {
    let mistakes = Mistakes {
        claim_never: true,
        ..Mistakes::default()
    };
    some(400, |seed| {
        decay::closed(seed, |random| with(mistakes, draw(random, Policy::Sync)))
    });
}

#[test]
fn a_claim_before_the_sync_is_found() {
    let mistakes = Mistakes {
        claim_early: true,
        ..Mistakes::default()
    };
    some(200, |seed| {
        crashes::run(seed, |random| with(mistakes, draw(random, Policy::Sync)))
    });
}

/// A sync of the directory that failed hides which names are durable: later ones report success, and
/// the power cut shows it.
#[test]
fn a_name_that_is_trusted_after_a_failed_sync_of_the_directory_is_found() {
    let mistakes = Mistakes {
        trust_names: true,
        ..Mistakes::default()
    };
    some(400, |seed| {
        failures::run(seed, |random| with(mistakes, draw(random, Policy::Sync)))
    });
}

/// A name that is gone is trusted as well: a segment that retention has removed comes back, and
/// later ones do not.
#[test]
fn a_removal_that_is_trusted_after_a_failed_sync_of_the_directory_is_found() {
    let mistakes = Mistakes {
        trust_names: true,
        ..Mistakes::default()
    };
    some(2000, |seed| {
        failures::directory(seed, |random| {
            with(mistakes, draw_with_retention(random, Policy::Sync))
        })
    });
}
