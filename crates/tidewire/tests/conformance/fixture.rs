//! The server under test: [`Probes`] on a set of loops, with what a case wants different.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire::{
    Builder, Conns, Counters, Dial, Limits, Listen, NotDialled, Peer, Refusal, Running, ServiceId,
    TcpOptions,
};

use crate::client::Client;
use crate::probe::{OnLoop, Probe, Probes, Role, Woken};
use crate::record::Record;
use crate::variant::Variant;

/// A server to be.
pub(crate) struct Setup {
    pub(crate) builder: Builder,
    limits: Limits,
    listens: Vec<Listen>,
    woken: Option<Woken>,
    keep_handles: bool,
}

impl Setup {
    pub(crate) fn on(variant: Variant) -> Setup {
        Setup {
            builder: variant.builder(),
            limits: Limits::default(),
            listens: Vec::new(),
            woken: None,
            keep_handles: false,
        }
    }

    pub(crate) fn limits(mut self, set: impl FnOnce(&mut Limits)) -> Setup {
        set(&mut self.limits);
        self
    }

    pub(crate) fn tune(mut self, set: impl FnOnce(&mut Builder)) -> Setup {
        set(&mut self.builder);
        self
    }

    /// Listens here instead of on any port of 127.0.0.1.
    pub(crate) fn listen(mut self, listen: Listen) -> Setup {
        self.listens.push(listen);
        self
    }

    /// Small kernel buffers on the server's side, so that full pipes need little data.
    pub(crate) fn small_buffers(self) -> Setup {
        let options = TcpOptions {
            send_buffer: Some(32 << 10),
            receive_buffer: Some(32 << 10),
            ..TcpOptions::default()
        };
        self.listen(Listen::at(([127, 0, 0, 1], 0)).options(options))
    }

    /// Keeps a handle to every connection and loop in the record. Otherwise nobody can reach them,
    /// which is a path of its own in the threads engine.
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
        let mut builder = self.builder;
        let probes = Probes {
            record: record.clone(),
            make: Box::new(make),
            woken: self.woken,
            keep_handles: self.keep_handles,
        };
        let service = builder.service_with(probes, self.limits);
        let mut listens = self.listens;
        if listens.is_empty() {
            listens.push(Listen::at(([127, 0, 0, 1], 0)));
        }
        for listen in listens {
            builder.listen(service, listen);
        }
        let running = builder.start().expect("the server starts");
        Server {
            running: Some(running),
            service,
            record,
        }
    }
}

/// A server under test. Dropping it stops it at once; [`Server::stop`] also checks the contracts.
pub(crate) struct Server {
    running: Option<Running>,
    service: ServiceId<Probes>,
    pub(crate) record: Arc<Record>,
}

impl Server {
    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().expect("runs until it is stopped")
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.running().addrs()[0].tcp().expect("a TCP listener")
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.addr())
    }

    pub(crate) fn counters(&self) -> Counters {
        self.running().counters()
    }

    pub(crate) fn dial(&self, dial: Dial) {
        let dialled = self.running().dial(self.service, dial);
        dialled.expect("room for a dial");
    }

    pub(crate) fn try_dial(&self, dial: Dial) -> Result<(), NotDialled> {
        self.running().dial(self.service, dial)
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
        self.end(|running| running.stop(deadline))
    }

    /// Leaves who waits to be accepted to a successor, and checks the contracts.
    pub(crate) fn hand_over(self) -> Counters {
        self.end(|running| running.hand_over(Duration::from_secs(10)).wait())
    }

    fn end(mut self, how: impl FnOnce(Running) -> Counters) -> Counters {
        let counters = how(self.running.take().expect("stopped once"));
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
        (
            self.running.take().expect("stopped once"),
            self.record.clone(),
        )
    }
}
