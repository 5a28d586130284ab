//! The server under test: [`Probes`] on a set of loops, with what a case wants different.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire::admission::Admission;
use tidewire::sim::ScriptedNames;
use tidewire::{
    Builder, Conns, Counters, Dial, Endpoint, Limits, Listen, NotDialled, Peer, Placement, Refusal,
    Running, TcpOptions,
};

use crate::client::Client;
use crate::hosting::{Hold, Loops, Real, Stopper};
use crate::probe::{OnLoop, Probe, Probes, Role, Woken};
use crate::record::Record;
use crate::simulated::OnSimulated;
use crate::variant::Variant;
use crate::world;

/// A server to be.
pub(crate) struct Setup {
    pub(crate) builder: Builder,
    limits: Limits,
    listens: Vec<Listen>,
    woken: Option<Woken>,
    keep_handles: bool,
    on_simulated: OnSimulated,
}

impl Setup {
    pub(crate) fn on(variant: Variant) -> Setup {
        Setup {
            builder: variant.settings(),
            limits: Limits::default(),
            listens: Vec::new(),
            woken: None,
            keep_handles: false,
            on_simulated: OnSimulated::of(variant),
        }
    }

    pub(crate) fn chunk(mut self, bytes: usize) -> Setup {
        self.builder.chunk(bytes);
        self.on_simulated.chunk = Some(bytes);
        self
    }

    pub(crate) fn buffers(mut self, n: usize) -> Setup {
        self.builder.buffers(n);
        self.on_simulated.buffers = Some(n);
        self
    }

    pub(crate) fn memory(mut self, bytes: usize) -> Setup {
        self.builder.memory(bytes);
        self.on_simulated.memory = Some(bytes);
        self
    }

    pub(crate) fn placement(mut self, placement: Placement) -> Setup {
        self.builder.placement(placement);
        self.on_simulated.placement = placement;
        self
    }

    pub(crate) fn limits(mut self, set: impl FnOnce(&mut Limits)) -> Setup {
        set(&mut self.limits);
        self
    }

    /// Sets what only loops on this machine have.
    pub(crate) fn tune(mut self, set: impl FnOnce(&mut Builder)) -> Setup {
        set(&mut self.builder);
        self
    }

    /// Listens at an endpoint.
    pub(crate) fn at(mut self, at: impl Into<Endpoint>) -> Setup {
        let at = at.into();
        self.on_simulated.at.push(at.clone());
        self.listen(Listen::at(at))
    }

    /// Asks a script for names of hosts.
    pub(crate) fn names(mut self, names: &ScriptedNames) -> Setup {
        self.builder.resolver(names.clone());
        self.on_simulated.names = Some(names.clone());
        self
    }

    pub(crate) fn admission(mut self, admission: Admission) -> Setup {
        self.builder.admission(admission.clone());
        self.on_simulated.admission = Some(admission);
        self
    }

    /// Listens so, on this machine, instead of on any port of 127.0.0.1.
    pub(crate) fn listen(mut self, listen: Listen) -> Setup {
        self.listens.push(listen);
        self
    }

    /// Small kernel buffers on the server's side, so that full pipes need little data.
    pub(crate) fn small_buffers(mut self) -> Setup {
        self.on_simulated.kernel_buffers = Some(32 << 10);
        let options = TcpOptions {
            send_buffer: Some(32 << 10),
            receive_buffer: Some(32 << 10),
            ..TcpOptions::default()
        };
        self.listen(Listen::at(([127, 0, 0, 1], 0)).options(options))
    }

    /// On a simulated network: kernel buffers that take as much without a pause as Linux's.
    pub(crate) fn large_buffers(mut self) -> Setup {
        self.on_simulated.kernel_buffers = Some(4 << 20);
        self
    }

    /// Keeps a handle to every connection and loop in the record. Otherwise no thread can reach
    /// them, which is a path of its own in the threads engine.
    pub(crate) fn reachable(mut self) -> Setup {
        self.keep_handles = true;
        self
    }

