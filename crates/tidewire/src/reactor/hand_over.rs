//! Where an accepted connection goes: it stays, or to another loop, or to a thread of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::mistakes::{Mistake, mistaken};
use crate::reach::waker::{Command, Unsent, Waker};
use crate::reactor::Reactor;
use crate::reactor::accept::Why;
use crate::reactor::driver::{Driver, Fd};
use crate::reactor::setup::Spread;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::endpoint::Endpoint;

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
    /// Takes in a connection accepted at the listener of this number.
    pub(super) fn take_in(&mut self, which: usize, socket: Fd<D>, peer: Endpoint) {
        if matches!(self.setup.spread, Spread::Here) {
            let (listener, service) = self.accepting.listener(which);
            return self.adopt(socket, listener, service, peer);
        }
        self.pass_on(which, D::Sys::hand_over(socket), peer);
    }

    /// Has another loop or a new thread take it.
    pub(super) fn pass_on(&mut self, which: usize, socket: Descriptor, peer: Endpoint) {
        let (listener, service) = self.accepting.listener(which);
        let refused = peer.clone();
        let command = Command::Adopt {
            socket,
            listener,
            service,
            peer,
        };
        if let Spread::Threads(spawner) = &self.setup.spread {
            if let Err(e) = spawner.spawn(command, &self.waker) {
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

    /// Hands what waits to the loops in turn, past those that are full; false if all of them are.
    pub(super) fn hand_over(&mut self) -> bool {
        let Spread::Loops(loops) = &self.setup.spread else {
            return true;
        };
        let HandOver { last, waiting } = &mut self.hand_over;
        while let Some(command) = waiting.pop_front() {
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
                        ..
                    } = *command
                    else {
                        unreachable!("only sockets are handed over")
                    };
                    socket.reset_on_close();
                    self.core.refuse_accepted(service, Refusal::NoLoop, &peer);
                }
            }
        }
        true
    }
}

/// Offers a command to each loop, once. `NoRoom` if one of them has none.
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
