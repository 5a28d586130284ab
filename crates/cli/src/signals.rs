//! Signals as something a thread can wait for.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Catches the signals that ask for the end. Each becomes a byte in a pipe.
pub(crate) struct Signals(UnixStream);

/// Signals, or a call from inside, as something to be polled.
pub(crate) struct Caught(UnixStream);

impl Caught {
    /// From now on these signals do not end the process by themselves.
    pub(crate) fn of(signals: &[i32]) -> io::Result<Caught> {
        let (here, there) = UnixStream::pair()?;
        here.set_nonblocking(true)?;
        for signal in signals {
            pipe::register(*signal, there.try_clone()?)?;
        }
        Ok(Caught(here))
    }

    /// Signals, and an alarm that the process itself can ring.
    pub(crate) fn alarm() -> io::Result<(Caught, Alarm)> {
        let (here, there) = UnixStream::pair()?;
        here.set_nonblocking(true)?;
        Ok((Caught(here), Alarm(there)))
    }

    /// Whether a signal has arrived since the last call.
    pub(crate) fn take_all(&mut self) -> bool {
        let (mut bytes, mut some) = ([0; 64], false);
        while matches!(self.0.read(&mut bytes), Ok(n) if n > 0) {
            some = true;
        }
        some
    }

    /// Whether a signal has come; a second one is left for the next call.
    pub(crate) fn take_one(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(1))
    }
}

impl AsFd for Caught {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ends a wait for signals from inside.
pub(crate) struct Alarm(UnixStream);

impl Alarm {
    /// Wakes the waiting thread, so that it looks for events.
    pub(crate) fn ring(&self) {
        // The waiting thread may have gone.
        let _ = (&self.0).write_all(&[0]);
    }
}

impl Signals {
    /// From now on the signals no longer end the process by themselves.
    pub(crate) fn catch() -> io::Result<Signals> {
        let (here, there) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            pipe::register(signal, there.try_clone()?)?;
        }
        Ok(Signals(here))
    }

    /// Whether a signal has come that was not waited for yet; the signal stays for the waiting
    /// thread.
    pub(crate) fn has_come(&self) -> bool {
        let now = rustix::event::Timespec::default();
        let mut fds = [rustix::event::PollFd::new(
            &self.0,
            rustix::event::PollFlags::IN,
        )];
        matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(n) if n > 0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGUSR1;

    #[test]
    fn what_was_caught_is_heard_once() {
        let mut hangups = Caught::of(&[SIGUSR1]).unwrap();
        assert!(!hangups.take_all() && !hangups.take_one());
        for _ in 0..3 {
            signal_hook::low_level::raise(SIGUSR1).unwrap();
        }
        assert!(hangups.take_one(), "and the others wait");
        assert!(hangups.take_all());
        assert!(!hangups.take_all());
        let (mut caught, alarm) = Caught::alarm().unwrap();
        assert!(!caught.take_one());
        alarm.ring();
        assert!(caught.take_one());
    }
}
