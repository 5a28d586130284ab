//! Listeners from one process to the next.

pub(crate) mod control;
pub(crate) mod handing;
pub(crate) mod inherit;
pub(crate) mod passing;
pub(crate) mod takeover;
pub(crate) mod upgrade;
