//! The events of a simulation, in order: a hash of all of them, and the events themselves if
//! wanted. Two runs with the same hash were the same run.

pub(in crate::sim) mod files;
mod story;

use std::collections::VecDeque;
use std::fmt;

use crate::trace::words::Ms;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::time::Instant;

/// Something that happened.
///
/// ```
/// use std::time::Duration;
/// use tidewire::sim::{Event, Sim, What};
///
/// let mut sim = Sim::new(1);
/// sim.record();
/// let addr = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
/// let peer = sim.plain(addr);
/// sim.send(peer, b"hello");
/// sim.run_for(Duration::from_secs(1));
/// let sent = |event: &Event| event.what == What::Sent && event.side == 0;
/// assert_eq!(sim.trace().filter(sent).map(|event| event.len).sum::<u64>(), 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The time of the event.
    pub at: Instant,
    /// What.
    pub what: What,
    /// Which stream, counted from 0 in the order of the attempts to connect.
    pub stream: u32,
    /// The end of the stream: 0 is the end that connected.
    pub side: u8,
    /// Bytes concerned, if any.
    pub len: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { stream, side, .. } = self;
        write!(f, "{}  {stream}.{side}  {:?}", Ms(self.at), self.what)?;
        if self.len > 0 {
            write!(f, " {}", self.len)?;
        }
        Ok(())
    }
}

/// Kinds of events.
///
/// ```
/// use std::time::Duration;
/// use tidewire::sim::{Sim, What};
///
/// let mut sim = Sim::new(1);
/// sim.record();
/// sim.plain("127.0.0.1:1"); // no service listens there
/// sim.run_for(Duration::from_secs(1));
/// assert!(sim.trace().any(|event| event.what == What::Refused));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
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
    /// The end of the stream finished sending.
    Finished,
    /// The end of the other side's output has arrived here.
    EndArrived,
    /// The end of the stream reset it.
    Reset,
    /// A reset has arrived here.
    ResetArrived,
    /// The network lost the stream.
    Lost,
    /// The end of the stream is gone.
    Closed,
}

/// Events kept when recording; the oldest go first.
const KEEP: usize = 1 << 16;
/// Bytes of contents kept when recording; then none any more.
const KEEP_BYTES: usize = 16 << 20;

#[derive(Default)]
pub(in crate::sim) struct Trace {
    hash: u64,
    /// Without the contents, which keys of TLS make another run's.
    sizes: u64,
    recording: bool,
    events: VecDeque<Kept>,
    streams: Vec<Stream>,
    kept: usize,
}

/// An event, and which bytes of its direction it is about: from here on.
struct Kept {
    event: Event,
    offset: u64,
}

struct Stream {
    ends: [Endpoint; 2],
    /// The bytes of side 0, and of side 1.
    said: [Said; 2],
}

/// One direction of a stream.
#[derive(Default)]
struct Said {
    sent: u64,
    arrived: u64,
    received: u64,
    /// The number of the first kept event.
    first: u64,
    bytes: Vec<u8>,
}

impl Said {
    fn at(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.first)?).ok()?;
        self.bytes.get(from..from + usize::try_from(len).ok()?)
    }
}

impl Trace {
    /// Keeps what happens from here on.
    pub(in crate::sim) fn record(&mut self) {
        self.recording = true;
    }

    /// Notes one more stream.
    pub(in crate::sim) fn stream(&mut self, from: &Endpoint, to: &Endpoint) {
        self.streams.push(Stream {
            ends: [from.clone(), to.clone()],
            said: Default::default(),
        });
    }

    pub(in crate::sim) fn note(&mut self, event: Event) {
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
            self.hash = mixed(self.hash, part);
            self.sizes = mixed(self.sizes, part);
        }
        let said = &mut self.streams[stream as usize].said;
        let (by, to) = (usize::from(side), usize::from(1 - side));
        let count = match what {
            What::Sent => &mut said[by].sent,
            What::Arrived => &mut said[to].arrived,
            What::Received => &mut said[to].received,
            _ => &mut 0,
        };
        let offset = *count;
        *count += len;
        if self.recording {
            if self.events.len() == KEEP {
                self.events.pop_front();
            }
            self.events.push_back(Kept { event, offset });
        }
    }

    /// Adds the contents of sent bytes to the trace. The bytes are noted as sent afterwards.
    pub(in crate::sim) fn contents(&mut self, stream: u32, side: u8, bytes: &[u8]) {
        for eight in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            self.hash = mixed(self.hash, u64::from_le_bytes(word));
        }
        if self.recording && self.kept + bytes.len() <= KEEP_BYTES {
            self.kept += bytes.len();
            let said = &mut self.streams[stream as usize].said[usize::from(side)];
            if said.bytes.is_empty() {
                said.first = said.sent;
            }
            said.bytes.extend_from_slice(bytes);
        } else {
            // Later events would not follow directly on the kept ones.
            self.kept = KEEP_BYTES;
        }
    }

    pub(in crate::sim) fn hash(&self) -> u64 {
        self.hash
    }

    /// A hash of all that happened but for the contents.
    pub(in crate::sim) fn sizes(&self) -> u64 {
        self.sizes
    }

    pub(in crate::sim) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|kept| &kept.event)
    }
}

/// One step of the finaliser of MurmurHash3 (Appleby): every bit of the past matters.
fn mixed(hash: u64, word: u64) -> u64 {
    let mut h = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^ (h >> 33)
}
