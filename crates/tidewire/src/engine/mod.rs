//! The engines: what runs loops of connections on the kernel's interfaces.
//!
//! [`ready`] serves two of them, which wait for *readiness*: a thread per connection on `poll`, and
//! reactors on `epoll`. `uring` waits for *completions*. What connections mean is in
//! [`core`](crate::core), for all of them alike.

pub(crate) mod accept;
pub(crate) mod busy;
pub(crate) mod connect;
pub(crate) mod epoll;
mod life;
pub(crate) mod poll;
pub(crate) mod ready;
#[cfg(test)]
mod tests;
pub(crate) mod threads;
pub(crate) mod uring;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::build::listen::TcpOptions;
use crate::reach::stop::StopClock;
use crate::reach::sync::Mutex;
use crate::reach::waker::Waker;
use crate::reactor::core::{Core, Plan};
use crate::reactor::counters::{Counters, LoopCounters};
use crate::reactor::random::Rng;
use crate::vocabulary::time::Clock;

pub(crate) use life::Life;
pub(crate) use threads::Spawner;

/// The engine that runs the loops.
///
/// ```
/// use tidewire::{Builder, Engine, EngineChoice};
///
/// let running = Builder::new().engine(EngineChoice::Epoll).start()?;
/// assert_eq!(running.engine(), Engine::Epoll);
/// # Ok::<(), tidewire::StartError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// One thread for each connection, waiting in `poll`.
    Threads,
    /// Reactors: loops that wait in `epoll` for many connections.
    Epoll,
    /// Loops that hand operations to io_uring and wait for completions.
    Uring,
}

/// The engine asked for.
///
/// ```
/// use tidewire::EngineChoice;
///
/// let choice: EngineChoice = "uring".parse()?;
/// assert_eq!(choice, EngineChoice::Uring);
/// assert!("steam".parse::<EngineChoice>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// [`Engine::Threads`].
    Threads,
    /// [`Engine::Epoll`].
    Epoll,
    /// [`Engine::Uring`]; starting fails where it does not work.
    Uring,
    /// io_uring where a probe shows that it works, else epoll.
    #[default]
    Auto,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::Threads => "threads",
            Engine::Epoll => "epoll",
            Engine::Uring => "uring",
        })
    }
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EngineChoice::Threads => "threads",
            EngineChoice::Epoll => "epoll",
            EngineChoice::Uring => "uring",
            EngineChoice::Auto => "auto",
        })
    }
}

impl FromStr for EngineChoice {
    type Err = String;

    fn from_str(s: &str) -> Result<EngineChoice, String> {
        match s {
            "threads" => Ok(EngineChoice::Threads),
            "epoll" => Ok(EngineChoice::Epoll),
            "uring" => Ok(EngineChoice::Uring),
            "auto" => Ok(EngineChoice::Auto),
            other => Err(format!(
                "no engine is called {other:?}: threads, epoll, uring or auto"
            )),
        }
    }
}

/// The engine that a choice comes to, and why.
pub(crate) struct Resolved {
    pub(crate) engine: Engine,
    pub(crate) reason: String,
}

/// Probes where that is called for; an error says why the choice does not work here.
pub(crate) fn resolve(choice: EngineChoice) -> Result<Resolved, String> {
    let asked = |engine| {
        Ok(Resolved {
            engine,
            reason: "asked for".into(),
        })
    };
    match choice {
        EngineChoice::Threads => asked(Engine::Threads),
        EngineChoice::Epoll => asked(Engine::Epoll),
        EngineChoice::Uring => uring::works().and_then(|_| asked(Engine::Uring)),
        EngineChoice::Auto => Ok(match uring::works() {
            Ok(_) => Resolved {
                engine: Engine::Uring,
                reason: "io_uring works here".into(),
            },
            Err(why) => Resolved {
                engine: Engine::Epoll,
                reason: format!("io_uring: {why}"),
            },
        }),
    }
}

/// A listening socket of one loop.
pub(crate) struct Listener {
    /// The loop's own, and closed by it. Others may look at it until then.
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) service: u16,
    pub(crate) number: u32,
}

