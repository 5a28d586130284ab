//! The types that all other modules use: names, ends, addresses, times. The module `vocabulary`
//! depends on no other module.

pub(crate) mod answer;
pub(crate) mod closed;
pub(crate) mod conn_id;
pub(crate) mod conn_name;
pub(crate) mod dial;
pub(crate) mod endpoint;
pub(crate) mod network;
pub(crate) mod next;
pub(crate) mod peer;
pub(crate) mod target;
pub(crate) mod time;
