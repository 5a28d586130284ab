//! Signals as something a thread can wait for.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Catches the signals that ask for the end. Each becomes a byte in a pipe.
pub(crate) struct Signals(UnixStream);

impl Signals {
    /// From now on the signals no longer end the process by themselves.
    pub(crate) fn catch() -> io::Result<Signals> {
        let (here, there) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            pipe::register(signal, there.try_clone()?)?;
        }
        Ok(Signals(here))
    }

    /// Waits for signals, at most this long; how many came. 0 means that the time is over.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> usize {
        // Fails only for a timeout of zero, which settings exclude.
        let _ = self.0.set_read_timeout(timeout);
        let mut bytes = [0; 16];
        loop {
            match self.0.read(&mut bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return 0,
                Ok(n) => return n,
            }
        }
    }
}

/// To be polled: readable when a signal came.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
