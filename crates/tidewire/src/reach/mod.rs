//! Reaching a loop or a connection from elsewhere.

pub(crate) mod alarm;
pub mod channel;
pub(crate) mod home;
pub(crate) mod mailbox;
pub(crate) mod names;
pub(crate) mod nudges;
pub(crate) mod stop;
pub(crate) mod sync;
pub(crate) mod waker;
pub(crate) mod woken;
