//! The thread of a blocking producer: carries bytes between the session and a socket, and connects
//! again.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidewire::Instant;

use super::backoff::{Backoff, Persistence};
use super::broken::{Broken, printable};
use super::clock::{Clock, until};
use super::connect;
use super::error::Error;
use super::route::Route;
use super::session::Event;
use super::shared::{Shared, State};

/// Pieces written in one call.
const PIECES: usize = 16;
/// Received at a time; frames to a producer are far smaller.
const RECEIVED: usize = 16 << 10;

pub(super) struct Courier {
    shared: Arc<Shared>,
    persistence: Persistence,
    route: Route,
    /// The server refuses for now, and has taken no message since.
    refusals: Option<Refusals>,
}

#[derive(Clone, Debug)]
struct Refusals {
    since: Instant,
    count: u32,
    last: Broken,
}

/// A connection, while there is one.
struct Line {
    socket: connect::Line,
    /// Handed out by the session and not yet written.
    pending: Vec<Bytes>,
    /// The socket takes no more for now.
    blocked: bool,
    received: Vec<u8>,
    /// Bytes of `received` that are filled.
    filled: usize,
}

impl Courier {
    pub(super) fn new(shared: Arc<Shared>, persistence: Persistence) -> Courier {
        Courier {
            route: Route::new(shared.server.clone(), persistence.moves),
            shared,
            persistence,
            refusals: None,
        }
    }

    /// Runs until the producer is dropped or an error is final.
    pub(super) fn run(mut self) {
        let mut backoff = Backoff::new(self.persistence, Clock::seed());
        // When the connection was lost, or first looked for.
        let mut since = self.shared.clock.now();
        let mut connections = 0;
        loop {
            let failure = match self.connection(&mut backoff, since) {
                Ok(()) => return,
                Err(failure) => failure,
            };
            let now = self.shared.clock.now();
            let mut state = self.shared.lock();
            if state.connections > connections {
                (since, connections) = (now, state.connections);
            }
            state.session.disconnected();
            state.asleep = false;
            let moved = failure.broken().and_then(Broken::moved);
            if !state.stop && moved.is_some_and(|place| self.route.moved(place)) {
                continue;
            }
            self.route.failed();
            let first = state.connections == 0 && !self.persistence.at_first;
            if state.stop || first || !failure.is_passing() {
                return self.shared.fail(&mut state, failure);
            }
            let elapsed = now.since(since);
            let asked = failure.broken().map_or(Duration::ZERO, Broken::retry_after);
            let Some(pause) = backoff.after_failure(elapsed, asked) else {
                let failure = match backoff.failed() {
                    1 => failure,
                    attempts => Error::GaveUp {
                        attempts,
                        elapsed,
                        last: Box::new(failure),
                    },
                };
                return self.shared.fail(&mut state, failure);
            };
            state.trouble = Some(failure.to_string());
            drop(state);
            if self.pause(now + pause) {
                return;
            }
        }
    }

    /// Waits; whether the producer was dropped meanwhile.
    fn pause(&self, until_then: Instant) -> bool {
        loop {
            let now = self.shared.clock.now();
            if self.shared.lock().stop {
                return true;
            }
            if now >= until_then {
                return false;
            }
            let mut fds = [PollFd::new(&self.shared.wake, PollFlags::IN)];
            wait(&mut fds, Some(until(until_then, now)));
            self.quiet();
        }
    }

    /// Takes note that the bell rang.
    fn quiet(&self) {
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
    }

    /// Runs one connection, from the attempt to its end; `Ok` if the producer was dropped. `since` is when the previous
    /// connection was lost.
    fn connection(&mut self, backoff: &mut Backoff, since: Instant) -> Result<(), Error> {
        let shared = self.shared.clone();
        let server = &self.route.server().clone();
        let began = shared.clock.now();
        let left = self.persistence.left(began.since(since));
        let timeout = self.persistence.timeout;
        let socket = server.connect(left.map_or(timeout, |left| left.min(timeout)))?;
        let setup = socket.socket().set_nonblocking(true);
        setup.map_err(|e| server.failed("set up the connection to", e))?;
        let mut line = Line {
            socket,
            pending: Vec::with_capacity(PIECES),
            blocked: false,
            received: vec![0; RECEIVED],
            filled: 0,
        };
        shared.lock().session.connected(shared.clock.now());
        loop {
            let wrote = line
                .write(&shared)
                .map_err(|e| server.failed("write to", e))?;
            let read = line.read().map_err(|e| server.failed("read from", e))?;
            let mut state = shared.lock();
            if state.stop {
                return Ok(());
            }
            let now = shared.clock.now();
            match read {
                Incoming::Nothing => {}
                Incoming::Bytes => {
                    let done =
                        self.received(&line.received[..line.filled], now, &mut state, backoff);
                    let done = done?;
                    line.received.copy_within(done..line.filled, 0);
                    line.filled -= done;
                    continue;
                }
                Incoming::End => return Err(server.broken(state.session.closed())),
            }
            state.session.expired(now).map_err(|e| server.broken(e))?;
            // A welcome is not waited for longer than a server is tried.
            let welcome = left.filter(|_| state.session.awaits_welcome());
            if let Some(left) = welcome.filter(|&left| now >= began + left) {
                return Err(server.broken(Broken::Unanswered(left)));
            }
            if let Some(refusals) = &self.refusals
                && self.given_up(refusals).is_some_and(|at| at <= now)
            {
                return Err(self.refused_for_long(refusals, now));
            }
            line.fetch(&mut state, now);
            if wrote || !(line.pending.is_empty() || line.blocked) {
                continue;
            }
            state.asleep = line.pending.is_empty();
            let given_up = self.refusals.as_ref().and_then(|all| self.given_up(all));
            let welcome = welcome.map(|left| began + left);
            let deadlines = state.session.deadline().into_iter();
            let deadline = deadlines.chain(given_up).chain(welcome).min();
            let timeout = deadline.map(|at| until(at, now));
            drop(state);
            line.wait(&shared, timeout);
            self.quiet();
        }
    }

