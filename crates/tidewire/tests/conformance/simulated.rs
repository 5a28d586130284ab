//! The server under test on a simulated kernel: one loop or several, or one for each connection.

use std::time::Duration;

use tidewire::sim::{Conditions, LoopId, SimService};
use tidewire::{Counters, Dial, Endpoint, Limits, Placement};

use crate::client::PATIENCE;
use crate::probe::Probes;
use crate::world;

/// What is started there, and what a case wants different.
#[derive(Default)]
pub(crate) struct OnSimulated {
    pub(crate) loops: usize,
    pub(crate) placement: Placement,
    pub(crate) chunk: Option<usize>,
    pub(crate) buffers: Option<usize>,
    pub(crate) memory: Option<usize>,
    /// Of the network's ends, in bytes.
    pub(crate) kernel_buffers: Option<usize>,
}

pub(crate) struct Simulated {
    at: LoopId,
    service: SimService<Probes>,
    pub(crate) addr: Endpoint,
}

impl OnSimulated {
    pub(crate) fn start(self, probes: Probes, limits: Limits) -> Simulated {
        world::with(move |sim| {
            let usual = sim.conditions().clone();
            sim.set_conditions(Conditions {
                chunk: self.chunk.unwrap_or(usual.chunk),
                buffers: self.buffers.unwrap_or(usual.buffers),
                send_buffer: self.kernel_buffers.unwrap_or(usual.send_buffer),
                receive_buffer: self.kernel_buffers.unwrap_or(usual.receive_buffer),
                ..usual
            });
            if let Some(bytes) = self.memory {
                sim.memory(bytes);
            }
            let at = sim.add_loops(self.loops, self.placement);
            let service = sim.service(at, probes, limits);
            let addr = sim.listen(service);
            Simulated { at, service, addr }
        })
    }
}

impl Simulated {
    pub(crate) fn counters(&self) -> Counters {
        let at = self.at;
        world::with(move |sim| sim.counters(at))
    }

    pub(crate) fn dial(&self, dial: Dial) {
        let service = self.service;
        world::with(move |sim| sim.dial(service, dial));
    }

    pub(crate) fn stop(self, deadline: Duration) -> Counters {
        let at = self.at;
        world::with(move |sim| sim.stop(at, deadline));
        let stopped = move |sim: &mut tidewire::sim::Sim| sim.stopped(at).then_some(());
        let stopped = world::wait(deadline + PATIENCE, stopped);
        assert!(stopped.is_some(), "a stop takes longer than it may");
        self.counters()
    }
}
