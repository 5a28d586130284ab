//! What happened in a simulation, in order: a hash of all of it, and the events themselves if
//! wanted. Two runs with the same hash were the same run.

use std::collections::VecDeque;
use std::fmt;

use crate::vocabulary::time::Instant;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// What.
    pub what: What,
    /// Which stream, counted from 0 in the order of the attempts to connect.
    pub stream: u32,
    /// Which end of the stream: 0 is the one that connected.
    pub side: u8,
    /// Bytes concerned, if any.
    pub len: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.at.as_nanos();
        let (ms, ns) = (ns / 1_000_000, ns % 1_000_000);
        let Event { stream, side, .. } = self;
        write!(f, "{ms:6}.{ns:06} ms  {stream}.{side}  {:?}", self.what)?;
        if self.len > 0 {
            write!(f, " {}", self.len)?;
        }
        Ok(())
    }
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// An attempt to connect began.
    Dialled,
    /// An attempt was refused.
    Refused,
    /// The listening end took the connection in.
    Accepted,
    /// The connecting end is connected.
    Connected,
    /// Bytes were accepted from the writer.
    Sent,
    /// Bytes have arrived at this end.
    Arrived,
    /// Bytes were handed to the reader.
    Received,
    /// This end finished sending.
    Finished,
    /// The end of the other side's output has arrived here.
    EndArrived,
    /// This end reset the stream.
    Reset,
    /// A reset has arrived here.
    ResetArrived,
    /// The network lost the stream.
    Lost,
    /// This end is gone.
    Closed,
}

/// Events kept when recording; the oldest go first.
const KEEP: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Trace {
    hash: u64,
    pub(super) recording: bool,
    events: VecDeque<Event>,
}

impl Trace {
    pub(super) fn note(&mut self, event: Event) {
        let Event {
            at,
            what,
            stream,
            side,
            len,
        } = event;
        for part in [
            at.as_nanos(),
            u64::from(what as u8) << 40 | u64::from(side) << 32 | u64::from(stream),
            len,
        ] {
            self.mix(part);
        }
        if self.recording {
            if self.events.len() == KEEP {
                self.events.pop_front();
            }
            self.events.push_back(event);
        }
    }

    /// What the bytes of a stream were is part of what happened.
    pub(super) fn contents(&mut self, bytes: &[u8]) {
        for eight in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            self.mix(u64::from_le_bytes(word));
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// One step of the finaliser of MurmurHash3 (Appleby): every bit of the past matters.
    fn mix(&mut self, word: u64) {
        let mut h = (self.hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.hash = h ^ (h >> 33);
    }
}
