//! Building a set of loops, running them, stopping them.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::admission::Admission;
use crate::admission::door::Gate;
use crate::build::ending::{LoopFailed, Waiter};
use crate::build::engine::{self, Engine, EngineChoice, Resolved};
use crate::build::limits::{CHUNK, Limits};
use crate::build::listen::{Listen, TcpOptions};
use crate::build::observer::Observer;
use crate::build::relay::Acceptors;
use crate::build::socket_file::SocketFile;
use crate::build::threads::Spawner;
use crate::build::watch::{Board, Watch};
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::kernel::linux::Linux;
use crate::memory::budget::Memory;
use crate::protocol::service::Service;
use crate::reach::names::system::SystemResolver;
use crate::reach::names::{LOOKUPS, Names, Resolver};
use crate::reach::stop::StopClock;
use crate::reach::sync::{Mutex, lock};
use crate::reach::waker::{Command, INBOX, Stop, Unsent, Waker};
use crate::reactor::core::Plan;
use crate::reactor::counters::{Counters, LoopCounters};
use crate::reactor::host::{Hosted, host_of, name_of};
use crate::reactor::life::{Registered, Registry};
use crate::reactor::making::MakeShares;
use crate::reactor::receiving::ReceiveShares;
use crate::reactor::sending::SendShares;
use crate::reactor::setup::{self, Fleet, LoopSetup, Spread, Turn};
use crate::vocabulary::dial::{Dial, NotDialled};
use crate::vocabulary::endpoint::Endpoint;

/// How connections are spread over loops. The threads engine has a loop for each connection and
/// ignores it.
///
/// ```
/// use tidewire::{Builder, EngineChoice, Placement, on_input};
///
/// let running = Builder::new()
///     .engine(EngineChoice::Epoll)
///     .loops(2)
///     .placement(Placement::Acceptor)
///     .serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input)))
///     .start()?;
/// # Ok::<(), tidewire::StartError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// Each loop accepts for itself from a socket of its own (`SO_REUSEPORT`); the kernel spreads
    /// connections by a hash. If there is one loop, it does everything. The default.
    #[default]
    Shared,
    /// An additional loop accepts connections and hands them to the other loops in turn.
    Acceptor,
    /// One additional loop accepts and hands each connection to one of the loops with the fewest connections:
    /// for connections that live long, or whose lifetimes differ much.
    LeastConnections,
}

/// The placement's name, such as `least-connections`.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Placement::Shared => "shared",
            Placement::Acceptor => "acceptor",
            Placement::LeastConnections => "least-connections",
        })
    }
}

/// A service that a builder knows.
///
/// ```
/// use tidewire::{Builder, EngineChoice, on_input};
///
/// let mut builder = Builder::new();
/// let echo = builder.service(on_input(|input, link| link.forward_all(input)));
/// builder.listen(echo, "127.0.0.1:0");
/// builder.listen(echo, "[::1]:0");
/// # builder.engine(EngineChoice::Epoll);
/// # let _ = builder.start();
/// ```
pub struct ServiceId<S> {
    index: u16,
    of: PhantomData<fn() -> S>,
}

impl<S> Clone for ServiceId<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for ServiceId<S> {}
impl<S> fmt::Debug for ServiceId<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceId({})", self.index)
    }
}

/// Why loops could not be started.
///
/// ```
/// use tidewire::{Builder, EngineChoice, StartError, on_input};
///
/// let echo = || on_input(|input, link| link.forward_all(input));
/// let error = Builder::new().serve("localhost:http", echo()).start().unwrap_err();
/// assert!(matches!(error, StartError::Listen { .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address could not be bound.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address asked for.
        addr: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The engine asked for does not work here.
    #[error("the {engine} engine does not work here: {reason}")]
    Engine {
        /// The engine asked for.
        engine: Engine,
        /// The result of the probe, in words.
        reason: String,
    },
    /// Settings that cannot be meant.
    #[error("limits that cannot be meant: {0}")]
    Settings(String),
    /// A thread or a descriptor could not be made.
    #[error("cannot start a loop: {0}")]
    Loop(#[from] io::Error),
}

/// Puts together services, listeners and loops.
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Builder, EngineChoice, Listen};
/// # use tidewire::*;
/// # struct Echo;
/// # struct Conn;
/// # impl Protocol for Conn { type Local = (); type Message = ();
/// #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
/// #     let n = i.len(); cx.link.forward(i, n); Next::More } }
/// # impl Service for Echo { type Conn = Conn; fn on_loop(&self, _: LoopHandle<()>) {}
/// #   fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> { Ok(Conn) } }
/// let mut builder = Builder::new();
/// let echo = builder.service(Echo);
/// builder.listen(echo, Listen::at("127.0.0.1:0"));
/// builder.engine(EngineChoice::Epoll);
/// let running = builder.start()?;
/// println!("echo on {} by {}", running.addrs()[0], running.engine());
/// running.stop(Duration::from_secs(1));
/// # Ok::<(), StartError>(())
/// ```
pub struct Builder {
    engine: EngineChoice,
    placement: Placement,
    loops: usize,
    cpus: Vec<usize>,
    busy_poll: Duration,
    direct: bool,
    chunk: usize,
    buffers: usize,
    memory: Option<usize>,
    turn_output: usize,
    turn_send: usize,
    turn_receive: usize,
    inbox: usize,
    dial_options: TcpOptions,
    /// The resolver of names; without one, the system's.
    resolver: Option<Arc<dyn Resolver>>,
    lookups: usize,
    /// The first of the settings that cannot be meant.
    refused: Option<String>,
    hosts: Vec<Hosted>,
    /// Admissions of all services, or of one.
    admissions: Vec<(Option<u16>, Admission)>,
    names: Vec<Arc<str>>,
    watch: Option<Duration>,
    log_connections: bool,
    listens: Vec<(u16, Listen)>,
}

