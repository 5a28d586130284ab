//! Settings: one schema, which is the flags; their sources, and their checked values.

pub(crate) mod args;
pub(crate) mod defaults;
pub(crate) mod example;
pub(crate) mod file;
pub(crate) mod frame;
pub(crate) mod given;
pub(crate) mod schema;
pub(crate) mod sources;
pub(crate) mod unused;
