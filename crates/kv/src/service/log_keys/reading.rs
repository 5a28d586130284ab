//! The state of a connection that reads the log, and of a loop with connections that wait for the
//! log.

use std::time::Duration;

use tidewire::{Bell, Instant};
use tidewire_log::Ticket;

use super::question::Ask;
use super::waiting::Waiting;
use crate::service::message::Message;
use crate::service::table::Entry;

/// The connections of a loop that wait for the log.
#[derive(Default)]
pub(crate) struct Followers {
    pub(super) bell: Option<Bell<Message>>,
    pub(super) waiting: Waiting,
    /// The log's ticket when the waiting connections last looked.
    pub(super) seen: Ticket,
}

/// A connection's read from the log, or its wait for the log.
pub(crate) struct Reading {
    pub(super) entry: &'static Entry,
    pub(super) args: Vec<Vec<u8>>,
    pub(super) ask: Ask,
    pub(super) waits: bool,
    /// The time at which the wait ends.
    pub(super) until: Option<Instant>,
    pub(super) state: State,
    /// The stream may not be read any more: rights have changed.
    pub(super) refused: bool,
    /// When the read began, for the duration in the slow log.
    pub(super) begun: Instant,
    pub(super) took: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A thread reads.
    Read,
    /// No data has arrived yet.
    Follows,
}
