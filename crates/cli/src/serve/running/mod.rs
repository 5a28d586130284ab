//! A server from its start to its end.

pub(crate) mod announce;
pub(crate) mod end;
pub(crate) mod ending;
pub(crate) mod events;
pub(crate) mod life;
pub(crate) mod manager;
pub(crate) mod now;
pub(crate) mod remains;
pub(crate) mod services;
pub(crate) mod word;
