//! The events on the network of a simulation, for people.

use crate::sim::trace::files;
use crate::sim::world::Sim;

impl Sim {
    /// The events since [`Sim::record`], a line for each event: sender, receiver, content and time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    ///
    /// let mut sim = Sim::under(7, Conditions::calm());
    /// sim.record();
    /// let echo = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
    /// let peer = sim.plain(&echo);
    /// sim.send(peer, b"hello");
    /// sim.run_for(Duration::from_secs(1));
    /// let words = sim.words();
    /// assert!(words.contains("0.100000 ms  client 0 -> 10.0.0.1:1: 5 bytes 'hello'\n"), "{words}");
    /// ```
    #[must_use]
    pub fn words(&self) -> String {
        self.kernel.borrow().net.trace.words()
    }

    /// The story as a capture, a pcap file that Wireshark and tcpdump open: packets of raw IP with
    /// the times of the simulation, made up from what arrived. Ends on Unix sockets get an address
    /// of this host.
    ///
    /// ```
    /// let mut sim = tidewire::sim::Sim::new(7);
    /// sim.record();
    /// // ...
    /// assert_eq!(sim.pcap()[..4], 0xa1b2_3c4d_u32.to_le_bytes());
    /// ```
    #[must_use]
    pub fn pcap(&self) -> Vec<u8> {
        self.kernel.borrow().net.trace.pcap()
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // The code that panicked may have held it.
        if let Ok(kernel) = self.kernel.try_borrow() {
            files::dropped(self.seed, &kernel.net.trace);
        }
    }
}
