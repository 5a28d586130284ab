//! The settings of a stream, as runs and checkpoints encode them.

use std::time::Duration;

use super::layout::{u32_at, u64_at};
use crate::{Compression, StreamSettings};

/// Length of the encoded settings.
pub(crate) const LENGTH: usize = 28;
/// No limit.
const NONE: u64 = u64::MAX;

pub(crate) fn put(to: &mut Vec<u8>, settings: &StreamSettings) {
    to.extend_from_slice(&u32::from(settings.compression.code()).to_le_bytes());
    let age = settings.retain_age.map(|age| age.as_micros() as u64);
    for limit in [settings.retain_bytes, age, settings.limit_bytes] {
        to.extend_from_slice(&limit.unwrap_or(NONE).to_le_bytes());
    }
}

/// Decodes `bytes`, which have [`LENGTH`] bytes at least.
pub(crate) fn decode(bytes: &[u8]) -> Option<StreamSettings> {
    let compression = u8::try_from(u32_at(bytes, 0)).ok()?;
    let limit = |at| Some(u64_at(bytes, at)).filter(|&limit| limit != NONE);
    Some(StreamSettings {
        compression: Compression::of(compression)?,
        retain_bytes: limit(4),
        retain_age: limit(12).map(Duration::from_micros),
        limit_bytes: limit(20),
    })
}
