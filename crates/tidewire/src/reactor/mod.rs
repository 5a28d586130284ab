//! The part of a loop that all engines share.

pub(crate) mod accept;
pub(crate) mod busy;
pub(crate) mod core;
pub(crate) mod counters;
pub(crate) mod drive;
pub(crate) mod env;
pub(crate) mod facts;
pub(crate) mod host;
pub(crate) mod life;
pub(crate) mod random;
pub(crate) mod setup;
pub(crate) mod state;
#[cfg(test)]
mod tests;
pub(crate) mod throttle;
pub(crate) mod wheel;
