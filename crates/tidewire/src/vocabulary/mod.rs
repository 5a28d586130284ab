//! The words that all other rooms use: names, ends, addresses, times. Nothing here depends on them.

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
