//! A blocking stream to a server on the simulated network. As on the loopback interface, what was
//! sent has arrived when a call returns, if there is room for it.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tidewire::Endpoint;
use tidewire::sim::{PlainId, PlainState, Sim};

use crate::client::PATIENCE;
use crate::world;

/// Bytes that may wait on this side for the network to take them.
const PIECE: usize = 16 << 10;

/// Both halves of a client share it.
struct Ends {
    peer: PlainId,
    /// Bytes that were read.
    read: AtomicUsize,
    finished: AtomicBool,
}

#[derive(Clone)]
pub(crate) struct Stream {
    ends: Arc<Ends>,
    /// Longest wait of a read or a write.
    pub(crate) patience: Duration,
}

impl Drop for Ends {
    fn drop(&mut self) {
        let peer = self.peer;
        world::at_the_end(move |sim| sim.close(peer, false));
    }
}

/// Why nothing more gets through, if so.
fn broken(sim: &Sim, peer: PlainId) -> Option<io::Error> {
    match sim.state(peer) {
        PlainState::Failed(kind) => Some(kind.into()),
        PlainState::Closed => Some(ErrorKind::BrokenPipe.into()),
        PlainState::Connecting | PlainState::Open | PlainState::Ended => None,
    }
}

impl Stream {
    pub(crate) fn connect(
        from: Option<Endpoint>,
        to: &Endpoint,
        most: Duration,
    ) -> io::Result<Stream> {
        let to = to.clone();
        let peer = world::with(move |sim| match from {
            Some(from) => sim.plain_from(from, to),
            None => sim.plain(to),
        });
        let stream = Stream::of(peer);
        let established = world::wait(most, move |sim| match sim.state(peer) {
            PlainState::Connecting => None,
            _ => Some(broken(sim, peer).map_or(Ok(()), Err)),
        });
        established.unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))?;
        Ok(stream)
    }

    /// The stream of a present peer.
    pub(crate) fn of(peer: PlainId) -> Stream {
        world::with(move |sim| sim.reading(peer, false));
        let ends = Ends {
            peer,
            read: AtomicUsize::new(0),
            finished: AtomicBool::new(false),
        };
        Stream {
            ends: Arc::new(ends),
            patience: PATIENCE,
        }
    }

    /// Lets what was sent arrive, unless this must not take any time.
    fn arrive(&self) {
        if !self.patience.is_zero() {
            let latency = world::with(|sim| *sim.conditions().latency.end());
            world::sleep(latency);
        }
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (peer, at, most) = (self.ends.peer, self.ends.read.load(SeqCst), into.len());
        // Nothing is taken from the network but by a read.
        let got = world::wait(self.patience, move |sim| {
            sim.reading(peer, true);
            let there = &sim.received(peer)[at..];
            let bytes = there[..there.len().min(most)].to_vec();
            if bytes.is_empty() && sim.state(peer) == PlainState::Open {
                return None;
            }
            let got = match broken(sim, peer) {
                Some(e) if bytes.is_empty() => Err(e),
                _ => Ok(bytes),
            };
            sim.reading(peer, false);
            Some(got)
        });
        if got.is_none() {
            world::with(move |sim| sim.reading(peer, false));
        }
        let bytes = got.unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))?;
        into[..bytes.len()].copy_from_slice(&bytes);
        self.ends.read.store(at + bytes.len(), SeqCst);
        Ok(bytes.len())
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let peer = self.ends.peer;
        if self.ends.finished.load(SeqCst) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let piece = bytes[..bytes.len().min(PIECE)].to_vec();
        // Asked once: each question is a change of threads there and back.
        let taken = world::wait(self.patience, move |sim| {
            if let Some(e) = broken(sim, peer) {
                return Some(Err(e));
            }
            if sim.unsent(peer) > 0 {
                return None;
            }
            sim.send(peer, &piece);
            Some(broken(sim, peer).map_or(Ok(piece.len()), Err))
        });
        let sent = taken.unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))?;
        self.arrive();
        Ok(sent)
    }

    pub(crate) fn finish(&self) {
        let peer = self.ends.peer;
        self.ends.finished.store(true, SeqCst);
        world::with(move |sim| sim.finish(peer));
        self.arrive();
    }

    pub(crate) fn reset(&self) {
        let peer = self.ends.peer;
        world::with(move |sim| sim.close(peer, true));
        self.arrive();
    }
}
