//! Why a run came to nothing, and which side is to blame.

use std::io;
use std::time::Duration;

use tidewire::StartError;

use super::fault::Fault;
use crate::procfs::ProcError;

/// Why a run came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The generator could not be started.
    #[error("cannot start the load generator: {0}")]
    Start(#[from] StartError),
    /// A connection could not be established.
    #[error("cannot connect: {error}")]
    Connect {
        /// The error of the operating system.
        error: String,
    },
    /// Not all connections were established in time.
    #[error("only {opened} of {wanted} connections were established within {within:?}")]
    ConnectSlow {
        /// Connections that were opened.
        opened: usize,
        /// Connections that were to be opened.
        wanted: usize,
        /// The time that the processes had.
        within: Duration,
    },
    /// A reply differs from the expected one.
    #[error("wrong reply on connection {connection}: {fault}: {what}")]
    WrongReply {
        /// The connection, from 0.
        connection: u64,
        /// The kind of fault.
        fault: Fault,
        /// The fault, in words.
        what: String,
    },
    /// The server closed a connection to which it owed replies.
    #[error("connection {connection} was lost: close in the middle ({why}): {owed}")]
    Lost {
        /// The connection, from 0.
        connection: u64,
        /// How the connection ended.
        why: String,
        /// The missing reply.
        owed: String,
    },
    /// Nothing came on a connection that waits for replies.
    #[error("nothing moved on connection {connection} for {after:?}: {fault}: {owed}")]
    Stalled {
        /// The connection, from 0.
        connection: u64,
        /// How the fault looks: a short reply, or none.
        fault: Fault,
        /// How long was waited.
        after: Duration,
        /// The missing reply.
        owed: String,
    },
    /// The end did not come.
    #[error(
        "{done} of {wanted} connections were done {after:?} after the end of the load: no reply"
    )]
    Unfinished {
        /// How long was waited.
        after: Duration,
        /// Rounds that were done.
        done: usize,
        /// Rounds that were to be done.
        wanted: usize,
    },
    /// The processes that make the load together could not be started.
    #[error("cannot start a process of the load generator: {0}")]
    Processes(#[from] io::Error),
    /// The run went wrong in one of the processes that make the load together.
    #[error("process {process} of the generator: {what}")]
    InProcess {
        /// The number of the process, from 1.
        process: usize,
        /// The server is to blame.
        wrong: bool,
        /// The message of the other process.
        what: String,
    },
    /// The run was interrupted before there was anything to show.
    #[error("interrupted before all connections were there")]
    Interrupted,
    /// A script of rounds could not go on.
    #[error("{0}")]
    Script(String),
    /// The server's figures could not be read.
    #[error("cannot measure the server: {0}")]
    Proc(#[from] ProcError),
}

impl Failure {
    /// Whether the server is to blame for what it answered, or for not answering, rather than the
    /// way the run was set up.
    pub fn is_wrong_answer(&self) -> bool {
        matches!(
            self,
            Failure::WrongReply { .. }
                | Failure::Lost { .. }
                | Failure::Stalled { .. }
                | Failure::Unfinished { .. }
                | Failure::InProcess { wrong: true, .. }
        )
    }
}
