//! What the log was given and what it has committed: the truth that it is held to.

use std::collections::VecDeque;

use tidewire_log::Progress;

use crate::lives::Life;
use crate::seeds::{Verdict, ensure};

/// A message as it was appended. Its position is its index in [`Stream::records`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) producer: String,
    pub(crate) timestamp_us: u64,
    pub(crate) payload: Vec<u8>,
}

/// A stream: everything appended to it since the log was last opened, and what was there then.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) name: String,
    pub(crate) records: Vec<Record>,
    /// How many are written, committed, and committed with a later batch on the disk that was
    /// written in the knowledge of it.
    pub(crate) written: usize,
    pub(crate) committed: usize,
    pub(crate) claimed: usize,
    /// How many are claimed in the file of claims: all that was committed when the log had been
    /// silent for a second, was opened or was closed.
    pub(crate) silent: usize,
    /// How many must survive a power loss; set when the log is closed.
    pub(crate) proven: usize,
    /// The oldest position seen since the log was last opened.
    pub(crate) first: u64,
    pub(crate) life: Life,
}

impl Stream {
    pub(crate) fn new(name: String) -> Stream {
        Stream {
            name,
            records: Vec::new(),
            written: 0,
            committed: 0,
            claimed: 0,
            silent: 0,
            proven: 0,
            first: 0,
            life: Life::default(),
        }
    }

    /// The log was opened with `kept` records: they are what there is.
    pub(crate) fn reopened(&mut self, kept: usize) {
        self.records.truncate(kept);
        self.written = kept;
        self.committed = kept;
        self.claimed = self.claimed.min(kept);
        self.silent = self.silent.min(kept);
    }

    /// The last id of a producer in the records from one on.
    pub(crate) fn mark(&self, producer: &str, from: usize) -> Option<u64> {
        self.records[from..]
            .iter()
            .rev()
            .find(|record| record.producer == producer)
            .map(|last| last.id)
    }
}

/// A run that was accepted: `end` is how many records its stream has with it.
#[derive(Debug)]
struct Accepted {
    ticket: u64,
    stream: usize,
    end: usize,
}

/// The streams, and the runs on their way to being committed.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) streams: Vec<Stream>,
    unwritten: VecDeque<Accepted>,
    uncommitted: VecDeque<Accepted>,
    last_ticket: u64,
    written: u64,
    pub(crate) committed: u64,
    failed: bool,
}

impl Model {
    pub(crate) fn accepted(&mut self, ticket: u64, stream: usize) -> Verdict {
        // Not the next one: definitions of streams and producers take tickets too.
        ensure(ticket > self.last_ticket, || {
            format!("ticket {ticket} after {}", self.last_ticket)
        })?;
        self.last_ticket = ticket;
        let end = self.streams[stream].records.len();
        self.unwritten.push_back(Accepted {
            ticket,
            stream,
            end,
        });
        Ok(())
    }

    /// A change of a stream was accepted.
    pub(crate) fn changed(&mut self, ticket: u64) -> Verdict {
        ensure(ticket > self.last_ticket, || {
            format!("ticket {ticket} after {}", self.last_ticket)
        })?;
        self.last_ticket = ticket;
        Ok(())
    }

    /// Whether everything accepted is committed.
    pub(crate) fn settled(&self) -> bool {
        self.committed >= self.last_ticket
    }

    /// Whether the log has said that it failed.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    /// The writer has moved: takes over what it says.
    pub(crate) fn progressed(&mut self, now: &Progress) -> Verdict {
        let (written, committed) = (now.written.0, now.committed.0);
        ensure(committed <= written, || {
            format!("committed before written: {now:?}")
        })?;
        ensure(
            written >= self.written && committed >= self.committed,
            || {
                format!(
                    "progress went back to {now:?} from {} and {}",
                    self.written, self.committed
                )
            },
        )?;
        ensure(
            !self.failed || (committed == self.committed && now.failure.is_some()),
            || {
                format!(
                    "progress {now:?} after the failure, {} were committed",
                    self.committed
                )
            },
        )?;
        if written > self.written {
            // What was written just now says what was committed before.
            for stream in &mut self.streams {
                stream.claimed = stream.committed;
            }
        }
        self.failed = now.failure.is_some();
        (self.written, self.committed) = (written, committed);
        for run in upto(&mut self.unwritten, written) {
            self.streams[run.stream].written = run.end;
            self.uncommitted.push_back(run);
        }
        for run in upto(&mut self.uncommitted, committed) {
            self.streams[run.stream].committed = run.end;
        }
        for stream in &mut self.streams {
            stream.life.committed(committed);
        }
        Ok(())
    }

    /// A second has passed without a group.
    pub(crate) fn silent(&mut self) {
        for stream in &mut self.streams {
            stream.silent = stream.committed;
        }
    }

    /// The log is being opened again: tickets start over.
    pub(crate) fn closed(&mut self) {
        self.unwritten.clear();
        self.uncommitted.clear();
        (self.last_ticket, self.written, self.committed) = (0, 0, 0);
        self.failed = false;
    }
}

fn upto(
    runs: &mut VecDeque<Accepted>,
    ticket: u64,
) -> std::collections::vec_deque::IntoIter<Accepted> {
    let count = runs.partition_point(|run| run.ticket <= ticket);
    let rest = runs.split_off(count);
    std::mem::replace(runs, rest).into_iter()
}
