//! Where an accepted connection goes: it stays, or to another loop, or to a thread of its own.

use crate::kernel::calls::Sys;
use crate::mistakes::{Mistake, mistaken};
use crate::reach::waker::{Command, Unsent};
use crate::reactor::Reactor;
use crate::reactor::accepting::{Newcomer, Why};
use crate::reactor::driver::{Driver, Fd};
use crate::reactor::setup::{Fleet, Spread, Turn};
use crate::reactor::waiting::{Waiting, before_least, offer};
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::peer::{Origin, Peer};

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
        self.waiting.commands.push_back(command);
        if !self.hand_over() {
            self.pause_accepting(Why::Behind);
        }
    }

    /// Hands what waits to the loops, past full ones; false if all of them are.
    pub(super) fn hand_over(&mut self) -> bool {
        let Spread::Loops(Fleet { loops, turn }) = &self.setup.spread else {
            return true;
        };
        let Waiting { last, commands } = &mut self.waiting;
        while let Some(command) = commands.pop_front() {
            if *turn == Turn::LeastConnections {
                // The loop before the chosen one counts as the last that was served.
                *last = before_least(loops, *last);
            }
            match offer(loops, last, command) {
                Ok(()) => {}
                Err(Unsent::NoRoom(command)) => {
                    if !mistaken(Mistake::HandOverDropped) {
                        commands.push_front(*command);
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