/// The range of [`Builder::turn_output`] and [`Builder::turn_send`], bytes. The lower bound is four shares of output
/// that does not count; the upper bound is more than any turn should take.
const TURN: RangeInclusive<usize> = 64 << 10..=1 << 30;

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Builder({:?}, {} loops, {:?})",
            self.engine, self.loops, self.listens
        )
    }
}

impl Builder {
    /// One loop, the best engine that works here.
    #[must_use]
    pub fn new() -> Builder {
        Builder {
            engine: EngineChoice::Auto,
            placement: Placement::Shared,
            loops: 1,
            cpus: Vec::new(),
            busy_poll: Duration::ZERO,
            direct: false,
            chunk: CHUNK,
            buffers: 128,
            memory: None,
            turn_output: MakeShares::ALL,
            turn_send: SendShares::ALL,
            turn_receive: ReceiveShares::ALL,
            inbox: INBOX,
            dial_options: TcpOptions::default(),
            resolver: None,
            lookups: LOOKUPS,
            refused: None,
            hosts: Vec::new(),
            admissions: Vec::new(),
            names: Vec::new(),
            watch: None,
            log_connections: false,
            listens: Vec::new(),
        }
    }

    /// Chooses the engine of the loops. Default [`EngineChoice::Auto`].
    pub fn engine(&mut self, engine: EngineChoice) -> &mut Builder {
        self.engine = engine;
        self
    }

    /// How connections are spread over loops.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Builder, EngineChoice, Placement, TcpOptions, on_input};
    ///
    /// let mut options = TcpOptions::default();
    /// options.send_buffer = Some(64 << 10);
    /// let mut builder = Builder::new();
    /// builder
    ///     .engine(EngineChoice::Epoll)
    ///     .placement(Placement::LeastConnections)
    ///     .loops(2)
    ///     .cpus(&[0]) // both on the first processor
    ///     .busy_poll(Duration::ZERO)
    ///     .direct_descriptors(false)
    ///     .chunk(16 << 10)
    ///     .buffers(32)
    ///     .memory(256 << 20)
    ///     .turn_output(128 << 10)
    ///     .turn_send(512 << 10)
    ///     .turn_receive(2 << 20)
    ///     .inbox(1000)
    ///     .dial_options(options)
    ///     .watch(Duration::from_millis(100));
    /// let running = builder.serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input))).start()?;
    /// assert_eq!(running.observer().memory_max(), 256 << 20);
    /// # Ok::<(), tidewire::StartError>(())
    /// ```
    pub fn placement(&mut self, placement: Placement) -> &mut Builder {
        self.placement = placement;
        self
    }

    /// How many loops carry connections, at least 1. Default 1.
    pub fn loops(&mut self, n: usize) -> &mut Builder {
        self.loops = n.max(1);
        self
    }

    /// Pins loop `i` to processor `cpus[i % cpus.len()]`; with the threads engine, connection `i`.
    /// Empty, the default, pins nothing.
    pub fn cpus(&mut self, cpus: &[usize]) -> &mut Builder {
        self.cpus = cpus.to_vec();
        self
    }

    /// Longest time to poll without blocking before a loop goes to sleep. Spares the cost of
    /// waking the processor when the next event is near, and burns the processor meanwhile;
    /// backs off while it does not pay. Default zero: off.
    pub fn busy_poll(&mut self, most: Duration) -> &mut Builder {
        self.busy_poll = most;
        self
    }

    /// On io_uring, keeps the sockets of connections in a table of each loop's ring instead of
    /// among the descriptors of the process, so that their number is not limited by `RLIMIT_NOFILE`
    /// for the process but for each loop. A connection needs a descriptor only while it is accepted
    /// or established, and for moments at its end: leave room for some hundreds. Connections that
    /// the table has no place for keep their descriptors. The other engines ignore the setting;
    /// starting fails before Linux 6.8. Default false.
    pub fn direct_descriptors(&mut self, on: bool) -> &mut Builder {
        self.direct = on;
        self
    }

    /// Largest number of new bytes in one call of `received`, on every engine. 1 KiB to 1 MiB, default 68 KiB
    /// ([`CHUNK`]). Make the buffer longer than most messages: a message of exactly this length costs epoll and the
    /// threads engine a second receive, which finds no bytes.
    pub fn chunk(&mut self, bytes: usize) -> &mut Builder {
        self.chunk = bytes.clamp(1 << 10, 1 << 20);
        self
    }

