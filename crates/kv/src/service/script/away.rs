//! A connection's command that runs on the thread for scripts.

use std::sync::Arc;

use tidewire::Instant;

use crate::service::table::Entry;

/// A connection's script that runs on the thread.
pub(crate) struct Away {
    pub(crate) entry: &'static Entry,
    pub(crate) args: Arc<Vec<Vec<u8>>>,
    /// When the script was given to the thread.
    pub(crate) begun: Instant,
}
