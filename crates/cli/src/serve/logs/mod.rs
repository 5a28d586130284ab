//! Durable logs, which the frame opens and lends, and the home of that of messages.

pub(crate) mod blocked;
pub(crate) mod fleet;
pub(crate) mod full;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod replica;
