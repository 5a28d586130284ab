//! Messages to a connection from other threads.

use std::sync::Arc;

use super::log_keys::WasRead;
use crate::store::Tracker;

/// A message to one connection.
#[derive(Debug)]
pub enum Message {
    /// The command in which the connection waited has run; with its reply.
    Served(Vec<u8>, u64),
    /// The key is ready, and the log too busy: the connection is to run the command itself a little
    /// later.
    TryAgain,
    /// CLIENT UNBLOCK: the wait is over, as if its time were, or with an error.
    Unblock {
        /// Which wait of the connection is meant.
        wait: u64,
        /// Answer with an error instead of the reply of a timeout.
        error: bool,
    },
    /// The client may no longer run the command that it waits in.
    Refused,
    /// A key has changed that this client tracks, or a client that redirects its notes here.
    Changed(Arc<Tracker>),
    /// The connection that was told in its place has gone.
    RedirectGone,
    /// A thread has read the log for the connection.
    FromLog(Box<WasRead>),
    /// Commands have been run that it is to be shown.
    Monitored,
    /// CLIENT KILL: the connection is to end.
    Kill,
}
