//! The admin listener, and the settings that it shows.

pub(crate) mod listener;
pub(crate) mod options;
pub(crate) mod shown;
