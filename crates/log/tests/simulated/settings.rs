//! Small settings, so that few messages cross every border: groups, segments, retention.

use std::time::Duration;

use fastrand::Rng;
use tidewire_log::{Mistakes, Policy, Settings, Verify};

pub(crate) fn interval() -> Policy {
    Policy::Interval(Duration::from_millis(5))
}

/// Settings without retention and without mistakes.
pub(crate) fn draw(random: &mut Rng, policy: Policy) -> Settings {
    // Mostly small: a segment holds some groups at least, and many segments are what is wanted.
    let group_bytes = 1 << random.u32(10..15).min(random.u32(10..15));
    Settings {
        policy,
        segment_bytes: 1 << random.u32(12..17).min(random.u32(12..17)),
        group_bytes,
        group_first: 1 << random.u32(10..16),
        payload_max: u32::try_from(group_bytes).expect("small") - 64,
        verify: if random.u8(0..3) == 0 {
            Verify::Tail
        } else {
            Verify::All
        },
        full_retry: Duration::from_millis(random.u64(1..2000)),
        identity: Some(random.u64(..)),
        ..Settings::default()
    }
}

/// As above, with old segments being removed.
pub(crate) fn draw_with_retention(random: &mut Rng, policy: Policy) -> Settings {
    let mut settings = draw(random, policy);
    if random.bool() {
        settings.retention_bytes = Some(settings.segment_bytes * random.u64(0..4));
    } else {
        settings.retention_age = Some(Duration::from_secs(random.u64(5..100)));
    }
    settings
}

pub(crate) fn with(mistakes: Mistakes, settings: Settings) -> Settings {
    Settings {
        mistakes,
        ..settings
    }
}
