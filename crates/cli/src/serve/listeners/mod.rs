//! Listeners: which service listens at which address, and the layers in front of it.

pub(crate) mod admission;
pub(crate) mod deadlines;
pub(crate) mod door;
pub(crate) mod endpoint;
pub(crate) mod fronts;
pub(crate) mod guard;
pub(crate) mod kind;
pub(crate) mod limits;
pub(crate) mod listen_at;
pub(crate) mod open;
pub(crate) mod scoped;
pub(crate) mod socket_access;
pub(crate) mod tls;
