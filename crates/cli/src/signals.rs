//! Signals as something a thread can wait for.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Catches the signals that ask for the end. Each becomes a byte in a pipe.
pub(crate) struct Signals(UnixStream);

/// Ends a wait for signals from inside.
pub(crate) struct Alarm(UnixStream);

impl Alarm {
    /// Has whoever waits look what has happened.
    pub(crate) fn ring(mut self) {
        // Whoever waited may have gone.
        let _ = self.0.write_all(&[0]);
    }
}

impl Signals {
    /// From now on the signals no longer end the process by themselves.
    pub(crate) fn catch() -> io::Result<Signals> {
        Signals::with_alarm().map(|(signals, _)| signals)
    }

    /// [`catch`](Signals::catch), with an alarm that is heard like a signal.
    pub(crate) fn with_alarm() -> io::Result<(Signals, Alarm)> {
        let (here, there) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            pipe::register(signal, there.try_clone()?)?;
        }
        Ok((Signals(here), Alarm(there)))
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
