//! Loops under test on a simulated kernel: one or several, or one for each connection.

use std::sync::Arc;
use std::time::Duration;

use tidewire::admission::Admission;
use tidewire::sim::{Conditions, LoopId, ScriptedNames, Sim, SimService};
use tidewire::{Counters, Dial, Endpoint, Limits, Placement, Service};

use crate::client::PATIENCE;
use crate::hosting::{Hold, Stopper};
use crate::variant::Variant;
use crate::world;

/// What is started there, and what a case wants different.
#[derive(Default)]
pub(crate) struct OnSimulated {
    pub(crate) loops: usize,
    pub(crate) placement: Placement,
    pub(crate) chunk: Option<usize>,
    pub(crate) buffers: Option<usize>,
    pub(crate) memory: Option<usize>,
    pub(crate) admission: Option<Admission>,
    pub(crate) names: Option<ScriptedNames>,
    /// Where they listen, if it is not one address of TCP.
    pub(crate) at: Vec<Endpoint>,
    /// Kernel buffers of the network's ends, in bytes.
    pub(crate) kernel_buffers: Option<usize>,
}

pub(crate) struct Simulated<S: Service> {
    at: LoopId,
    service: SimService<S>,
    pub(crate) addrs: Vec<Endpoint>,
}

impl OnSimulated {
    pub(crate) fn of(v: Variant) -> OnSimulated {
        OnSimulated {
            loops: v.loops,
            placement: v.placement,
            ..OnSimulated::default()
        }
    }

    pub(crate) fn start<S: Service>(mut self, service: S, limits: Limits) -> Simulated<S> {
        if self.at.is_empty() {
            self.at.push(crate::client::lonely().into());
        }
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
            if let Some(admission) = self.admission {
                sim.admission(admission);
            }
            if let Some(names) = self.names {
                sim.resolver(names);
            }
            let at = sim.add_loops(self.loops, self.placement);
            let service = sim.service(at, service, limits);
            sim.admit_all();
            for at in &self.at {
                sim.listen_at(service, at);
            }
            Simulated {
                at,
                service,
                addrs: self.at,
            }
        })
    }
}

impl<S: Service> Simulated<S> {
    pub(crate) fn counters(&self) -> Counters {
        let at = self.at;
        world::with(move |sim| sim.counters(at))
    }

    pub(crate) fn dial(&self, dial: Dial) {
        let service = self.service;
        world::with(move |sim| sim.dial(service, dial));
    }

    pub(crate) fn hold(&self) -> Hold {
        let at = self.at;
        world::with(move |sim| sim.stall(at, PATIENCE));
        Hold(Box::new(move || {
            world::with(move |sim: &mut Sim| sim.stall(at, Duration::ZERO));
        }))
    }

    pub(crate) fn stopper(&self) -> Stopper {
        let at = self.at;
        Stopper(Arc::new(move || world::with(move |sim| sim.stop_now(at))))
    }

    pub(crate) fn stop(self, deadline: Duration) -> Counters {
        let at = self.at;
        world::with(move |sim| sim.stop(at, deadline));
        let stopped = move |sim: &mut Sim| sim.stopped(at).then_some(());
        let stopped = world::wait(deadline + PATIENCE, stopped);
        assert!(stopped.is_some(), "a stop takes longer than it may");
        // The server's process ends, and with it what the loops have kept.
        world::with(move |sim| sim.kill(at));
        self.counters()
    }
}
