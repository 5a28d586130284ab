//! A load in rounds: every connection sends one batch, then all replies are awaited before the next round begins.
//!
//! The idea: what a turn of the server's loop finds depends on what has arrived by then, and so on the clock. In rounds it
//! depends on the script alone: a round begins when the caller says so, and the caller can hold the server still until all of
//! the round has been handed to the kernel. Counts of instructions then repeat.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::stage::Stage;

/// Which round is open, and how far it is.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The number of the round that is open, from 1; 0 before the first.
    open: AtomicU64,
    /// Connections that have sent in this round.
    sent: AtomicUsize,
    /// Connections of which everything sent in this round is answered.
    answered: AtomicUsize,
    /// How often loops were asked whether what they sent has reached the kernel.
    asked: AtomicU64,
    /// Loops that have answered since they were last asked.
    flushed: AtomicUsize,
    /// Set while the run waits until all of this round is sent.
    awaited: AtomicBool,
}

impl Rounds {
    /// Whether a connection may send now; `last` is the round in which it sent last, and becomes this one.
    pub(super) fn begin(&self, last: &mut u64) -> bool {
        let open = self.open.load(SeqCst);
        if *last == open {
            return false;
        }
        *last = open;
        self.sent.fetch_add(1, SeqCst);
        true
    }

    /// Whether it is waited for that all of this round is sent.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(SeqCst)
    }

    /// Everything that a connection sent is answered.
    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, SeqCst);
    }

    /// The round that is open.
    pub(super) fn number(&self) -> u64 {
        self.open.load(SeqCst)
    }

    /// How often loops were asked about their output.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(SeqCst)
    }

    /// A loop has gone around once since it was asked.
    pub(super) fn flushed(&self) {
        self.flushed.fetch_add(1, SeqCst);
    }
}

/// What plays a load round by round.
pub struct Play<'a> {
    stage: &'a Stage,
    connections: usize,
    within: Duration,
}

/// Decides about rounds; its end is that of the load.
pub type Script<'a> = &'a mut dyn FnMut(&mut Play<'_>) -> Result<(), Failure>;

impl<'a> Play<'a> {
    pub(super) fn new(stage: &'a Stage, connections: usize, within: Duration) -> Play<'a> {
        Play {
            stage,
            connections,
            within,
        }
    }

    /// Plays one round: calls `sent`, if it is there, when the kernel has all of it, and returns when all of it is answered: how
    /// many messages were so far.
    ///
    /// # Errors
    /// [`Failure`]: a reply is wrong, or does not come; the load is over.
    pub fn round(&mut self, sent: Option<&mut dyn FnMut()>) -> Result<u64, Failure> {
        let stage = self.stage;
        let rounds = stage.rounds().expect("the stage was made for rounds");
        let connections = self.connections;
        rounds.sent.store(0, SeqCst);
        rounds.answered.store(0, SeqCst);
        rounds.flushed.store(0, SeqCst);
        rounds.awaited.store(sent.is_some(), SeqCst);
        rounds.open.fetch_add(1, SeqCst);
        let loops = stage.signal();
        if let Some(sent) = sent {
            self.wait(|| rounds.sent.load(SeqCst) >= connections)?;
            // What was sent in a turn is in the kernel when the next turn has begun.
            rounds.asked.fetch_add(1, SeqCst);
            stage.signal();
            self.wait(|| rounds.flushed.load(SeqCst) >= loops)?;
            sent();
        }
        self.wait(|| rounds.answered.load(SeqCst) >= connections)?;
        Ok(stage.counts().requests)
    }

    fn wait(&self, over: impl Fn() -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + self.within;
        match self.stage.wait_until(deadline, |_| over()) {
            true => Ok(()),
            // If something failed, that is what the run reports.
            false => Err(Failure::Unfinished {
                after: self.within,
                done: 0,
                wanted: self.connections,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::super::{
        Arrivals, EchoLoad, Extent, Fault, Generator, Plan, Target, Workload, in_rounds,
    };
    use super::*;

    const CONNECTIONS: usize = 3;
    const SIZE: usize = 32;
    const PIPELINE: usize = 4;

    /// Echoes what has arrived on each connection when it is told to go on, and waits for nothing more. In round `flips`, from
    /// 1, it flips a bit.
    fn server(go: Receiver<()>, flips: u32) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut sockets: Vec<_> = (0..CONNECTIONS)
                .map(|_| listener.accept().unwrap().0)
                .collect();
            for socket in &sockets {
                socket.set_nonblocking(true).unwrap();
            }
            for (round, ()) in (1..).zip(go) {
                for socket in &mut sockets {
                    let mut bytes = [0; SIZE * PIPELINE + 1];
                    let came = socket.read(&mut bytes).unwrap();
                    if round == flips {
                        bytes[5] ^= 1;
                    }
                    socket.write_all(&bytes[..came]).unwrap();
                }
            }
        });
        addr
    }

    fn play(addr: SocketAddr, script: Script<'_>) -> Result<(), Failure> {
        let plan = Plan {
            workload: Workload::Echo(EchoLoad {
                size: SIZE,
                pipeline: PIPELINE as u32,
                batch: 0,
            }),
            connections: CONNECTIONS,
            arrivals: Arrivals::Closed,
            extent: Extent::Rounds,
        };
        let target = Target {
            addr,
            process: None,
            cores: 1,
        };
        in_rounds(&plan, &Generator::default(), &target, script)
    }

    #[test]
    fn all_of_a_round_is_with_the_kernel_when_that_is_said_and_the_next_waits_for_every_reply() {
        let (tell, go) = channel();
        let mut rounds = 0;
        let played = play(server(go, 0), &mut |play| {
            for round in 1..=20 {
                let answered = play.round(Some(&mut || tell.send(()).unwrap()))?;
                assert_eq!(answered, round * (CONNECTIONS * PIPELINE) as u64);
                rounds = round;
            }
            Ok(())
        });
        // Had anything been missing, the server would have found a connection empty, or a reply would be owed.
        assert!(played.is_ok(), "{played:?}");
        assert_eq!(rounds, 20);
    }

    #[test]
    fn a_wrong_reply_in_a_round_has_its_name() {
        let (tell, go) = channel();
        let failed = play(server(go, 3), &mut |play| {
            for _ in 0..5 {
                play.round(Some(&mut || tell.send(()).unwrap()))?;
            }
            Ok(())
        });
        let failed = failed.unwrap_err();
        let flipped = |failure: &Failure| {
            matches!(
                failure,
                Failure::WrongReply {
                    fault: Fault::FlippedByte,
                    ..
                }
            )
        };
        assert!(flipped(&failed) && failed.is_wrong_answer(), "{failed}");
    }
}
