//! The engines: choosing one, and running one loop of it.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::driver::completion as uring;
use crate::driver::readiness::epoll::Epoll;
use crate::driver::readiness::sockets::Sockets;
use crate::kernel::clock::Clock;
use crate::kernel::linux::Linux;
use crate::kernel::uring::{self as kernel, Sizes, Uring};
use crate::reach::waker::Waker;
use crate::reactor::Reactor;
use crate::reactor::core::Core;
use crate::reactor::counters::LoopCounters;
use crate::reactor::driver::Driver;
use crate::reactor::life::Life;
use crate::reactor::random::Rng;
use crate::reactor::setup::LoopSetup;

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
#[non_exhaustive]
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
#[non_exhaustive]
pub enum EngineChoice {
    /// [`Engine::Threads`].
    Threads,
    /// [`Engine::Epoll`].
    Epoll,
    /// [`Engine::Uring`]; starting fails where io_uring does not work.
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

/// Runs one loop on the calling thread until it is stopped. `ready` is told when the loop is set
/// up, or why it cannot be set up; a later failure is the result.
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
        Engine::Uring => run_uring(Sizes::default(), setup, waker, counters, ready),
        Engine::Epoll => {
            let core = core(&setup, &waker, counters);
            let driver =
                Epoll::new(Linux).map(|poller| Sockets::new(poller, setup.dial_options.clone()));
            run_if(
                driver.and_then(|driver| Reactor::new(driver, core, setup, waker)),
                ready,
            )
        }
    }
}

/// Runs the loop on a ring with queues of these sizes.
pub(crate) fn run_uring(
    sizes: Sizes,
    setup: LoopSetup,
    waker: Arc<Waker>,
    counters: Arc<LoopCounters>,
    ready: &Sender<io::Result<()>>,
) -> io::Result<()> {
    let mut ring = match kernel::build(sizes) {
        Ok(ring) => ring,
        Err(e) => return run_if::<uring::sockets::Sockets<Uring<'_>>>(Err(e), ready),
    };
    let core = core(&setup, &waker, counters);
    // The starter of a loop has probed before.
    let abilities = uring::Abilities {
        places: if setup.direct { table_limit() } else { 0 },
        ..uring::works().unwrap_or_default()
    };
    let driver = uring::driver(
        Uring::new(&mut ring),
        &core,
        setup.dial_options.clone(),
        abilities,
    );
    run_if(
        driver.and_then(|driver| Reactor::new(driver, core, setup, waker)),
        ready,
    )
}

fn run_if<D: Driver>(
    made: io::Result<Reactor<D>>,
    ready: &Sender<io::Result<()>>,
) -> io::Result<()> {
    match made {
        Ok(reactor) => {
            let _ = ready.send(Ok(()));
            reactor.run()
        }
        Err(e) => {
            let _ = ready.send(Err(e));
            Ok(())
        }
    }
}

/// Places that the kernel lets a table have.
fn table_limit() -> u32 {
    /// `IORING_MAX_FIXED_FILES`.
    const MOST: u64 = 1 << 20;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(MOST).min(MOST) as u32
}

/// The core of a loop on the system's clock.
pub(crate) fn core(setup: &LoopSetup, waker: &Arc<Waker>, counters: Arc<LoopCounters>) -> Core {
    setup.core(waker.clone(), counters, Clock::System, Rng::from_system())
}
