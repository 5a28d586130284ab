//! Writes the kept events in words, and as a capture.

use std::fmt::Write;
use std::time::Duration;

use super::{Event, Kept, Trace, What};
use crate::trace::pcap::{self, ACK, FIN, Flow, RST, SYN};
use crate::trace::words::{Ms, Said};

impl Trace {
    /// A line for each event that was kept.
    pub(in crate::sim) fn words(&self) -> String {
        let mut words = String::new();
        for kept in &self.events {
            let _ = writeln!(words, "{}  {}", Ms(kept.event.at), self.line(kept));
        }
        words
    }

    fn line(&self, kept: &Kept) -> String {
        let Event {
            what, stream, side, ..
        } = kept.event;
        let ends = &self.streams[stream as usize].ends;
        let name = |side: u8| match side {
            0 => format!("client {stream}"),
            _ => ends[1].to_string(),
        };
        let (here, there) = (name(side), name(1 - side));
        let said = |by: u8| self.said(kept, by);
        match what {
            What::Dialled => format!("{here} connects to {there}, from {}", ends[0]),
            What::Refused => format!("{here} is refused by {there}"),
            What::Accepted => format!("{here} accepts {there}"),
            What::Connected => format!("{here} is connected to {there}"),
            What::Sent => format!("{here} -> {there}: {}", said(side)),
            What::Arrived => format!("{here} <- {there}: {} arrive", Said(kept.len(), None)),
            What::Received => format!("{here} reads of {there}: {}", said(1 - side)),
            What::Finished => format!("{here} -> {there}: ends its output"),
            What::EndArrived => format!("{here} <- {there}: the end arrives"),
            What::Reset => format!("{here} -> {there}: resets"),
            What::ResetArrived => format!("{here} <- {there}: a reset arrives"),
            What::Lost => format!("{here}, {there}: the network loses the connection"),
            What::Closed => format!("{here} lets go of {there}"),
        }
    }

    /// The packets of the events that were kept: of each when it arrives, of a handshake's first two when they are
    /// sent.
    pub(in crate::sim) fn pcap(&self) -> Vec<u8> {
        let streams = self.streams.iter().zip(0..);
        let mut flows: Vec<Flow> = streams
            .map(|(s, number)| Flow::new(&s.ends[0], &s.ends[1], number))
            .collect();
        let mut out = pcap::HEADER.to_vec();
        for kept in &self.events {
            let Event {
                at,
                what,
                stream,
                side,
                ..
            } = kept.event;
            let (from, flags) = match what {
                What::Dialled => (0, SYN),
                What::Accepted => (1, SYN | ACK),
                What::Connected => (0, ACK),
                What::Refused => (1, RST | ACK),
                What::Arrived => (1 - side, ACK),
                What::EndArrived => (1 - side, FIN | ACK),
                What::ResetArrived => (1 - side, RST | ACK),
                _ => continue,
            };
            let zeros;
            let payload = match self.bytes(kept, from) {
                Some(bytes) => bytes,
                None => {
                    zeros = vec![0; kept.len()];
                    &zeros
                }
            };
            let at = Duration::from_nanos(at.as_nanos());
            flows[stream as usize].send(&mut out, at, from, flags, payload);
        }
        out
    }

    fn said<'a>(&'a self, kept: &Kept, by: u8) -> Said<'a> {
        Said(kept.len(), self.bytes(kept, by))
    }

    fn bytes(&self, kept: &Kept, by: u8) -> Option<&[u8]> {
        let said = &self.streams[kept.event.stream as usize].said[usize::from(by)];
        said.at(kept.offset, kept.event.len)
    }
}

impl Kept {
    fn len(&self) -> usize {
        self.event.len as usize
    }
}
