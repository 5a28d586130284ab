//! Work from other threads for the loop: messages for its services, sockets to adopt, connections
//! to make.

use crate::kernel::accept;
use crate::kernel::calls::Sys;
use crate::reach::waker::Command;
use crate::reactor::Reactor;
use crate::reactor::accepting::{Newcomer, Why};
use crate::reactor::driver::{Driver, Fd};
use crate::reactor::setup::Spread;

impl<D: Driver> Reactor<D> {
    /// Mail and commands.
    pub(super) fn obey(&mut self) {
        self.core.take_mail();
        let refused = self.waker.take_refused();
        if refused > 0 {
            self.core.env.refuse_dials(refused);
        }
        if self.waker.has_commands() {
            self.obey_commands();
        }
    }

    #[cold]
    fn obey_commands(&mut self) {
        for command in self.waker.commands() {
            match command {
                Command::Adopt {
                    socket,
                    listener,
                    service,
                    peer,
                    permit,
                } => self.adopt(Newcomer {
                    socket: D::Sys::own(socket),
                    listener,
                    service,
                    peer,
                    permit,
                }),
                Command::Look => self.accept_waiting_clients(),
                Command::Accept { socket, listener } => {
                    self.accept_from_elsewhere(D::Sys::own(socket), listener);
                }
                Command::Dial { service, dial } => match &self.setup.spread {
                    Spread::Threads(spawner) => {
                        let token = dial.token;
                        let dial = Command::Dial { service, dial };
                        if let Err(e) = spawner.spawn(dial, &self.waker) {
                            tracing::error!(error = %e, token, "cannot start a thread to dial");
                            self.core.dial_failed(service, token, &e);
                        }
                    }
                    _ => self.core.dial(&mut self.driver, service, dial, None),
                },
                Command::Answered(answer) => self.core.answered(&mut self.driver, answer),
            }
        }
    }

    /// Takes in an accepted connection for good.
    pub(super) fn adopt(&mut self, newcomer: Newcomer<Fd<D>>) {
        let Newcomer {
            socket,
            listener,
            service,
            peer,
            permit,
        } = newcomer;
        let peer = accept::peer(self.driver.sys(), &socket, peer, listener);
        let index = match self.core.admit(service, peer.clone(), permit) {
            Ok(index) => index,
            Err(why) => {
                self.waker.carries_less();
                return self.turn_away(service, socket, &peer, why);
            }
        };
        let adopted = self.driver.adopt(&self.core, index, socket);
        self.core.open(index);
        if let Err(e) = adopted {
            self.core.receive_failed(index, e.kind());
            // The next client would fare no better.
            if accept::is_exhaustion(&e) {
                self.waker.take_nobody(true);
                self.pause_accepting(Why::Kernel(e));
            }
        }
        self.core.settle(&mut self.driver, index);
    }
}