/// Where a loop takes the connections that it accepts.
#[derive(Clone)]
pub(crate) enum Spread {
    /// It keeps them.
    Here,
    /// To these loops, in turn.
    Loops(Vec<Arc<Waker>>),
    /// To a new thread each.
    Threads(Spawner),
}

/// Everything that a loop is started with.
pub(crate) struct LoopSetup {
    pub(crate) plan: Arc<Plan>,
    pub(crate) dial_options: Arc<TcpOptions>,
    pub(crate) busy_poll: Duration,
    pub(crate) clock: Arc<StopClock>,
    pub(crate) registry: Arc<Mutex<Registry>>,
    /// Commands that may wait for one loop.
    pub(crate) inbox: usize,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) spread: Spread,
    pub(crate) cpu: Option<usize>,
}

/// All but the listeners, which only one loop can have.
impl Clone for LoopSetup {
    fn clone(&self) -> LoopSetup {
        LoopSetup {
            plan: self.plan.clone(),
            dial_options: self.dial_options.clone(),
            busy_poll: self.busy_poll,
            clock: self.clock.clone(),
            registry: self.registry.clone(),
            inbox: self.inbox,
            listeners: Vec::new(),
            spread: self.spread.clone(),
            cpu: self.cpu,
        }
    }
}

impl LoopSetup {
    /// The core of this loop, to be made on its own thread. A loop that only accepts for other loops
    /// hosts no services; one that accepts for threads does, because no other lasts, and a service's
    /// timer may dial there.
    pub(crate) fn core(&self, waker: Arc<Waker>, counters: Arc<LoopCounters>) -> Core {
        let rng = Rng::from_system();
        match self.spread {
            Spread::Here | Spread::Threads(_) => {
                Core::new(&self.plan, waker, counters, Clock::System, rng)
            }
            Spread::Loops(_) => {
                let plan = Plan {
                    hosts: Vec::new(),
                    chunk: 1 << 10,
                    buffers: 1,
                    refusals: self.plan.refusals.clone(),
                    memory: self.plan.memory.clone(),
                };
                Core::new(&plan, waker, counters, Clock::System, rng)
            }
        }
    }

    /// Pins the calling thread if that was asked for.
    pub(crate) fn pin(&self) {
        let Some(cpu) = self.cpu else { return };
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        if let Err(e) = rustix::thread::sched_setaffinity(None, &set) {
            tracing::warn!(cpu, error = %e, "cannot pin the loop; it runs unpinned");
        }
    }
}

/// The counters of all loops, those that have ended included.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    live: Vec<Arc<LoopCounters>>,
    ended: Counters,
}

impl Registry {
    pub(crate) fn add(&mut self, counters: Arc<LoopCounters>) {
        self.live.push(counters);
    }

    pub(crate) fn retire(&mut self, counters: &Arc<LoopCounters>) {
        if let Some(at) = self.live.iter().position(|c| Arc::ptr_eq(c, counters)) {
            self.live.swap_remove(at);
            self.ended.add(counters);
        }
    }

    /// Loops that have not ended.
    #[cfg(test)]
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn sum(&self) -> Counters {
        let mut sum = self.ended.clone();
        for counters in &self.live {
            sum.add(counters);
        }
        sum
    }
}

/// Runs one loop on the calling thread until it is stopped. Says through `ready` when it is set up,
/// or why it cannot be.
pub(crate) fn run(
    engine: Engine,
    setup: LoopSetup,
    waker: Arc<Waker>,
    counters: Arc<LoopCounters>,
    ready: &Sender<io::Result<()>>,
) -> io::Result<()> {
    let _life = Life {
        registry: setup.registry.clone(),
        counters: counters.clone(),
        waker: waker.clone(),
        heir: None,
    };
    setup.pin();
    match engine {
        Engine::Threads => unreachable!("threads are spawned by the acceptor"),
        Engine::Uring => uring::run(setup, waker, counters, ready),
        Engine::Epoll => {
            let made = epoll::Epoll::new()
                .and_then(|poller| ready::Reactor::new(poller, setup, waker, counters));
            match made {
                Ok(mut reactor) => {
                    let _ = ready.send(Ok(()));
                    reactor.run();
                }
                Err(e) => {
                    let _ = ready.send(Err(e));
                }
            }
            Ok(())
        }
    }
}
