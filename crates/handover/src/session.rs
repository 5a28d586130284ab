//! The running server's side of a conversation. A session never waits: call it when its socket is
//! readable.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tidewire::Endpoint;

use crate::message::{Connections, Hello, Listener, Message, Offer};
use crate::wire::{SOCKETS_MAX, Wire};
use crate::{Broken, Handed};

/// Connections that one packet takes: see [`Session::pass_on`].
pub const CONNECTIONS_MAX: usize = SOCKETS_MAX;

/// How long a hello may take.
const HELLO: Duration = Duration::from_secs(5);
/// How long a successor may take to start.
const START: Duration = Duration::from_secs(60);

/// The state of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Silent,
    Asked,
    Offered,
    Taken,
    Released,
    Serving,
}

/// A message from a successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The successor asks for all sockets: [offer](Session::offer) them, or
    /// [refuse](Session::refuse).
    Hello(Hello),
    /// The successor needs a log that is held here: stop accepting, commit, and say when it is
    /// [released](Session::released).
    Take,
    /// The successor serves; what remains is to [let it go](Session::go) and to end, or
    /// to refuse.
    Serving,
}

/// A successor that is heard.
#[derive(Debug)]
pub struct Session {
    wire: Wire,
    state: State,
    since: Instant,
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

impl Session {
    pub(crate) fn new(wire: Wire) -> Session {
        Session {
            wire,
            state: State::Silent,
            since: Instant::now(),
        }
    }

    /// The successor's next message, if there is one; does not wait.
    ///
    /// # Errors
    /// The peer has gone, takes too long, or says what may not come: the conversation is over.
    pub fn hear(&mut self) -> Result<Option<Word>, Broken> {
        let message = match self.wire.receive() {
            Ok((message, _)) => message,
            Err(Broken::Silent) if self.is_late() => return Err(Broken::Silent),
            Err(Broken::Silent) => return Ok(None),
            Err(other) => return Err(other),
        };
        let (word, state) = match (message, self.state) {
            (Message::Hello(hello), State::Silent) => (Word::Hello(hello), State::Asked),
            (Message::Take {}, State::Offered) => (Word::Take, State::Taken),
            (Message::Serving {}, State::Offered | State::Released) => {
                (Word::Serving, State::Serving)
            }
            (message, state) => {
                return Err(Broken::Unexpected(format!("{message:?} when {state:?}")));
            }
        };
        self.enter(state);
        Ok(Some(word))
    }

    /// Whether the successor has been silent for longer than it may be. Opening a log may take as long
    /// as it takes.
    fn is_late(&self) -> bool {
        let most = match self.state {
            State::Silent => HELLO,
            State::Offered => START,
            State::Asked | State::Taken | State::Released | State::Serving => return false,
        };
        self.since.elapsed() > most
    }

    /// Passes the sockets on. [`Offer::packets`] is filled in here.
    ///
    /// # Errors
    /// The error that the successor has gone, or does not take the sockets.
    pub fn offer(&mut self, mut offer: Offer, all: &[Handed]) -> Result<(), Broken> {
        let parts = |handed: &Handed| handed.sockets.len().div_ceil(SOCKETS_MAX);
        offer.packets = all.iter().map(parts).sum::<usize>() as u32;
        self.wire.send(Message::Offer(offer), &[])?;
        for handed in all {
            for sockets in handed.sockets.chunks(SOCKETS_MAX) {
                let listener = Listener {
                    service: handed.service.clone(),
                    at: handed.at.to_string(),
                    given: handed.is_given,
                    owns_file: handed.owns_file,
                    sockets: sockets.len(),
                };
                let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
                self.wire.send(Message::Listener(listener), &sockets)?;
            }
        }
        self.enter(State::Offered);
        Ok(())
    }

    /// The logs are committed and unlocked.
    ///
    /// # Errors
    /// The successor has gone.
    pub fn released(&mut self) -> Result<(), Broken> {
        self.enter(State::Released);
        self.wire.send(Message::Released {}, &[])
    }

    /// This server ends: the sockets are the successor's. With `connections`, connections of which
    /// nothing was read may
    /// [follow](Session::pass_on) until this is dropped.
    ///
    /// # Errors
    /// The successor has gone.
    pub fn go(&mut self, connections: bool) -> Result<(), Broken> {
        self.wire.send(Message::Go { connections }, &[])
    }

    /// Gives the successor connections that the place `at` of `service` has accepted, at most [`CONNECTIONS_MAX`]. Does not
    /// wait.
    ///
    /// # Errors
    /// [`Broken::Silent`] if the successor has too many unread messages: try again later. Any other error
    /// means that the successor has gone.
    pub fn pass_on(
        &self,
        service: &str,
        at: &Endpoint,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<(), Broken> {
        let connections = Connections {
            service: service.into(),
            at: at.to_string(),
            sockets: sockets.len(),
        };
        self.wire.send(Message::Connections(connections), sockets)
    }

    /// Refuses, with the reason.
    pub fn refuse(self, why: &str) {
        self.wire.refuse(why);
    }

    fn enter(&mut self, state: State) {
        (self.state, self.since) = (state, Instant::now());
    }
}
