//! The part of a loop that all engines share.

pub(crate) mod core;
pub(crate) mod counters;
pub(crate) mod drive;
pub(crate) mod env;
pub(crate) mod host;
pub(crate) mod random;
pub(crate) mod state;
pub(crate) mod throttle;
pub(crate) mod wheel;
