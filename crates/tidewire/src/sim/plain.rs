//! A peer without a protocol, driven by the test: it sends, half-closes, resets and stops reading
//! when it is told to.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use crate::sim::net::{End, Net, News, Notice, Read, Written};

/// The state of a plain peer's connection.
///
/// ```
/// use std::time::Duration;
/// use tidewire::sim::{Conditions, PlainState, Sim};
///
/// let mut sim = Sim::under(1, Conditions::calm());
/// let echo = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
/// let peer = sim.plain(echo);
/// sim.send(peer, b"hello");
/// sim.run_for(Duration::from_secs(1));
/// assert_eq!(sim.received(peer), b"hello");
/// assert_eq!(sim.state(peer), PlainState::Open);
/// sim.finish(peer);
/// sim.run_for(Duration::from_secs(1));
/// assert_eq!(sim.state(peer), PlainState::Ended);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainState {
    /// The handshake is under way.
    Connecting,
    /// Established, and the other end may still send.
    Open,
    /// The other end has finished sending.
    Ended,
    /// No listener accepts there, or the connection was reset.
    Failed(io::ErrorKind),
    /// Closed by this side.
    Closed,
}

pub(super) struct Plain {
    pub(super) end: End,
    pub(super) state: PlainState,
    pub(super) received: Vec<u8>,
    pub(super) reading: bool,
    /// Whether the peer knows that it is connected.
    #[cfg(test)]
    pub(super) was_connected: bool,
    to_send: VecDeque<u8>,
    finishing: bool,
}

impl Plain {
    pub(super) fn new(end: End) -> Plain {
        Plain {
            end,
            state: PlainState::Connecting,
            received: Vec::new(),
            reading: true,
            #[cfg(test)]
            was_connected: false,
            to_send: VecDeque::new(),
            finishing: false,
        }
    }

    /// A plain end that was accepted.
    pub(super) fn accepted(end: End) -> Plain {
        Plain {
            state: PlainState::Open,
            ..Plain::new(end)
        }
    }

    pub(super) fn send(&mut self, net: &mut Net, bytes: &[u8]) {
        self.to_send.extend(bytes);
        self.go_on(net);
    }

    pub(super) fn finish(&mut self, net: &mut Net) {
        self.finishing = true;
        self.go_on(net);
    }

    pub(super) fn close(&mut self, net: &mut Net, reset: bool) {
        if self.state != PlainState::Closed {
            self.state = PlainState::Closed;
            net.close(self.end, reset);
        }
    }

    pub(super) fn unsent(&self) -> usize {
        self.to_send.len()
    }

    pub(super) fn turn(&mut self, net: &mut Net, notices: VecDeque<Notice>) {
        if self.state == PlainState::Closed {
            // The notice was on its way when the peer closed.
            return;
        }
        for notice in notices {
            let Notice::End { news, .. } = notice else {
                unreachable!("plain peers do not listen");
            };
            #[cfg(test)]
            {
                self.was_connected |= news == News::Connected;
            }
            match news {
                News::Connected => self.state = PlainState::Open,
                News::Refused => self.state = PlainState::Failed(io::ErrorKind::ConnectionRefused),
                News::Readable | News::Writable => {}
            }
        }
        self.go_on(net);
    }

    /// Sends and reads as far as the network lets it.
    pub(super) fn go_on(&mut self, net: &mut Net) {
        while self.is_there() && !self.to_send.is_empty() {
            let (front, back) = self.to_send.as_slices();
            match net.write(self.end, &[IoSlice::new(front), IoSlice::new(back)]) {
                Written::Took(n) => drop(self.to_send.drain(..n)),
                Written::Blocked => break,
                Written::Broken(kind) => self.state = PlainState::Failed(kind),
            }
        }
        if self.is_there() && self.finishing && self.to_send.is_empty() {
            net.finish(self.end);
        }
        let mut piece = [0; 4096];
        while self.reading && self.state == PlainState::Open {
            match net.read(self.end, &mut piece) {
                Read::Got(n) => self.received.extend_from_slice(&piece[..n]),
                Read::End => self.state = PlainState::Ended,
                Read::Nothing => break,
                Read::Broken(kind) => self.state = PlainState::Failed(kind),
            }
        }
    }

    fn is_there(&self) -> bool {
        matches!(self.state, PlainState::Open | PlainState::Ended)
    }
}