    pub(crate) fn woken(
        mut self,
        f: impl Fn(&mut OnLoop, &mut Conns<'_, Probe>) + Send + Sync + 'static,
    ) -> Setup {
        self.woken = Some(Box::new(f));
        self
    }

    pub(crate) fn start<R: Role>(self, make: impl Fn() -> R + Send + Sync + 'static) -> Server {
        self.start_with(move |_| Ok(Box::new(make())))
    }

    pub(crate) fn start_with(
        self,
        make: impl Fn(&Peer) -> Result<Box<dyn Role>, Refusal> + Send + Sync + 'static,
    ) -> Server {
        let record = Arc::new(Record::default());
        let probes = Probes {
            record: record.clone(),
            make: Box::new(make),
            woken: self.woken,
            keep_handles: self.keep_handles,
        };
        let loops = match world::is_simulated() {
            true => Loops::Simulated(self.on_simulated.start(probes, self.limits)),
            false => {
                let mut listens = self.listens;
                if listens.is_empty() {
                    listens.push(Listen::at(([127, 0, 0, 1], 0)));
                }
                let real = Real::start(self.builder, probes, self.limits, listens);
                Loops::Real(Box::new(real))
            }
        };
        let loops = Some(loops);
        Server { loops, record }
    }
}

/// A server under test. Dropping it stops it at once; [`Server::stop`] also checks the contracts.
pub(crate) struct Server {
    loops: Option<Loops<Probes>>,
    pub(crate) record: Arc<Record>,
}

impl Server {
    fn loops(&self) -> &Loops<Probes> {
        self.loops.as_ref().expect("they run until it is stopped")
    }

    /// The loops, in cases that are about loops of this machine.
    pub(crate) fn running(&self) -> &Running {
        match self.loops() {
            Loops::Real(real) => &real.running,
            Loops::Simulated(_) => panic!("the case is about loops of this machine"),
        }
    }

    pub(crate) fn addrs(&self) -> Vec<Endpoint> {
        self.loops().addrs()
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.loops().addr()
    }

    pub(crate) fn connect(&self) -> Client {
        self.loops().connect()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.loops().counters()
    }

    pub(crate) fn dial(&self, dial: Dial) {
        self.loops().dial(dial);
    }

    pub(crate) fn try_dial(&self, dial: Dial) -> Result<(), NotDialled> {
        self.loops().try_dial(dial)
    }

    pub(crate) fn stopper(&self) -> Stopper {
        self.loops().stopper()
    }

    /// On a simulated kernel: keeps the loops from going on until what is returned is dropped.
    pub(crate) fn hold(&self) -> Option<Hold> {
        self.loops().hold()
    }

    /// Waits until a counter is as wanted.
    pub(crate) fn until(&self, what: &str, mut done: impl FnMut(&Counters) -> bool) {
        self.record.until(what, |_| done(&self.counters()));
    }

    /// A graceful stop with a generous deadline, and the contracts checked.
    pub(crate) fn stop(self) -> Counters {
        self.stop_within(Duration::from_secs(10))
    }

    pub(crate) fn stop_within(self, deadline: Duration) -> Counters {
        self.end(|loops| loops.stop(deadline))
    }

    /// Leaves clients that wait to be accepted to a successor, and checks the contracts.
    pub(crate) fn hand_over(self) -> Counters {
        self.end(|loops| match loops {
            Loops::Real(real) => real.running.hand_over(Duration::from_secs(10)).wait(),
            Loops::Simulated(_) => panic!("the case is about sockets of this machine"),
        })
    }

    fn end(mut self, how: impl FnOnce(Loops<Probes>) -> Counters) -> Counters {
        let counters = how(self.loops.take().expect("stopped once"));
        self.record.check();
        assert_eq!(counters.open, 0, "nothing is open after a stop: {counters}");
        assert_eq!(counters.closed_total(), self.record.lock().closed());
        counters
    }

    /// Cuts everything, and checks the contracts.
    pub(crate) fn cut(self) -> Counters {
        self.stop_within(Duration::ZERO)
    }

    /// A graceful stop without the checks, to be followed by some of the case's own.
    pub(crate) fn into_parts(mut self) -> (Running, Arc<Record>) {
        match self.loops.take() {
            Some(Loops::Real(real)) => (real.running, self.record.clone()),
            _ => panic!("the case is about loops of this machine"),
        }
    }
}
