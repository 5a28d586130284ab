//! When accepting pauses, because the process or the machine runs out of descriptors or memory, the
//! kernel refuses for good, or the loops fall behind; and handing what was accepted to loops.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::reach::waker::{Command, Unsent, Waker};
use crate::reactor::core::Core;
use crate::reactor::env::Env;
use crate::reactor::throttle::Throttle;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::time::Instant;

/// Connections taken from one listener in one turn.
pub(crate) const BATCH: usize = 64;
/// How long accepting pauses for want of descriptors or memory. A connection that closes ends the
/// pause early.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// Attempts in a row that may fail, each for a reason of its own as it seems, before accepting pauses.
/// From then on each that fails makes the pause twice as long, up to 1.6 s.
const FAILED: u32 = 16;
/// How often a loop that was full is looked at again.
const BEHIND: Duration = Duration::from_millis(1);
/// Between two log lines of one loop about pauses.
const SAID: Duration = Duration::from_secs(10);

/// Why accepting pauses.
#[derive(Debug)]
pub(crate) enum Why {
    /// The process or the machine has nothing left to take a connection in with, or the kernel says
    /// no to one after the other.
    Kernel(io::Error),
    /// No loop has room for what was accepted.
    Behind,
}

/// Whether accepting is paused.
#[derive(Debug)]
pub(crate) struct Pause {
    until: Option<Instant>,
    /// Attempts in a row that failed.
    failed: u32,
    said: Throttle,
}

impl Default for Pause {
    fn default() -> Pause {
        Pause {
            until: None,
            failed: 0,
            said: Throttle::new(SAID),
        }
    }
}

impl Pause {
    /// Begins a pause, or prolongs it; true if accepting went on until now.
    pub(crate) fn begin(&mut self, env: &Env, why: &Why) -> bool {
        let begins = self.until.is_none();
        if begins {
            env.counters.accept_pauses.add(1);
            if let Some(held_back) = self.said.pass(env.now) {
                match why {
                    Why::Kernel(e) => {
                        tracing::warn!(error = %e, held_back, "accepting pauses until something is freed");
                    }
                    Why::Behind => {
                        tracing::warn!(held_back, "accepting pauses: the loops have not caught up");
                    }
                }
            }
        }
        let time = match why {
            Why::Kernel(_) => PAUSE * (1 << self.failed.saturating_sub(FAILED).min(4)),
            Why::Behind => BEHIND,
        };
        self.until = Some(env.now + time);
        begins
    }

    /// The loops have no room yet: goes on with a pause that has just ended.
    pub(crate) fn go_on(&mut self, env: &Env) {
        self.until = Some(env.now + BEHIND);
    }

    /// Ends a pause that has lasted long enough, or if something was freed; true if it did.
    pub(crate) fn ended(&mut self, env: &Env, freed: bool) -> bool {
        let over = self.until.is_some_and(|until| freed || until <= env.now);
        if over {
            self.until = None;
        }
        over
    }

    pub(crate) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// When to look again.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ends a pause at once.
    pub(crate) fn end(&mut self) {
        self.until = None;
    }

    /// A connection was accepted.
    #[inline]
    pub(crate) fn succeeded(&mut self) {
        self.failed = 0;
    }

    /// An attempt has failed, and the next may not; whether too many have, one after the other. A
    /// security module or a sandbox that forbids accepting says so each time.
    pub(crate) fn too_many_failed(&mut self) -> bool {
        self.failed = self.failed.saturating_add(1);
        self.failed >= FAILED
    }
}

/// Hands accepted sockets to loops in turn, past those that are full; false if all of them are.
pub(crate) fn hand_over(
    core: &mut Core,
    waiting: &mut VecDeque<Command>,
    loops: &[Arc<Waker>],
    next: &mut usize,
) -> bool {
    while let Some(command) = waiting.pop_front() {
        match offer(loops, next, command) {
            Ok(()) => {}
            Err(Unsent::NoRoom(command)) => {
                waiting.push_front(*command);
                return false;
            }
            Err(Unsent::Ended(command)) => {
                let Command::Adopt { socket, peer, .. } = *command else {
                    unreachable!("only sockets are handed over")
                };
                socket.reset_on_close();
                core.refuse_accepted(Refusal::NoLoop, &peer);
            }
        }
    }
    true
}

/// Offers a command to each loop, once. `NoRoom` if one of them has none.
fn offer(loops: &[Arc<Waker>], next: &mut usize, mut command: Command) -> Result<(), Unsent> {
    let mut crowded = false;
    for _ in 0..loops.len() {
        *next = (*next + 1) % loops.len();
        command = match loops[*next].send(command) {
            Ok(()) => return Ok(()),
            Err(Unsent::NoRoom(command)) => {
                crowded = true;
                *command
            }
            Err(Unsent::Ended(command)) => *command,
        };
    }
    let command = Box::new(command);
    Err(match crowded {
        true => Unsent::NoRoom(command),
        false => Unsent::Ended(command),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::accept::{Accepted, classify};

    fn error(e: rustix::io::Errno) -> Accepted<()> {
        classify(e.into())
    }

    #[test]
    fn accepting_pauses_ever_longer_while_the_kernel_refuses() {
        use rustix::io::Errno;
        let mut pause = Pause::default();
        for e in [Errno::ACCESS, Errno::PERM, Errno::CONNABORTED] {
            assert!(matches!(error(e), Accepted::Gone(_)));
        }
        for _ in 1..FAILED {
            assert!(!pause.too_many_failed());
        }
        let mut core = crate::reactor::tests::core();
        let mut times = Vec::new();
        for _ in 0..7 {
            assert!(pause.too_many_failed());
            let why = Why::Kernel(Errno::ACCESS.into());
            assert!(pause.begin(&core.env, &why));
            let until = pause.until().expect("a pause");
            times.push(until.since(core.env.now).as_millis());
            core.env.now = until;
            assert!(pause.ended(&core.env, false));
        }
        assert_eq!(times, [100, 200, 400, 800, 1600, 1600, 1600]);
        assert_eq!(core.env.counters.accept_pauses.value(), 7);
        pause.succeeded();
        assert!(!pause.too_many_failed());
    }
}