    /// Memory that all connections of these loops may hold together in queued output, carried input and
    /// [taken chunks](crate::Input::take), including protocols inside layers; bytes, at least 1
    /// MiB. Default: half of the machine's memory, or of what the control group may use.
    ///
    /// When three quarters of the limit are used, connections that hold more than 16 KiB are not
    /// read from until they hold less or the shortage is over (counted as `memory_pauses`). When
    /// seven eighths are used, new connections are refused with
    /// [`Refusal::MemoryLimit`](crate::Refusal::MemoryLimit), and attempts to connect fail (counted
    /// as `dials_refused`; a [dial](crate::Dial) retries as usual). Beyond the limit, the
    /// connections that hold most, of all loops, are closed with
    /// [`Closed::MemoryLimit`](crate::Closed::MemoryLimit). The connection that holds most is also
    /// closed when memory has been short for half a minute and no connection has given any back. A
    /// warning is logged, at most once a second. Receive buffers ([`buffers`](Builder::buffers))
    /// and what protocols allocate by themselves do not count.
    ///
    /// Output counts until it has left: a piece of more than 64 KiB as a whole, until its last byte has (see
    /// [`Limits::output_low`]). A chunk counts for the connection that took the chunk, until it is dropped or
    /// written. If a chunk is dropped while nothing happens on its connection, the count is corrected only when
    /// memory is short.
    pub fn memory(&mut self, bytes: usize) -> &mut Builder {
        self.memory = Some(bytes.max(1 << 20));
        self
    }

    /// The default of [`memory`](Builder::memory): half of the machine's memory, or of what the control group may use,
    /// and 1 GiB where neither is known; bytes.
    ///
    /// ```
    /// assert!(tidewire::Builder::memory_default() >= 1 << 20);
    /// ```
    #[must_use]
    pub fn memory_default() -> usize {
        crate::memory::budget::default_limit()
    }

    /// Receive buffers of one chunk for each loop, 2 to 2048, default 128. Memory that no receive
    /// has touched is not used. When all are taken, receiving waits until one returns. The threads
    /// engine makes 4 for each connection.
    pub fn buffers(&mut self, n: usize) -> &mut Builder {
        self.buffers = n.clamp(2, 2048);
        self
    }

    /// Output that one loop makes in a turn, for all its connections together, before the loop
    /// reads from other connections; bytes, 64 KiB to 1 GiB, default 256 KiB. A lower value lets
    /// connections with small replies wait less for connections with large replies, and makes large
    /// replies take more turns.
    ///
    /// While no connection waits, each is answered at once. When the budget is used up, only
    /// connections whose last share of output was small go on. The other connections wait (counted
    /// as `turn_pauses`); each gets a quarter of the budget at a time, and the connection that has
    /// had least comes first. A reply that is made in one piece is made whole. Queued output of up
    /// to 16 KiB for each connection does not count, nor does output that is no longer than the
    /// input that it answers. A connection that has waited for a second is logged at warn, at most
    /// once in ten seconds.
    pub fn turn_output(&mut self, bytes: usize) -> &mut Builder {
        self.turn_output = bytes.clamp(*TURN.start(), *TURN.end());
        self
    }

    /// Output that one loop hands to the kernel in a turn, for all its connections together; bytes,
    /// 64 KiB to 1 GiB, default 1 MiB. Up to 16 KiB of a connection's output is sent at once and
    /// does not count. A connection with more output waits while other connections wait too
    /// (counted as `send_pauses`), first come, first served; each gets a quarter of the budget at a
    /// time, 64 KiB at least. A share is never cut, so that a reply is sent in one piece. A share
    /// may exceed the budget of its turn; the next turns then send less by the excess. A connection
    /// that has waited for a second is logged at warn, at most once in ten seconds.
    pub fn turn_send(&mut self, bytes: usize) -> &mut Builder {
        self.turn_send = bytes.clamp(*TURN.start(), *TURN.end());
        self
    }

    /// Input that one loop takes in a turn when more than 16 connections have input; bytes, 64 KiB to 1 GiB, default 4 MiB. All
    /// these connections get equal parts of the budget in each turn, at least one chunk; further input waits for the next turns
    /// (counted as `receive_pauses`). Only the epoll engine needs this limit: io_uring has received into its
    /// [`buffers`](Builder::buffers) before the turn, and the threads engine has one connection a loop.
    pub fn turn_receive(&mut self, bytes: usize) -> &mut Builder {
        self.turn_receive = bytes.clamp(*TURN.start(), *TURN.end());
        self
    }

    /// Commands that may wait for one loop, at least 1: connections that an acceptor hands over, and
    /// dials. An acceptor that finds all loops full stops accepting until one has room (counted as
    /// `accept_pauses`, and logged); a dial comes back (counted as `dials_refused`). Default 16,384.
    pub fn inbox(&mut self, n: usize) -> &mut Builder {
        self.inbox = n.max(1);
        self
    }

    /// TCP options of outgoing connections.
    pub fn dial_options(&mut self, options: TcpOptions) -> &mut Builder {
        self.dial_options = options;
        self
    }

    /// Sets what [dials](crate::Dial) to hosts ask for addresses. Default: the [system](SystemResolver).
    ///
    /// ```
    /// use tidewire::sim::ScriptedNames;
    /// use tidewire::Builder;
    ///
    /// // A test of this machine's sockets that says itself where the servers are.
    /// let names = ScriptedNames::default();
    /// names.know("store.internal", [[127, 0, 0, 1].into()]);
    /// let mut builder = Builder::new();
    /// builder.resolver(names).lookups(16);
    /// ```
    pub fn resolver(&mut self, resolver: impl Resolver) -> &mut Builder {
        self.resolver = Some(Arc::new(resolver));
        self
    }

    /// Names that may be looked up at once, over all loops; dials to one more fail (counted as `lookups_refused`, and
    /// logged) and are tried again as they say. Dials that ask for a name on its way wait with the first: see
    /// [`Limits::dials`]. Default 1,024.
    pub fn lookups(&mut self, n: usize) -> &mut Builder {
        self.lookups = n;
        self
    }

