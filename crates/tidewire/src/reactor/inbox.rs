//! What others leave for the loop: mail for its services, sockets to adopt, connections to make.

use crate::driver::accept;
use crate::kernel::calls::Sys;
use crate::reach::waker::Command;
use crate::reactor::Reactor;
use crate::reactor::driver::{Driver, Fd};
use crate::reactor::setup::Spread;
use crate::vocabulary::endpoint::Endpoint;

impl<D: Driver> Reactor<D> {
    /// Mail and commands.
    pub(super) fn obey(&mut self) {
        self.core.take_mail();
        let refused = self.waker.take_refused();
        self.core.env.counters.dials_refused.add(refused);
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
                } => self.adopt(D::Sys::own(socket), listener, service, peer),
                Command::Dial { service, dial } => match &self.setup.spread {
                    Spread::Threads(spawner) => {
                        let token = dial.token;
                        let dial = Command::Dial { service, dial };
                        if let Err(e) = spawner.spawn(dial, &self.waker) {
                            tracing::error!(error = %e, token, "cannot start a thread to dial");
                            self.core.dial_failed(service, token, &e);
                        }
                    }
                    _ => self.core.dial(&mut self.driver, service, dial),
                },
            }
        }
    }

    /// Takes in an accepted connection for good.
    pub(super) fn adopt(&mut self, socket: Fd<D>, listener: u32, service: u16, peer: Endpoint) {
        let sys = self.driver.sys();
        let peer = accept::peer(sys, &socket, peer, listener);
        let Ok(index) = self.core.admit(service, peer) else {
            return sys.reset_on_close(&socket);
        };
        let adopted = self.driver.adopt(&self.core, index, socket);
        self.core.open(index);
        if let Err(e) = adopted {
            self.core.failed(index, e.kind());
        }
        self.core.settle(&mut self.driver, index);
    }
}
