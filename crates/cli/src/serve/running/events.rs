//! The events for which the main thread of a server waits.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};

use crate::exit::Failure;
use crate::signals::{Alarm, Caught};

/// Signals, and the end of loops.
pub(crate) struct Events {
    ends: Caught,
    hangups: Caught,
    upgrades: Caught,
    loops: Option<Caught>,
    /// A log line has said that waiting fails.
    cannot_wait: bool,
}

/// The pause after a failed wait.
const PAUSE: Duration = Duration::from_millis(100);

/// Events since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// A signal asks for the end.
    pub(crate) end: bool,
    /// A signal asks for files to be read again.
    pub(crate) hangup: bool,
    /// A signal asks for a successor.
    pub(crate) upgrade: bool,
    /// All loops have ended, or one has failed, or a client that may has asked for the end.
    pub(crate) loops: bool,
    /// A client is at the control socket.
    pub(crate) control: bool,
    /// A message of a successor has arrived.
    pub(crate) successor: bool,
}

impl Events {
    /// From now on signals do not end the process by themselves.
    pub(crate) fn catch() -> Result<Events, Failure> {
        let caught = |signals: &[i32]| {
            Caught::of(signals).map_err(|e| Failure::failed(format!("cannot catch signals: {e}")))
        };
        Ok(Events {
            ends: caught(&[SIGTERM, SIGINT])?,
            hangups: caught(&[SIGHUP])?,
            upgrades: caught(&[SIGUSR2])?,
            loops: None,
            cannot_wait: false,
        })
    }

    /// The alarm to ring when loops have ended; an earlier alarm does not count any more.
    pub(crate) fn alarm(&mut self) -> io::Result<Alarm> {
        let (caught, alarm) = Caught::alarm()?;
        self.loops = Some(caught);
        Ok(alarm)
    }

    /// Whether a signal asked for the end meanwhile. All else stays to be heard.
    pub(crate) fn is_end_signalled(&mut self) -> bool {
        self.ends.take_one()
    }

    /// Whether loops have ended meanwhile, or a service has asked for the end. All else stays to be heard.
    pub(crate) fn have_loops_ended(&mut self) -> bool {
        self.loops.as_mut().is_some_and(Caught::take_all)
    }

    /// Waits for the next event, for this long at most.
    pub(crate) fn wait(
        &mut self,
        control: Option<BorrowedFd<'_>>,
        successor: Option<BorrowedFd<'_>>,
        most: Option<Duration>,
    ) -> Heard {
        let limit = most.and_then(|time| Timespec::try_from(time).ok());
        let mut fds = vec![
            PollFd::new(&self.ends, PollFlags::IN),
            PollFd::new(&self.hangups, PollFlags::IN),
            PollFd::new(&self.upgrades, PollFlags::IN),
        ];
        let mut at = [None; 3];
        let loops = self.loops.as_ref().map(std::os::fd::AsFd::as_fd);
        for (at, fd) in at.iter_mut().zip([loops, control, successor]) {
            if let Some(fd) = fd {
                *at = Some(fds.len());
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        let polled = poll(&mut fds, limit.as_ref());
        let ready = |at: usize| match polled {
            Ok(_) => !fds[at].revents().is_empty(),
            // The caller waits again.
            Err(Errno::INTR) => false,
            // Polling failed: the thread looks at its own descriptors all the same.
            Err(_) => true,
        };
        let [loops, control, successor] = at.map(|at| at.is_some_and(ready));
        let [end, hangup, upgrade] = [ready(0), ready(1), ready(2)];
        let (control, successor) = (control && polled.is_ok(), successor && polled.is_ok());
        if let Err(e) = polled
            && e != Errno::INTR
        {
            self.cannot_wait(e, most);
        }
        Heard {
            // The next event may be another one.
            end: end && self.ends.take_one(),
            hangup: hangup && self.hangups.take_all(),
            upgrade: upgrade && self.upgrades.take_all(),
            loops: loops && self.loops.as_mut().is_some_and(Caught::take_all),
            control,
            successor,
        }
    }

    /// The kernel does not let us wait: an error that is said once, and would come again at once.
    fn cannot_wait(&mut self, e: Errno, most: Option<Duration>) {
        if !std::mem::replace(&mut self.cannot_wait, true) {
            tracing::error!(
                error = %io::Error::from(e),
                "cannot wait for signals and the control socket; signals are polled ten times a \
                 second, and no takeover is possible"
            );
        }
        std::thread::sleep(most.map_or(PAUSE, |most| most.min(PAUSE)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_has_happened_is_told_apart() {
        let mut events = Events::catch().unwrap();
        let moment = Some(Duration::from_millis(1));
        let long = Some(Duration::from_secs(60));
        assert_eq!(events.wait(None, None, moment), Heard::default());
        signal_hook::low_level::raise(SIGTERM).unwrap();
        signal_hook::low_level::raise(SIGHUP).unwrap();
        let heard = events.wait(None, None, long);
        assert!(heard.end && heard.hangup && !heard.upgrade && !heard.loops);
        assert_eq!(events.wait(None, None, moment), Heard::default());
        events.alarm().unwrap().ring();
        assert!(events.wait(None, None, long).loops);
        assert!(!events.is_end_signalled());
        signal_hook::low_level::raise(SIGHUP).unwrap();
        signal_hook::low_level::raise(SIGINT).unwrap();
        assert!(events.is_end_signalled() && !events.is_end_signalled());
        assert!(events.wait(None, None, long).hangup);
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut &there, b"x").unwrap();
        let heard = events.wait(None, Some(here.as_fd()), long);
        assert!(heard.successor && !heard.control);

        // The second signal ends at once what the first has begun: they are heard one by one.
        signal_hook::low_level::raise(SIGTERM).unwrap();
        signal_hook::low_level::raise(SIGINT).unwrap();
        assert!(events.wait(None, None, moment).end);
        assert!(events.wait(None, None, moment).end);
        assert!(!events.wait(None, None, moment).end);
    }
}