    /// Adds a service with default limits.
    pub fn service<S: Service>(&mut self, service: S) -> ServiceId<S> {
        self.service_with(service, Limits::default())
    }

    /// Adds a service.
    ///
    /// Limits that cannot be meant, such as a hard output limit below the high mark, are an error of
    /// [`start`](Builder::start).
    ///
    /// # Panics
    /// Panics at the 65,537th service.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Builder, EngineChoice, Limits, on_input};
    ///
    /// let limits = Limits { connections: 100, idle: Some(Duration::from_secs(10)), ..Limits::default() };
    /// let mut builder = Builder::new();
    /// let echo = builder.service_with(on_input(|input, link| link.forward_all(input)), limits);
    /// builder.name(echo, "echo").engine(EngineChoice::Epoll).listen(echo, "127.0.0.1:0");
    /// let running = builder.start()?;
    /// assert_eq!(&*running.observer().services()[0], "echo");
    /// # Ok::<(), tidewire::StartError>(())
    /// ```
    pub fn service_with<S: Service>(&mut self, service: S, limits: Limits) -> ServiceId<S> {
        if let Err(why) = limits.check() {
            self.refused.get_or_insert(why);
        }
        let index = u16::try_from(self.hosts.len()).expect("at most 65,536 services");
        self.hosts.push(host_of(service, limits));
        self.names.push(name_of::<S>().into());
        ServiceId {
            index,
            of: PhantomData,
        }
    }

    /// Names a service in log lines and for [`Observer::services`]. Default: the name of the service's type.
    pub fn name<S: Service>(&mut self, service: ServiceId<S>, name: &str) -> &mut Builder {
        self.names[usize::from(service.index)] = name.into();
        self
    }

    /// Watches the loops from a separate thread: a loop that stays in one turn for longer than `threshold` is
    /// stuck, mostly in a callback. A stuck loop is logged at warn, with the service and the callback, and
    /// counted ([`Observer::stalls`]). The thread also measures, four times a second, how late the loops answer
    /// ([`LoopView::lag`](crate::LoopView)). By default the loops are not watched.
    ///
    /// Panics if the threshold is below 5 ms. A stall is seen up to a quarter of the threshold late, and up to 5 ms
    /// if that is more. Threads of single connections are watched and not asked.
    pub fn watch(&mut self, threshold: Duration) -> &mut Builder {
        if threshold < Duration::from_millis(5) {
            let why = format!("a loop is not stuck after {threshold:?}: 5 ms or more");
            self.refused.get_or_insert(why);
        }
        self.watch = Some(threshold);
        self
    }

    /// Logs a line for each connection when it is closed, with its service, peer, reason, bytes and seconds, at info
    /// under the target `tidewire::connection`; at debug also one when it is opened. If a filter hides that target
    /// when a connection is opened, the line costs next to nothing. Default: no such lines.
    ///
    /// ```
    /// use tidewire::{Builder, EngineChoice, on_input};
    ///
    /// let mut builder = Builder::new();
    /// builder.log_connections(true).engine(EngineChoice::Epoll);
    /// let running = builder.serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input))).start()?;
    /// // level=info target=tidewire::connection message="connection closed" service=... peer=127.0.0.1:40404
    /// // reason=finished received=5 sent=5 seconds=0.0012
    /// # Ok::<(), tidewire::StartError>(())
    /// ```
    pub fn log_connections(&mut self, on: bool) -> &mut Builder {
        self.log_connections = on;
        self
    }

