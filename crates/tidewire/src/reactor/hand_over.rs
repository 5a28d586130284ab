//! Where an accepted connection goes: it stays, or to another loop, or to a thread of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::kernel::calls::Sys;
use crate::mistakes::{Mistake, mistaken};
use crate::reach::waker::{Command, Unsent, Waker};
use crate::reactor::Reactor;
use crate::reactor::accept::{Newcomer, Why};
use crate::reactor::driver::{Driver, Fd};
use crate::reactor::setup::{Fleet, Spread, Turn};
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::peer::{Origin, Peer};

/// What is handed to other loops.
#[derive(Default)]
pub(super) struct HandOver {
    /// The loop that was given something last.
    last: usize,
    /// Accepted, and waiting for a loop to have room for them.
    waiting: VecDeque<Command>,
}

impl HandOver {
    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl<D: Driver> Reactor<D> {
    /// Takes in a connection that was let in, or has another loop or a new thread take it.
    pub(super) fn take_in(&mut self, newcomer: Newcomer<Fd<D>>) {
        if matches!(self.setup.spread, Spread::Here) {
            self.waker.carries_more();
            return self.adopt(newcomer);
        }
        let Newcomer {
            socket,
            listener,
            service,
            peer,
            permit,
        } = newcomer;
        let refused = peer.clone();
        let command = Command::Adopt {
            socket: D::Sys::hand_over(socket),
            listener,
            service,
            peer,
            permit,
        };
        if let Spread::Threads(spawner) = &self.setup.spread {
            if let Err(e) = spawner.spawn(command, &self.waker) {
                let refused = Peer::new(refused, Origin::Accepted(listener));
                self.core
                    .refuse_accepted(service, Refusal::NoThread, &refused);
                self.pause_accepting(Why::Kernel(e));
            }
            return;
        }
        self.hand_over.waiting.push_back(command);
        if !self.hand_over() {
            self.pause_accepting(Why::Behind);
        }
    }

    /// Hands what waits to the loops, past those that are full; false if all of them are.
    pub(super) fn hand_over(&mut self) -> bool {
        let Spread::Loops(Fleet { loops, turn }) = &self.setup.spread else {
            return true;
        };
        let HandOver { last, waiting } = &mut self.hand_over;
        while let Some(command) = waiting.pop_front() {
            if *turn == Turn::LeastConnections {
                // The one before it is the last that was served.
                *last = before_least(loops, *last);
            }
            match offer(loops, last, command) {
                Ok(()) => {}
                Err(Unsent::NoRoom(command)) => {
                    if !mistaken(Mistake::HandOverDropped) {
                        waiting.push_front(*command);
                    }
                    return false;
                }
                Err(Unsent::Ended(command)) => {
                    let Command::Adopt {
                        socket,
                        peer,
                        service,
                        listener,
                        ..
                    } = *command
                    else {
                        unreachable!("only sockets are handed over")
                    };
                    socket.reset_on_close();
                    let peer = Peer::new(peer, Origin::Accepted(listener));
                    self.core.refuse_accepted(service, Refusal::NoLoop, &peer);
                }
            }
        }
        true
    }
}

/// The number of the loop before the one that carries the fewest connections; of those that carry as few,
/// before the one that has waited longest.
fn before_least(loops: &[Arc<Waker>], last: usize) -> usize {
    let places = (1..=loops.len()).map(|i| (last + i) % loops.len());
    let least = places.min_by_key(|at| loops[*at].carried()).unwrap_or(0);
    (least + loops.len() - 1) % loops.len()
}

/// Offers a command to each loop, once, from the one behind the last on. `NoRoom` if one of them has none.
fn offer(loops: &[Arc<Waker>], last: &mut usize, mut command: Command) -> Result<(), Unsent> {
    let mut crowded = false;
    for _ in 0..loops.len() {
        *last = (*last + 1) % loops.len();
        command = match loops[*last].send(command) {
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
