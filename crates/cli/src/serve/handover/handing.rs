//! A running server's side of a handover: which process may have the listeners, and when.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tidewire_handover::{Broken, Control, Handed, Hello, Offer, Session, Word};

use crate::serve::handover::upgrade::Upgrade;

/// How soon the server checks whether a successor is late.
const LOOK: Duration = Duration::from_secs(1);

/// The control socket, and the present successor; there is one at a time.
pub(crate) struct Handing {
    control: Option<Control>,
    upgrade: Upgrade,
    successor: Option<Session>,
    /// The successor's first message.
    hello: Option<Hello>,
    /// The successor has been offered the listeners.
    offered: bool,
    /// A successor that did not take over may still have the listeners.
    astray: bool,
}

/// The parts that a successor asks for: listeners, logs or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// The listeners.
    Listeners,
    /// The logs are to be released.
    Logs,
    /// This server is to end: the successor serves.
    End,
    /// The successor asks for nothing any more: it has gone, or its packets are ignored.
    Nothing,
}

impl Handing {
    pub(crate) fn new(control: Option<Control>, upgrade: Upgrade) -> Handing {
        Handing {
            control,
            upgrade,
            successor: None,
            hello: None,
            offered: false,
            astray: false,
        }
    }

    /// Starts a successor.
    pub(crate) fn upgrade(&self) {
        self.upgrade.begin(self.control.as_ref());
    }

    /// The predecessor has let go of the inherited parts.
    pub(crate) fn adopt(&mut self) {
        if let Some(control) = &mut self.control {
            control.adopt();
        }
    }

    /// The descriptors to poll.
    pub(crate) fn fds(&self) -> (Option<BorrowedFd<'_>>, Option<BorrowedFd<'_>>) {
        let control = self.control.as_ref().map(AsFd::as_fd);
        (control, self.successor.as_ref().map(AsFd::as_fd))
    }

    /// When to look at the latest, though nothing is to be read.
    pub(crate) fn look(&self) -> Option<Duration> {
        self.successor.is_some().then_some(LOOK)
    }

    /// Accepts a waiting successor, or says why not now.
    pub(crate) fn accept(&mut self, refusal: Option<&str>) {
        let Some(control) = &self.control else { return };
        match control.accept() {
            Ok(None) => {}
            Ok(Some(session)) => match refusal {
                Some(why) => session.refuse(why),
                None if self.successor.is_some() => {
                    session.refuse("another takeover is under way");
                }
                None => self.successor = Some(session),
            },
            Err(error) => {
                tracing::warn!(%error, "the control socket cannot be read: no successor can take over")
            }
        }
    }

    /// Reads the successor's next message, if any.
    pub(crate) fn hear(&mut self) -> Option<Wants> {
        match self.successor.as_mut()?.hear() {
            Ok(None) => None,
            Ok(Some(Word::Hello(hello))) => {
                let Hello { pid, version, .. } = &hello;
                tracing::info!(pid, version, "a successor asks for the listeners");
                self.hello = Some(hello);
                Some(Wants::Listeners)
            }
            Ok(Some(Word::Take)) => Some(Wants::Logs),
            Ok(Some(Word::Serving)) => Some(Wants::End),
            Err(error) => {
                tracing::warn!(%error, "a successor does not take over");
                self.successor = None;
                // A successor that ends has closed all its descriptors. A successor that is
                // stopped, or that sends an unexpected message, has not.
                let ends = matches!(error, Broken::Gone | Broken::Refused(_));
                self.astray |= std::mem::take(&mut self.offered) && !ends;
                Some(Wants::Nothing)
            }
        }
    }

    /// Whether a process that was to take over may have the listeners still.
    pub(crate) fn are_listeners_astray(&self) -> bool {
        self.astray
    }

    /// Whether the successor may forget data that is kept in memory alone.
    pub(crate) fn may_forget(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.forget)
    }

    /// Id of the successor's process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.hello.as_ref().map(|hello| hello.pid)
    }

    /// Passes the listeners and the control socket on.
    pub(crate) fn offer(&mut self, offer: Offer, listeners: io::Result<Vec<Handed>>) {
        let Some(session) = &mut self.successor else {
            return;
        };
        let control = self.control.as_ref().map(Control::hand).transpose();
        let all = listeners.and_then(|mut all| {
            all.extend(control?);
            Ok(all)
        });
        self.offered = true;
        let offered = match &all {
            Ok(all) => session.offer(offer, all).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        if let Err(why) = offered {
            tracing::warn!(why, "the listeners cannot be handed over");
            self.refuse(&format!("the listeners cannot be handed over: {why}"));
        }
    }

    /// Says that the logs are free.
    pub(crate) fn released(&mut self) {
        if let Some(session) = &mut self.successor
            && let Err(error) = session.released()
        {
            // The loop hears soon that the successor has gone.
            tracing::warn!(%error, "the successor is not reached");
        }
    }

    /// Whether the successor takes connections of which no byte was read.
    pub(crate) fn takes_connections(&self) -> bool {
        let takes = |hello: &Hello| hello.takes_connections;
        self.hello.as_ref().is_some_and(takes)
    }

    /// Releases the successor: it owns the listeners from now on. Returns the session on which connections are
    /// passed on, if the successor takes them.
    pub(crate) fn let_go(&mut self) -> Option<Session> {
        let takes = self.takes_connections();
        let session = self.successor.take().and_then(|mut session| {
            // The successor serves, whether it receives this message or not.
            let said = session.go(takes);
            (takes && said.is_ok()).then_some(session)
        });
        if let Some(control) = self.control.take() {
            control.leave();
        }
        session
    }

    /// Refuses the present successor, which may hold the listeners already.
    pub(crate) fn pass_over(&mut self, why: &str) {
        tracing::warn!(why, "a successor does not take over");
        self.refuse(why);
        self.astray |= std::mem::take(&mut self.offered);
    }

    /// Refuses the successor that is heard.
    pub(crate) fn refuse(&mut self, why: &str) {
        if let Some(session) = self.successor.take() {
            session.refuse(why);
        }
    }
}
