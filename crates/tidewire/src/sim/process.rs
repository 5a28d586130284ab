//! The end of a process by accident.

use crate::sim::world::LoopId;
use crate::sim::world::Sim;

impl Sim {
    /// The process of this loop dies, as by SIGKILL: no more callbacks are made, unsent output is lost,
    /// and the kernel closes the process's sockets. If the process has several loops, all of them die.
    /// Another process may listen at its addresses ([`Sim::listen_at`]).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{PlainState, Sim};
    ///
    /// let echo = || tidewire::on_input(|input, link| link.forward_all(input));
    /// let mut sim = Sim::new(7);
    /// let at = sim.add_loop();
    /// let service = sim.service(at, echo(), Default::default());
    /// let addr = sim.listen(service);
    /// let peer = sim.plain(&addr);
    /// sim.run_for(Duration::from_secs(1));
    /// sim.kill(at);
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(sim.state(peer), PlainState::Ended);
    ///
    /// let at = sim.add_loop();
    /// let service = sim.service(at, echo(), Default::default());
    /// sim.listen_at(service, &addr);
    /// let peer = sim.plain(&addr);
    /// sim.send(peer, b"again");
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(sim.received(peer), b"again");
    /// ```
    pub fn kill(&mut self, at: LoopId) {
        for at in self.team(at) {
            let running = self.running(at);
            running.node.end();
            if let Some(threads) = &mut running.threads {
                threads.end();
            }
        }
    }
}
