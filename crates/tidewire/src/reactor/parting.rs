//! Clients that were refused with a word, until they have had time to read it.
//!
//! Closing a socket with unread input resets its connection, and a reset can overtake a reply that
//! was just sent. So the socket is kept for a moment with our side closed: nothing waits for it,
//! and it costs only a descriptor. Few sockets are kept; in a flood each has less time, at worst
//! none.

use std::collections::VecDeque;
use std::time::Duration;

use rustix::io::Errno;

use crate::kernel::calls::{Behind, Sys};
use crate::vocabulary::time::Instant;

/// How long the sockets are kept.
const TIME: Duration = Duration::from_secs(1);
/// Most sockets that one loop keeps open so.
const MOST: usize = 64;
/// Most input that is discarded of one closing socket, so that its close is orderly; bytes.
const TAKEN: usize = 16 << 10;

/// Sockets of one loop, oldest first.
pub(super) struct Parting<F>(VecDeque<(Instant, F)>);

impl<F> Default for Parting<F> {
    fn default() -> Parting<F> {
        Parting(VecDeque::new())
    }
}

impl<F> Parting<F> {
    /// Says something, if the kernel takes it at once, and closes our side.
    pub(super) fn tell<S: Sys<Fd = F>>(&mut self, sys: &S, socket: F, words: &[u8], now: Instant) {
        let told = again(|| sys.send(&socket, words, Behind::Nothing)) == Ok(words.len());
        if !told || sys.shut_write(&socket).is_err() {
            return sys.reset_on_close(&socket);
        }
        if self.0.len() >= MOST
            && let Some((_, oldest)) = self.0.pop_front()
        {
            close(sys, &oldest);
        }
        self.0.push_back((now + TIME, socket));
    }

    /// Whether no socket is kept.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Closes sockets whose time is over.
    #[cold]
    pub(super) fn close_due(&mut self, sys: &impl Sys<Fd = F>, now: Instant) {
        while self.next().is_some_and(|due| due <= now)
            && let Some((_, socket)) = self.0.pop_front()
        {
            close(sys, &socket);
        }
    }

    /// Closes all.
    pub(super) fn close_all(&mut self, sys: &impl Sys<Fd = F>) {
        for (_, socket) in self.0.drain(..) {
            close(sys, &socket);
        }
    }

    /// When the next is to be closed.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.front().map(|(until, _)| *until)
    }
}

/// Reads the bytes that have arrived, and drops them. The socket is closed when it is dropped.
fn close<S: Sys>(sys: &S, socket: &S::Fd) {
    let mut bytes = [0; 4096];
    for _ in 0..TAKEN / bytes.len() {
        let taken = again(|| sys.recv(socket, &mut bytes));
        if !taken.is_ok_and(|n| n == bytes.len()) {
            return;
        }
    }
}

/// Repeats a call as long as it is interrupted.
fn again(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
