//! The interface of every kind of load. Each kind is one file, which ends with its options on the command line, and one line in
//! the list of [kinds](super::KINDS).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use tidewire_ingest::classic::Mode;

use super::execution::{Execution, Made};
use super::failure::Failure;
use super::generator::Watch;
use super::null::Replies;

/// A load: what is sent on each connection, and how replies are checked.
pub trait Load: fmt::Debug + Send + Sync {
    /// The name of the load: the name of the service, unless several loads go to one service.
    fn name(&self) -> &'static str;

    /// The service that the load uses, by its name in the line with which a server announces its
    /// address.
    fn service(&self) -> &'static str {
        self.name()
    }

    /// The service's mode, if it has several.
    fn mode(&self) -> Option<&'static str> {
        None
    }

    /// Name of the load in results for machines.
    fn tag(&self) -> &'static str {
        self.name()
    }

    /// Settings of the load, for results for machines.
    fn spec(&self) -> Value;

    /// The counted unit, such as "requests".
    fn unit(&self) -> &'static str;

    /// A short description of the messages.
    fn described(&self) -> String;

    /// Whether there is one message in flight on each connection.
    fn is_lock_step(&self) -> bool {
        false
    }

    /// Whether the server answers.
    fn is_answered(&self) -> bool {
        true
    }

    /// How many of so many connections send anything.
    fn active_of(&self, connections: usize) -> usize {
        connections
    }

    /// Whether what is measured are connections that are held: the rate is given by how many are active.
    fn is_held(&self) -> bool {
        false
    }

    /// Whether connections may come and go while it is measured.
    fn renews(&self) -> bool {
        false
    }

    /// Whether every key that is read was set before.
    fn is_filled(&self) -> bool {
        false
    }

    /// How many rounds of its own the load has on each connection.
    fn rounds(&self) -> Option<u64> {
        None
    }

    /// The load without rounds of its own, if it has some.
    fn endless(&self) -> Option<Workload> {
        None
    }

    /// How the load can be counted: in rounds, or one connection after the other. `None` if no reply ends a round.
    /// `None` if it has no replies that end a round.
    fn counted(&self) -> Option<Scripted>;

    /// The load of the same writes for another service, if there is one.
    fn instead(&self, service: Instead) -> Option<Workload> {
        let _ = service;
        None
    }

    /// Whether `tidewire serve` needs a log for the load.
    fn needs_log(&self) -> bool {
        false
    }

    /// Whether its replies promise that a disk has what was sent.
    fn is_durable(&self) -> bool {
        false
    }

    /// More arguments of `tidewire serve`, when that is started for it.
    fn server_args(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// What the generator can be measured against.
    fn baseline(&self) -> Baseline;

    /// Makes the run.
    ///
    /// # Errors
    /// [`Failure`]: the first fault ends the run.
    fn go(&self, execution: &Execution<'_, '_>, watch: Watch<'_>) -> Result<Made, Failure>;
}

/// A load of any kind.
#[derive(Clone, Debug)]
pub struct Workload(Arc<dyn Load>);

impl Workload {
    /// A workload that consists of this load.
    pub fn of(load: impl Load + 'static) -> Workload {
        Workload(Arc::new(load))
    }
}

impl Deref for Workload {
    type Target = dyn Load;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// A map of its settings under its tag.
impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.tag(), &self.spec())?;
        map.end()
    }
}

/// A load in the form in which costs are counted.
#[derive(Debug)]
pub struct Scripted {
    /// The messages to send.
    pub workload: Workload,
    /// Messages of a connection's part of a round.
    pub messages: u64,
    /// Bytes of that; 0 where it does not go in rounds.
    pub bytes: usize,
    /// The load goes in rounds; otherwise in runs of connections.
    pub rounds: bool,
}

impl Scripted {
    /// In rounds of so many messages of so many bytes on each connection.
    pub fn rounds(workload: Workload, messages: u32, each: usize) -> Scripted {
        Scripted {
            workload,
            messages: messages.into(),
            bytes: each.saturating_mul(messages as usize),
            rounds: true,
        }
    }

    /// A load of one connection after another, each with one message.
    pub fn connections(workload: Workload) -> Scripted {
        Scripted {
            workload,
            messages: 1,
            bytes: 0,
            rounds: false,
        }
    }
}

/// A service that takes messages, and may take the place of the one that a load is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// The server acknowledges the messages.
    Ack(Mode),
    /// The server stores the messages.
    Ingest,
    /// The server drops the messages.
    Discard,
}

/// What the generator can be measured against.
pub enum Baseline {
    /// A server that knows the replies beforehand.
    Null(Replies),
    /// A server of ours that keeps nothing, loaded with this.
    Own(Workload),
    /// No such program, and why.
    Unknown(&'static str),
}