    /// Applies these rules of admission to all services together. May be called several times; a
    /// connection passes all rules.
    ///
    /// ```
    /// use tidewire::admission::{Admission, Rules};
    /// use tidewire::{Builder, EngineChoice, on_input};
    ///
    /// let rules = Rules {
    ///     per_address: Some(100),
    ///     rate: Some("1000/s".parse()?),
    ///     deny: vec!["192.0.2.0/24".parse()?],
    ///     ..Rules::default()
    /// };
    /// let mut builder = Builder::new();
    /// builder.admission(Admission::new(rules)).engine(EngineChoice::Epoll);
    /// let running = builder.serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input))).start()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn admission(&mut self, admission: Admission) -> &mut Builder {
        self.add_admission(None, admission)
    }

    /// Applies rules of admission to one service.
    ///
    /// ```
    /// use tidewire::admission::{Admission, Rules};
    /// use tidewire::{Builder, EngineChoice, on_input};
    ///
    /// let mut builder = Builder::new();
    /// let open = builder.service(on_input(|input, link| link.forward_all(input)));
    /// let few = builder.service(on_input(|input, link| link.forward_all(input)));
    /// builder.listen(open, "127.0.0.1:0");
    /// builder.listen(few, "127.0.0.1:0");
    /// builder.admission_of(few, Admission::new(Rules { per_address: Some(2), ..Rules::default() }));
    /// let running = builder.engine(EngineChoice::Epoll).start()?;
    /// # Ok::<(), tidewire::StartError>(())
    /// ```
    pub fn admission_of<S: Service>(
        &mut self,
        service: ServiceId<S>,
        admission: Admission,
    ) -> &mut Builder {
        self.add_admission(Some(service.index), admission)
    }

    fn add_admission(&mut self, service: Option<u16>, admission: Admission) -> &mut Builder {
        self.check_admission(&admission);
        self.admissions.push((service, admission));
        self
    }

    fn check_admission(&mut self, admission: &Admission) {
        if let Err(why) = admission.rules().check() {
            self.refused.get_or_insert(why);
        }
    }

    /// The services, with what stands in their way: rules of their listeners, their own, rules of
    /// all.
    fn behind_doors(&self) -> Vec<Hosted> {
        let gates_of = |service: u16| -> Vec<Gate> {
            let listens = self.listens.iter().enumerate();
            let own = listens.filter(|(_, (of, _))| *of == service);
            let own = own.filter_map(|(number, (_, listen))| {
                Some((Some(number as u32), listen.gate()?.clone()))
            });
            let of = |wanted: Option<u16>| {
                let admissions = self.admissions.iter().filter(move |(of, _)| *of == wanted);
                admissions.map(|(_, admission)| (None, admission.clone()))
            };
            own.chain(of(Some(service))).chain(of(None)).collect()
        };
        let hosts = self.hosts.iter().zip(&self.names).zip(0..);
        hosts
            .map(|((hosted, name), service)| hosted.behind(name.clone(), gates_of(service)))
            .collect()
    }

    /// Adds a listener for a service. Returns the number of the listener, from 0.
    pub fn listen<S: Service>(&mut self, service: ServiceId<S>, listen: impl Into<Listen>) -> u32 {
        let listen = listen.into();
        if let Some(gate) = listen.gate() {
            self.check_admission(&gate.clone());
        }
        self.listens.push((service.index, listen));
        self.listens.len() as u32 - 1
    }

    /// Adds a service with default limits and one listener.
    ///
    /// ```
    /// # fn main() -> Result<(), tidewire::StartError> {
    /// use tidewire::{Builder, EngineChoice, on_input};
    ///
    /// let running = Builder::new()
    ///     .engine(EngineChoice::Epoll)
    ///     .serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input)))
    ///     .start()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn serve<S: Service>(&mut self, at: impl Into<Listen>, service: S) -> &mut Builder {
        let service = self.service(service);
        self.listen(service, at);
        self
    }

    /// Binds the listeners and starts the loops. If an address is in use, binding is retried for about a second: the
    /// kernel frees the sockets of a killed io_uring process only a moment after the process is gone.
    ///
    /// # Errors
    /// See [`StartError`]; no loop keeps running then.
    pub fn start(&mut self) -> Result<Running, StartError> {
        let (mut running, left) = self.start_loops()?;
        // The files are not adopted earlier, because a predecessor that resumes service needs them. A
        // file that is already gone need not be removed.
        let adopted = left.iter().filter_map(|path| SocketFile::adopt(path).ok());
        running.files.extend(adopted);
        Ok(running)
    }

    /// Starts the loops; returns the socket files of a predecessor too.
    fn start_loops(&mut self) -> Result<(Running, Vec<PathBuf>), StartError> {
        if let Some(why) = &self.refused {
            return Err(StartError::Settings(why.clone()));
        }
        let Resolved { engine, reason } =
            engine::resolve(self.engine).map_err(|reason| StartError::Engine {
                engine: Engine::Uring,
                reason,
            })?;
        let handing_over = self.placement != Placement::Shared || engine == Engine::Threads;
        let copies = if handing_over { 1 } else { self.loops };
        let (mut addrs, mut files, mut listening) = (Vec::new(), Vec::new(), Vec::new());
        let mut left = Vec::new();
        let mut sockets: Vec<Vec<setup::Listener>> = (0..copies).map(|_| Vec::new()).collect();
        for (number, (service, listen)) in self.listens.iter().enumerate() {
            let bound = listen.bind(copies);
            let bound = bound.map_err(|source| StartError::Listen {
                addr: listen.wanted(),
                source,
            })?;
            addrs.push(bound.endpoint);
            files.extend(bound.file);
            left.extend(bound.left);
            for (i, socket) in bound.sockets.into_iter().enumerate() {
                let set = &mut sockets[i % copies];
                let socket = Arc::new(Descriptor::from(socket));
                listening.push((number as u32, Arc::downgrade(&socket)));
                set.push(setup::Listener {
                    socket,
                    service: *service,
                    number: number as u32,
                    is_private: bound.is_private,
                });
            }
        }
        let plan = Arc::new(Plan {
            throttles: Arc::default(),
            log_connections: self.log_connections,
            made: MakeShares::of(self.turn_output),
            shares: SendShares::of(self.turn_send),
            received: ReceiveShares::of(self.turn_receive),
            memory: Arc::new(self.memory.map_or_else(Memory::default, Memory::new)),
            hosts: self.behind_doors(),
            chunk: self.chunk,
            buffers: if engine == Engine::Threads {
                4
            } else {
                self.buffers
            },
        });
        let clock = Arc::<StopClock>::default();
        let mut running = Running {
            engine,
            reason,
            addrs,
            files,
            listening,
            acceptors: Vec::new(),
            loops: Vec::new(),
            accepting: Acceptors::default(),
            counters: Arc::default(),
            waiter: Waiter::of(clock.clone()),
            clock,
            next: AtomicUsize::new(0),
            services: self.names.clone().into(),
            memory: plan.memory.clone(),
            stalls: Arc::default(),
            watch: None,
            is_left_alone: false,
        };
        if let Some(threshold) = self.watch {
            let (loops, names) = (running.counters.clone(), running.services.clone());
            let watch = Watch::start(threshold, loops, names, running.stalls.clone())?;
            running.watch = Some(watch);
        }
        let system = || Arc::new(SystemResolver::default()) as Arc<dyn Resolver>;
        let resolver = self.resolver.clone().unwrap_or_else(system);
        let setup = LoopSetup {
            plan,
            dial_options: Arc::new(self.dial_options.clone()),
            names: Arc::new(Names::of(resolver, self.lookups)),
            busy_poll: self.busy_poll,
            direct: self.direct,
            clock: running.clock.clone(),
            registry: running.counters.clone(),
            inbox: self.inbox,
            listeners: Vec::new(),
            spread: Spread::Here,
            cpu: None,
        };
        let cpu = |i: usize| (!self.cpus.is_empty()).then(|| self.cpus[i % self.cpus.len()]);
        if engine == Engine::Threads {
            let threads = Spawner::new(setup.clone(), self.cpus.clone());
            let acceptor = LoopSetup {
                listeners: sockets.pop().unwrap_or_default(),
                spread: Spread::Threads(Arc::new(threads)),
                ..setup
            };
            running
                .acceptors
                .push(running.spawn(Engine::Epoll, "accept".into(), 0, acceptor)?);
            return Ok((running, left));
        }
        let own = if handing_over {
            Vec::new()
        } else {
            std::mem::take(&mut sockets)
        };
        let mut own = own.into_iter();
        for i in 0..self.loops {
            let listeners = own.next().unwrap_or_default();
            let setup = LoopSetup {
                listeners,
                cpu: cpu(i),
                ..setup.clone()
            };
            running
                .loops
                .push(running.spawn(engine, format!("loop-{i}"), i, setup)?);
        }
        if handing_over {
            let fleet = Fleet {
                loops: running.loops.iter().map(|l| l.waker.clone()).collect(),
                turn: match self.placement {
                    Placement::LeastConnections => Turn::LeastConnections,
                    Placement::Acceptor | Placement::Shared => Turn::Next,
                },
            };
            let setup = LoopSetup {
                listeners: sockets.pop().unwrap_or_default(),
                spread: Spread::Loops(fleet),
                ..setup
            };
            running
                .acceptors
                .push(running.spawn(engine, "accept".into(), self.loops, setup)?);
        }
        Ok((running, left))
    }
}

