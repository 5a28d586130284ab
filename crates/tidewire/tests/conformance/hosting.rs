//! Any service on the loops under test, of this machine or on a simulated kernel.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire::admission::Admission;
use tidewire::sim::ScriptedNames;
use tidewire::{
    Builder, Counters, Dial, Endpoint, Limits, Listen, NotDialled, Running, Service, ServiceId,
};

use crate::client::Client;
use crate::simulated::{OnSimulated, Simulated};
use crate::variant::Variant;
use crate::world;

/// Loops with a service. Dropping them stops them at once.
pub(crate) enum Loops<S: Service> {
    Real(Box<Real<S>>),
    Simulated(Simulated<S>),
}

/// Loops of this machine.
pub(crate) struct Real<S: Service> {
    pub(crate) running: Running,
    service: ServiceId<S>,
}

impl<S: Service> Real<S> {
    pub(crate) fn start(
        mut builder: Builder,
        service: S,
        limits: Limits,
        listens: Vec<Listen>,
    ) -> Real<S> {
        let service = builder.service_with(service, limits);
        for listen in listens {
            builder.listen(service, listen);
        }
        let running = builder.start().expect("the server starts");
        Real { running, service }
    }
}

/// A service of a case's own, reached at one TCP address.
pub(crate) fn host<S: Service>(v: Variant, service: S, limits: Limits) -> Loops<S> {
    host_behind(v, service, limits, None)
}

/// Hosts a service behind these rules.
pub(crate) fn host_behind<S: Service>(
    v: Variant,
    service: S,
    limits: Limits,
    admission: Option<Admission>,
) -> Loops<S> {
    if world::is_simulated() {
        let on = OnSimulated {
            admission,
            ..OnSimulated::of(v)
        };
        return Loops::Simulated(on.start(service, limits));
    }
    let mut builder = v.builder();
    if let Some(admission) = admission {
        builder.admission(admission);
    }
    let any = vec![Listen::at(([127, 0, 0, 1], 0))];
    Loops::Real(Box::new(Real::start(builder, service, limits, any)))
}

/// Hosts a service whose names of hosts are scripted.
pub(crate) fn host_with<S: Service>(
    v: Variant,
    service: S,
    limits: Limits,
    names: &ScriptedNames,
) -> Loops<S> {
    if world::is_simulated() {
        let on = OnSimulated {
            names: Some(names.clone()),
            ..OnSimulated::of(v)
        };
        return Loops::Simulated(on.start(service, limits));
    }
    let mut builder = v.builder();
    builder.resolver(names.clone());
    let any = vec![Listen::at(([127, 0, 0, 1], 0))];
    Loops::Real(Box::new(Real::start(builder, service, limits, any)))
}

impl<S: Service> Loops<S> {
    pub(crate) fn addrs(&self) -> Vec<Endpoint> {
        match self {
            Loops::Real(real) => real.running.addrs().to_vec(),
            Loops::Simulated(simulated) => simulated.addrs.clone(),
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addrs()[0].tcp().expect("a TCP listener")
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.addr())
    }

    pub(crate) fn counters(&self) -> Counters {
        match self {
            Loops::Real(real) => real.running.counters(),
            Loops::Simulated(simulated) => simulated.counters(),
        }
    }

    pub(crate) fn try_dial(&self, dial: Dial) -> Result<(), NotDialled> {
        match self {
            Loops::Real(real) => real.running.dial(real.service, dial),
            Loops::Simulated(simulated) => {
                simulated.dial(dial);
                Ok(())
            }
        }
    }

    pub(crate) fn dial(&self, dial: Dial) {
        self.try_dial(dial).expect("room for a dial");
    }

    /// A graceful stop; what is left after `deadline` is cut.
    pub(crate) fn stop(self, deadline: Duration) -> Counters {
        match self {
            Loops::Real(real) => real.running.stop(deadline),
            Loops::Simulated(simulated) => simulated.stop(deadline),
        }
    }

    /// On a simulated kernel: keeps the loops from going on until what is returned is dropped.
    pub(crate) fn hold(&self) -> Option<Hold> {
        match self {
            Loops::Real(_) => None,
            Loops::Simulated(simulated) => Some(simulated.hold()),
        }
    }

    pub(crate) fn stopper(&self) -> Stopper {
        match self {
            Loops::Real(real) => Stopper(Arc::new({
                let stopper = real.running.stopper();
                move || stopper.stop_now()
            })),
            Loops::Simulated(simulated) => simulated.stopper(),
        }
    }
}

/// Ends a stop at once, from anywhere.
pub(crate) struct Stopper(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl Stopper {
    pub(crate) fn stop_now(&self) {
        (self.0)();
    }
}

/// Loops that are held up, until it is dropped.
pub(crate) struct Hold(pub(crate) Box<dyn FnMut() + Send>);

impl Drop for Hold {
    fn drop(&mut self) {
        (self.0)();
    }
}