    fn received(
        &mut self,
        bytes: &[u8],
        now: Instant,
        state: &mut State,
        backoff: &mut Backoff,
    ) -> Result<usize, Error> {
        let mut acknowledged = 0;
        let (mut welcome, mut refused) = (false, None);
        let mut waits = None;
        let done = state.session.received(bytes, now, |event| match event {
            Event::Welcome(_) => welcome = true,
            Event::Acknowledged { newly, .. } => {
                acknowledged += newly.messages;
                refused = None;
            }
            Event::KeepAlive { why: "" } => {}
            Event::KeepAlive { why } => waits = Some(printable(why)),
            Event::Refused(refusal) => refused = Some(Broken::from(refusal)),
        });
        let done = done.map_err(|e| self.route.server().broken(e));
        if welcome {
            self.route.welcomed();
            backoff.succeeded();
            state.connections += 1;
        }
        if welcome || acknowledged > 0 {
            state.trouble = None;
        }
        if acknowledged > 0 {
            self.refusals = None;
        } else if waits.is_some() {
            state.trouble = waits;
        }
        state.acknowledged += acknowledged;
        self.shared.tell(state);
        if let Some(refused) = refused {
            state.trouble = Some(refused.to_string());
            self.still_refused(refused, now)?;
        }
        done
    }

    /// Counts one more refusal: gives up if refusals have gone on for too long.
    fn still_refused(&mut self, refused: Broken, now: Instant) -> Result<(), Error> {
        let first = Refusals {
            since: now,
            count: 0,
            last: refused.clone(),
        };
        let refusals = self.refusals.get_or_insert(first);
        refusals.count += 1;
        refusals.last = refused;
        let refusals = refusals.clone();
        match self.given_up(&refusals) {
            Some(at) if at <= now => Err(self.refused_for_long(&refusals, now)),
            _ => Ok(()),
        }
    }

    /// When a server that goes on refusing is given up, whatever it asks for.
    fn given_up(&self, refusals: &Refusals) -> Option<Instant> {
        let most = self.persistence.refused?;
        Some(refusals.since + most)
    }

    fn refused_for_long(&self, refusals: &Refusals, now: Instant) -> Error {
        Error::GaveUp {
            attempts: refusals.count,
            elapsed: now.since(refusals.since),
            last: Box::new(self.route.server().broken(refusals.last.clone())),
        }
    }
}

enum Incoming {
    Nothing,
    Bytes,
    End,
}

impl Line {
    /// Gets more to write.
    fn fetch(&mut self, state: &mut State, now: Instant) {
        while self.pending.len() < PIECES
            && let Some(piece) = state.session.output(now)
        {
            self.pending.push(piece);
        }
    }

    /// Writes as much as the socket takes; returns whether it took any byte.
    fn write(&mut self, shared: &Shared) -> io::Result<bool> {
        if self.socket.holds_output() {
            // Sends the bytes taken before; no more bytes are taken meanwhile.
            match self.socket.flush() {
                Ok(()) => self.blocked = false,
                Err(e) if is_wait(&e) => {
                    self.blocked = true;
                    return Ok(false);
                }
                Err(e) => return Err(e),
            }
        }
        if self.pending.is_empty() {
            let now = shared.clock.now();
            self.fetch(&mut shared.lock(), now);
        }
        if self.pending.is_empty() {
            return Ok(false);
        }
        let mut slices = [IoSlice::new(&[]); PIECES];
        for (slice, piece) in slices.iter_mut().zip(&self.pending) {
            *slice = IoSlice::new(piece);
        }
        match self.socket.write_vectored(&slices[..self.pending.len()]) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(mut n) => {
                self.blocked = false;
                let whole = self.pending.iter().take_while(|piece| {
                    let whole = piece.len() <= n;
                    n -= if whole { piece.len() } else { 0 };
                    whole
                });
                let whole = whole.count();
                self.pending.drain(..whole);
                if n > 0 {
                    self.pending[0].advance(n);
                }
                Ok(true)
            }
            Err(e) if is_wait(&e) => {
                self.blocked = true;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    fn read(&mut self) -> io::Result<Incoming> {
        match self.socket.read(&mut self.received[self.filled..]) {
            Ok(0) => Ok(Incoming::End),
            Ok(n) => {
                self.filled += n;
                Ok(Incoming::Bytes)
            }
            Err(e) if is_wait(&e) => Ok(Incoming::Nothing),
            Err(e) => Err(e),
        }
    }

    /// Until the socket or a caller has something, or for so long.
    fn wait(&self, shared: &Shared, timeout: Option<Duration>) {
        let mut wanted = PollFlags::IN;
        if !self.pending.is_empty() || self.socket.holds_output() {
            wanted |= PollFlags::OUT;
        }
        let mut fds = [
            PollFd::new(&self.socket, wanted),
            PollFd::new(&shared.wake, PollFlags::IN),
        ];
        wait(&mut fds, timeout);
    }
}

fn is_wait(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Early returns do no harm: the caller looks again.
fn wait(fds: &mut [PollFd<'_>], timeout: Option<Duration>) {
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    let _ = poll(fds, timeout.as_ref());
}
