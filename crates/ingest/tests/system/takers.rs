//! Clients that all speak for one producer: they say hello while the connection before is still
//! there and has messages on their way, leave before they are welcomed, and go on where their
//! predecessor stopped.

use fastrand::Rng;
use tidewire::sim::{PlainId, PlainState, Sim};
use tidewire_ingest::native::codec::{
    Hello, Level, Produce, Read, Reason, ServerFrame, message_header,
};

use crate::producers::payload;
use crate::server::NATIVE;

/// The producer that they speak for.
pub(crate) const NAME: &str = "taken";
/// Frames of the server have bodies of at most so many bytes.
const BODY_MAX: usize = 1024;
/// Connections in a run while there are accidents; a quiet one has as many as it takes.
const LINES: usize = 20;

/// One connection.
struct Line {
    peer: PlainId,
    heard: usize,
    /// What had been acknowledged when it said hello.
    known: u64,
    /// The next id, once it is welcomed.
    next: Option<u64>,
    /// The highest id acknowledged on it.
    acked: u64,
    /// The client was refused, or has said that it sends no more.
    over: bool,
}

/// All of them.
pub(crate) struct Takers {
    lines: Vec<Line>,
    /// The highest id acknowledged to all of them together.
    pub(crate) acked: u64,
    sent: u64,
    pub(crate) welcomes: u64,
    each: u64,
}

impl Line {
    fn is_up(&self, sim: &Sim) -> bool {
        let state = sim.state(self.peer);
        !self.over && matches!(state, PlainState::Open | PlainState::Connecting)
    }
}

impl Takers {
    pub(crate) fn new(each: u64) -> Takers {
        Takers {
            lines: Vec::new(),
            acked: 0,
            sent: 0,
            welcomes: 0,
            each,
        }
    }

    pub(crate) fn are_done(&self) -> bool {
        self.acked >= self.each
    }

    /// Goes on: with accidents as it comes, otherwise so that no client disturbs another.
    ///
    /// # Errors
    /// What a server may not say.
    pub(crate) fn go_on(
        &mut self,
        sim: &mut Sim,
        rng: &mut Rng,
        quiet: bool,
    ) -> Result<(), String> {
        self.hear(sim)?;
        if self.are_done() {
            return Ok(());
        }
        let newest = self.lines.last();
        let is_up = newest.is_some_and(|line| line.is_up(sim));
        let is_welcome = newest.is_some_and(|line| line.next.is_some());
        let is_owed = newest.is_some_and(|line| line.next > Some(line.acked + 1));
        let comes = if quiet {
            // A client that waits for a welcome is left waiting. The next client finds something
            // uncommitted.
            !is_up || is_welcome && is_owed && rng.u8(..4) == 0
        } else {
            self.lines.len() < LINES && rng.u8(..if is_up { 16 } else { 5 }) == 0
        };
        if comes {
            if !quiet && is_up {
                self.leave(sim, rng);
            }
            self.come(sim, rng);
        }
        // The client before may not know that another has come since.
        let from = if quiet {
            self.lines.len().saturating_sub(1)
        } else {
            0
        };
        for at in from..self.lines.len() {
            if self.lines[at].is_up(sim) && rng.bool() {
                self.send(at, sim, rng.u64(1..5));
            }
        }
        Ok(())
    }

    fn come(&mut self, sim: &mut Sim, rng: &mut Rng) {
        let peer = sim.plain(NATIVE[rng.usize(..NATIVE.len())]);
        let produce = Produce {
            level: Some(Level::Durable),
            sparse: false,
            adopt: false,
            window_messages: 0,
            window_bytes: 0,
            first_id: 1,
            stream: "",
            producer: NAME,
            token: "",
        };
        let mut hello = Vec::new();
        let encoded = Hello::Produce(produce).encode(&mut hello);
        encoded.expect("short names");
        sim.send(peer, &hello);
        self.lines.push(Line {
            peer,
            heard: 0,
            known: self.acked,
            next: None,
            acked: 0,
            over: false,
        });
    }

    /// The newest one goes, in one of the ways in which clients do; or it stays.
    fn leave(&mut self, sim: &mut Sim, rng: &mut Rng) {
        let Some(line) = self.lines.last_mut() else {
            return;
        };
        match rng.u8(..6) {
            0 => sim.close(line.peer, true),
            1 => sim.close(line.peer, false),
            2 => {
                sim.finish(line.peer);
                line.over = true;
            }
            _ => {}
        }
    }

    fn send(&mut self, at: usize, sim: &mut Sim, count: u64) {
        let line = &mut self.lines[at];
        let Some(first) = line.next else {
            return;
        };
        let end = (first + count).min(self.each + 1);
        let mut bytes = Vec::new();
        for id in first..end {
            let payload = payload(id);
            bytes.extend_from_slice(&message_header(id, payload.len() as u32));
            bytes.extend_from_slice(&payload);
        }
        line.next = Some(end.max(first));
        self.sent = self.sent.max(end - 1);
        sim.send(line.peer, &bytes);
    }

    fn hear(&mut self, sim: &Sim) -> Result<(), String> {
        for line in &mut self.lines {
            while let Ok(Read::Whole(frame, len)) =
                ServerFrame::decode(&sim.received(line.peer)[line.heard..], BODY_MAX)
            {
                line.heard += len;
                let said = match frame {
                    ServerFrame::Welcome(welcome) => {
                        let last = welcome.last_id.unwrap_or(0);
                        if last < line.known {
                            let known = line.known;
                            return Err(format!("{NAME}: welcomed at {last}, behind {known}"));
                        }
                        self.welcomes += 1;
                        line.next = Some(last + 1);
                        line.acked = last;
                        last
                    }
                    ServerFrame::Ack { id, .. } => {
                        line.acked = line.acked.max(id);
                        id
                    }
                    ServerFrame::Refusal(refusal) => {
                        line.over |= refusal.closes;
                        match refusal.reason {
                            Reason::Fenced | Reason::Stopping | Reason::LogFailed => continue,
                            other => return Err(format!("{NAME}: refused as {other}")),
                        }
                    }
                    other => return Err(format!("{NAME}: {other:?}")),
                };
                if said > self.sent {
                    return Err(format!("{NAME}: {said} is acknowledged of {}", self.sent));
                }
                self.acked = self.acked.max(said);
            }
        }
        Ok(())
    }

    /// Whether the ids that a log holds of them can be so.
    pub(crate) fn check(&self, ids: &[u64]) -> Result<(), String> {
        if !ids.iter().copied().eq(1..=ids.len() as u64) {
            return Err(format!("{NAME}: not each once and in order: {ids:?}"));
        }
        if (ids.len() as u64) < self.acked {
            let (acked, there) = (self.acked, ids.len());
            return Err(format!(
                "{NAME}: {acked} was acknowledged, {there} is there"
            ));
        }
        Ok(())
    }
}