/// A listening socket of a running server, handed over by [`Running::listeners`].
///
/// ```
/// use tidewire::{Builder, EngineChoice, Listening, on_input};
///
/// let mut builder = Builder::new();
/// builder.engine(EngineChoice::Epoll);
/// let running = builder.serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input))).start()?;
/// let sockets: Vec<Listening> = running.listeners()?;
/// assert_eq!((sockets[0].number, &sockets[0].endpoint), (0, &running.addrs()[0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Listening {
    /// A duplicate of the listening socket.
    pub socket: OwnedFd,
    /// The address of the listening socket.
    pub endpoint: Endpoint,
    /// The number of the builder's `listen` call that made it; the call names the service. If loops
    /// accept for themselves, several sockets have one number.
    pub number: u32,
    /// The socket has a file that this server made, which a successor is to
    /// [remove](Listen::owning_file).
    pub owns_file: bool,
}

struct Thread {
    waker: Arc<Waker>,
    join: Option<JoinHandle<()>>,
}

/// Loops that run. Dropping the value stops the loops at once.
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Builder, EngineChoice, on_input};
///
/// let running = Builder::new()
///     .engine(EngineChoice::Epoll)
///     .serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input)))
///     .start()?;
/// assert_eq!(running.counters().open, 0);
/// let counters = running.stop(Duration::from_secs(1));
/// assert_eq!(counters.accepted, 0);
/// # Ok::<(), tidewire::StartError>(())
/// ```
pub struct Running {
    engine: Engine,
    reason: String,
    addrs: Vec<Endpoint>,
    /// Files of Unix sockets, removed when a stop begins.
    files: Vec<SocketFile>,
    /// The loops' listening sockets, with the numbers of the builder's `listen` calls.
    listening: Vec<(u32, Weak<Descriptor>)>,
    acceptors: Vec<Thread>,
    loops: Vec<Thread>,
    /// The acceptors whose end is the loops' cue to stop.
    accepting: Acceptors,
    counters: Arc<Mutex<Registry>>,
    clock: Arc<StopClock>,
    next: AtomicUsize,
    waiter: Waiter,
    services: Arc<[Arc<str>]>,
    memory: Arc<Memory>,
    stalls: Arc<Mutex<Board>>,
    watch: Option<Watch>,
    /// The server was stopped in a callback of its own, and its loops end without being waited for.
    is_left_alone: bool,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Running({}, {:?})", self.engine, self.addrs)
    }
}

impl Running {
    /// The engine that runs.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Why this engine was chosen.
    #[must_use]
    pub fn engine_reason(&self) -> &str {
        &self.reason
    }

    /// The endpoints listened on, in the order of the builder's `listen` calls.
    #[must_use]
    pub fn addrs(&self) -> &[Endpoint] {
        &self.addrs
    }

