//! Signals as something a thread can wait for.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Catches the signals that ask for the end. Each becomes a byte in a pipe.
pub(crate) struct Signals(UnixStream);

/// Catches the signal that asks for files to be read again.
pub(crate) struct Hangups(UnixStream);

/// What came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A signal that asks for the end, or an alarm.
    End,
    /// One or several SIGHUPs.
    Hangup,
    /// The time is over.
    Nothing,
}

impl Hangups {
    /// From now on SIGHUP does not end the process.
    pub(crate) fn catch() -> io::Result<Hangups> {
        let (here, there) = UnixStream::pair()?;
        here.set_nonblocking(true)?;
        pipe::register(SIGHUP, there)?;
        Ok(Hangups(here))
    }

    /// Whether any came since it was asked before.
    fn take(&mut self) -> bool {
        let (mut bytes, mut some) = ([0; 64], false);
        while matches!(self.0.read(&mut bytes), Ok(n) if n > 0) {
            some = true;
        }
        some
    }
}

/// Ends a wait for signals from inside.
pub(crate) struct Alarm(UnixStream);

impl Alarm {
    /// Has whoever waits look what has happened.
    pub(crate) fn ring(&self) {
        // Whoever waited may have gone.
        let _ = (&self.0).write_all(&[0]);
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

impl Signals {
    /// Waits for one or the other, at most this long. An end is not put off by hangups.
    pub(crate) fn wait_or_hangup(
        &mut self,
        hangups: &mut Hangups,
        timeout: Option<Duration>,
    ) -> Heard {
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let mut fds = [
            PollFd::new(&self.0, PollFlags::IN),
            PollFd::new(&hangups.0, PollFlags::IN),
        ];
        // Interrupted counts as nothing: whoever waits comes again.
        let polled = poll(&mut fds, timeout.as_ref());
        if polled.is_err() || !fds[0].revents().is_empty() {
            let ends = polled.is_ok() && self.wait(None) > 0;
            return if ends { Heard::End } else { Heard::Nothing };
        }
        match hangups.take() {
            true => Heard::Hangup,
            false => Heard::Nothing,
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

    #[test]
    fn an_end_comes_before_hangups_and_hangups_are_heard_once() {
        let (mut signals, alarm) = Signals::with_alarm().unwrap();
        let mut hangups = Hangups::catch().unwrap();
        let moment = Some(Duration::from_millis(1));
        assert_eq!(signals.wait_or_hangup(&mut hangups, moment), Heard::Nothing);
        for _ in 0..3 {
            signal_hook::low_level::raise(SIGHUP).unwrap();
        }
        let for_ever = Some(Duration::from_secs(60));
        assert_eq!(
            signals.wait_or_hangup(&mut hangups, for_ever),
            Heard::Hangup
        );
        assert_eq!(signals.wait_or_hangup(&mut hangups, moment), Heard::Nothing);
        signal_hook::low_level::raise(SIGHUP).unwrap();
        alarm.ring();
        assert_eq!(signals.wait_or_hangup(&mut hangups, for_ever), Heard::End);
    }
}