    /// Duplicates of the listening sockets, for a successor to [inherit](Listen::inherited), in
    /// this process or another: both then share waiting and new connections. Once the successor has
    /// them, [`hand_over`](Running::hand_over) ends this server without a connection lost. If loops
    /// accept for themselves, each has a socket: the successor must inherit all of them, because
    /// connections in the queue of a missing one are lost.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Builder, Listen};
    /// # use tidewire::*;
    /// # struct Echo;
    /// # struct Conn;
    /// # impl Protocol for Conn { type Local = (); type Message = ();
    /// #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    /// #     let n = i.len(); cx.link.forward(i, n); Next::More } }
    /// # impl Service for Echo { type Conn = Conn; fn on_loop(&self, _: LoopHandle<()>) {}
    /// #   fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> { Ok(Conn) } }
    /// let mut builder = Builder::new();
    /// let echo = builder.service(Echo);
    /// builder.listen(echo, Listen::at("127.0.0.1:0"));
    /// let running = builder.start()?;
    ///
    /// let mut builder = Builder::new();
    /// let echo = builder.service(Echo);
    /// let sockets = running.listeners()?.into_iter().map(|listening| {
    ///     assert_eq!(listening.number, 0);
    ///     listening.socket
    /// });
    /// builder.listen(echo, Listen::inherited_group(sockets));
    /// let successor = builder.start()?;
    /// assert_eq!(successor.addrs(), running.addrs());
    /// running.hand_over(Duration::from_secs(1)).wait();
    /// # successor.stop(Duration::from_secs(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listeners(&self) -> io::Result<Vec<Listening>> {
        // A stop must do nothing to them from now on that would outlast it.
        self.clock.share();
        let open = self.listening.iter().filter_map(|(number, socket)| {
            let socket = socket.upgrade()?;
            Some(Linux::look(&socket).try_clone().map(|socket| Listening {
                socket,
                endpoint: self.addrs[*number as usize].clone(),
                number: *number,
                owns_file: self.owns_file_of(*number),
            }))
        });
        open.collect()
    }

    /// Says that no other process has the [duplicates](Running::listeners) any more, for example
    /// because a successor has died: a stop may again refuse new handshakes while it takes in
    /// connected clients.
    pub fn exclusive_again(&self) {
        self.clock.unshare();
    }

    fn owns_file_of(&self, number: u32) -> bool {
        let path = self.addrs[number as usize].path();
        path.is_some_and(|path| self.files.iter().any(|file| file.path() == path))
    }

    /// Has the loops look into the accept queues of their listeners now. A successor calls this
    /// when its predecessor has stopped accepting. The kernel wakes only one of two rings that wait
    /// at one socket, and does not wake the other ring when the first one stops waiting. Without
    /// this call, a client that connected at that moment would wait until the next client connects.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Builder, EngineChoice, Listen, on_input};
    ///
    /// let echo = || on_input(|input, link| link.forward_all(input));
    /// let start = |listen: Listen| Builder::new().engine(EngineChoice::Epoll).serve(listen, echo()).start();
    /// let old = start("127.0.0.1:0".into())?;
    ///
    /// // A successor that is asked whether it works, and does not.
    /// let sockets = old.listeners()?;
    /// drop(sockets);
    /// old.exclusive_again();
    ///
    /// // One that does, and takes over.
    /// let sockets = old.listeners()?.into_iter().map(|listening| listening.socket);
    /// let new = start(Listen::inherited_group(sockets))?;
    /// old.hand_over(Duration::from_secs(10)).wait();
    /// new.accept_waiting();
    /// assert!(std::net::TcpStream::connect(&new.addrs()[0]).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn accept_waiting(&self) {
        for thread in self.acceptors.iter().chain(&self.loops) {
            // An inbox without room belongs to a loop that is not asleep: it hears of new clients.
            let _ = thread.waker.send(Command::Look);
        }
    }

    /// The counters of all loops, at this moment.
    #[must_use]
    pub fn counters(&self) -> Counters {
        lock(&self.counters).sum()
    }

    /// An observer of the running loops, for any thread.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer {
            engine: self.engine,
            reason: self.reason.as_str().into(),
            services: self.services.clone(),
            registry: self.counters.clone(),
            memory: self.memory.clone(),
            stalls: self.stalls.clone(),
        }
    }

    /// Makes an outgoing connection of `service`, on the loops in turn. A dial that is taken here
    /// becomes a connection, or [`Service::dial_failed`] is called.
    ///
    /// # Errors
    /// See [`NotDialled`]; the dial comes back.
    ///
    /// ```
    /// use std::io::Write;
    /// use std::time::Duration;
    /// use tidewire::{Builder, Dial, EngineChoice, on_input};
    ///
    /// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let mut builder = Builder::new();
    /// let echo = builder.service(on_input(|input, link| link.forward_all(input)));
    /// let running = builder.engine(EngineChoice::Epoll).start()?;
    /// println!("by {}: {}", running.engine(), running.engine_reason());
    ///
    /// // From this address, in half a second from now, within three seconds.
    /// let dial = Dial::to(server.local_addr()?)
    ///     .from("127.0.0.1:0")
    ///     .after(Duration::from_millis(500))
    ///     .timeout(Duration::from_secs(3));
    /// running.dial(echo, dial)?;
    /// let (mut connection, _) = server.accept()?;
    /// connection.write_all(b"an echo that has called")?;
    ///
    /// // The end, from another thread.
    /// let (stopper, waiter) = (running.stopper(), running.waiter());
    /// let stopping = std::thread::spawn(move || stopper.stop_now());
    /// assert!(waiter.wait().is_ok());
    /// # stopping.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dial<S: Service>(&self, service: ServiceId<S>, dial: Dial) -> Result<(), NotDialled> {
        let n = self.next.fetch_add(1, Relaxed);
        let set = if self.loops.is_empty() {
            &self.acceptors
        } else {
            &self.loops
        };
        let mut command = Command::Dial {
            service: service.index,
            dial,
        };
        for i in 0..set.len() {
            command = match set[(n + i) % set.len()].waker.send(command) {
                Ok(()) => return Ok(()),
                // Perhaps another one lives.
                Err(Unsent::Ended(command)) if i + 1 < set.len() => *command,
                Err(unsent) => return Err(unsent.into_not_dialled()),
            };
        }
        unreachable!("there is at least one loop")
    }

    /// Blocks until all loops have ended because they were stopped, through a [`Stopper`] for
    /// example, or one has failed: a bug of the toolkit or of the system, after which connections
    /// are missing, and perhaps no loop accepts any more. The loops that are left go on;
    /// [`stop`](Running::stop) them.
    ///
    /// # Errors
    /// The first loop that failed, and why. In a callback of one of the loops, that this would wait for ever.
    pub fn wait(&self) -> Result<(), LoopFailed> {
        self.waiter.wait()
    }

    /// Waits for the end on another thread.
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        self.waiter.clone()
    }

    /// Lets another thread cut a graceful stop short.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper {
            wakers: self.wakers(),
            clock: self.clock.clone(),
        }
    }

    /// Removes the files of Unix sockets: later clients are told at once, instead of being taken in
    /// or dropped.
    pub(super) fn remove_files(&mut self) {
        self.files.clear();
    }

    /// Leaves clients that wait to be accepted to a successor, and the files of Unix sockets.
    pub(super) fn leave_to_successor(&mut self) {
        self.clock.succeed();
        self.files.drain(..).for_each(SocketFile::leave);
    }

    pub(super) fn begin_stop(&self, deadline: Duration) {
        self.clock.set(deadline);
        let acceptors = self.acceptors.iter().map(|t| &t.waker);
        self.accepting
            .stop(acceptors, self.loops.iter().map(|t| &t.waker));
    }

    /// Wakers of the loops that accept.
    pub(super) fn accepting_wakers(&self) -> Vec<Arc<Waker>> {
        let set = match self.acceptors.is_empty() {
            true => &self.loops,
            false => &self.acceptors,
        };
        set.iter().map(|thread| thread.waker.clone()).collect()
    }

    /// Whether no loop runs any more, once it is so or this time is over.
    pub(crate) fn has_ended(&self, most: Duration) -> bool {
        self.waiter.all_ended(most)
    }

    /// The clock of a stop: when it gives up, and which loops it waits for.
    pub(crate) fn clock(&self) -> &StopClock {
        &self.clock
    }

    /// Waits for the threads of the loops; in a callback of theirs, leaves them to end by themselves.
    pub(crate) fn join(&mut self) {
        if self.clock.is_here() {
            self.is_left_alone = true;
            return;
        }
        for thread in self.acceptors.iter_mut().chain(&mut self.loops) {
            thread.finish();
        }
    }

    fn wakers(&self) -> Vec<Arc<Waker>> {
        self.acceptors
            .iter()
            .chain(&self.loops)
            .map(|t| t.waker.clone())
            .collect()
    }

    fn spawn(
        &self,
        engine: Engine,
        name: String,
        number: usize,
        setup: LoopSetup,
    ) -> io::Result<Thread> {
        let waker = Waker::of_loop(number as u32).bounded(setup.inbox);
        let waker = Arc::new(waker);
        let counters = Arc::new(LoopCounters::default());
        lock(&self.counters).add(Registered {
            name: name.as_str().into(),
            counters: counters.clone(),
            waker: waker.clone(),
            is_passing: false,
        });
        // The loop reports whether it could be set up before any code relies on it.
        let (ready, readied) = std::sync::mpsc::channel();
        let theirs = waker.clone();
        let name = format!("tidewire-{name}");
        let waiter = self.waiter.clone();
        waiter.begin();
        let clock = self.clock.clone();
        let relay = self.accepting.relay(&waker, &setup.spread);
        let spawned = std::thread::Builder::new().name(name.clone()).spawn({
            let waiter = waiter.clone();
            move || {
                counters.activity.runs_here();
                clock.runs_here();
                waiter.run(&name, || {
                    engine::run(engine, setup, theirs.clone(), counters, &ready)
                });
                drop(relay);
            }
        });
        let join = match spawned {
            Ok(join) => join,
            Err(e) => {
                waiter.run("", || Ok(()));
                return Err(e);
            }
        };
        let thread = Thread {
            waker,
            join: Some(join),
        };
        readied
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the loop ended at once")))?;
        Ok(thread)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_left_alone {
            return;
        }
        self.stopper().stop_now();
        self.join();
    }
}

impl Thread {
    fn finish(&mut self) {
        if let Some(join) = self.join.take() {
            // The board shows how the loop ended.
            let _ = join.join();
        }
    }
}

/// Ends loops at once, from any thread.
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Builder, EngineChoice};
///
/// let running = Builder::new().engine(EngineChoice::Epoll).start()?;
/// let stopper = running.stopper();
/// // A thread with the stopper may cut a stop short that takes too long.
/// std::thread::spawn(move || stopper.stop_now());
/// running.stop(Duration::from_secs(60));
/// # Ok::<(), tidewire::StartError>(())
/// ```
#[derive(Clone)]
pub struct Stopper {
    wakers: Vec<Arc<Waker>>,
    clock: Arc<StopClock>,
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stopper({} loops)", self.wakers.len())
    }
}

impl Stopper {
    /// Cuts every connection and ends the loops.
    pub fn stop_now(&self) {
        self.clock.set(Duration::ZERO);
        for waker in &self.wakers {
            waker.stop(Stop::Now);
        }
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests;
