//! The engines and placements that every case runs on, and the simulated shapes.

use std::fmt;
use std::time::Duration;

use tidewire::sim::{Conditions, KernelFaults, Shape, Sim};
use tidewire::{Builder, EngineChoice, Placement, StartError};

use crate::world;

/// One engine, with its loops placed in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) engine: EngineChoice,
    pub(crate) placement: Placement,
    pub(crate) loops: usize,
    /// On a simulated kernel and network: the shape of its loop.
    simulated: Option<Shape>,
    /// Connections stand in the table of a ring.
    pub(crate) direct: bool,
}

const fn variant(
    name: &'static str,
    engine: EngineChoice,
    placement: Placement,
    loops: usize,
) -> Variant {
    Variant {
        name,
        engine,
        placement,
        loops,
        simulated: None,
        direct: false,
    }
}

/// One loop of this shape.
const fn simulated(name: &'static str, shape: Shape, engine: EngineChoice) -> Variant {
    Variant {
        simulated: Some(shape),
        ..variant(name, engine, Placement::Shared, 1)
    }
}

/// Two such loops, and one that accepts for them.
const fn handed_over(name: &'static str, shape: Shape, engine: EngineChoice) -> Variant {
    Variant {
        placement: Placement::Acceptor,
        loops: 2,
        ..simulated(name, shape, engine)
    }
}

pub(crate) const ALL: [Variant; 13] = [
    variant("threads", EngineChoice::Threads, Placement::Shared, 1),
    variant("epoll", EngineChoice::Epoll, Placement::Shared, 1),
    variant(
        "epoll-acceptor",
        EngineChoice::Epoll,
        Placement::Acceptor,
        2,
    ),
    variant("epoll-shared", EngineChoice::Epoll, Placement::Shared, 2),
    variant("uring", EngineChoice::Uring, Placement::Shared, 1),
    variant(
        "uring-acceptor",
        EngineChoice::Uring,
        Placement::Acceptor,
        2,
    ),
    variant("uring-shared", EngineChoice::Uring, Placement::Shared, 2),
    simulated("sim-readiness", Shape::Readiness, EngineChoice::Epoll),
    simulated("sim-completion", Shape::Completion, EngineChoice::Uring),
    simulated("sim-threads", Shape::Threads, EngineChoice::Threads),
    handed_over(
        "sim-readiness-acceptor",
        Shape::Readiness,
        EngineChoice::Epoll,
    ),
    handed_over(
        "sim-completion-acceptor",
        Shape::Completion,
        EngineChoice::Uring,
    ),
    Variant {
        direct: true,
        ..variant("uring-direct", EngineChoice::Uring, Placement::Shared, 2)
    },
];

impl Variant {
    /// A builder for this variant, of loops on this machine's kernel.
    ///
    /// # Panics
    /// In a simulated world: a case that has one there runs on the real kernel unnoticed.
    pub(crate) fn builder(self) -> Builder {
        assert!(
            !world::is_simulated(),
            "loops of this machine, in a simulated world"
        );
        self.settings()
    }

    /// What a builder is told; nothing is started by it in simulated worlds.
    pub(crate) fn settings(self) -> Builder {
        let mut builder = Builder::new();
        builder
            .engine(self.engine)
            .placement(self.placement)
            .loops(self.loops)
            .direct_descriptors(self.direct);
        builder
    }

    pub(crate) fn is_simulated(self) -> bool {
        self.simulated.is_some()
    }

    /// A simulated network for it.
    pub(crate) fn sim(self, seed: u64) -> Option<Sim> {
        let calm = Conditions::calm();
        // With the first seed everything is in one piece, as it mostly is on the loopback interface.
        let conditions = match seed {
            0 => calm,
            _ => Conditions {
                latency: Duration::from_micros(5)..=Duration::from_micros(100),
                segment_max: 1500,
                receive_max: 4000,
                accept_max: 20_000,
                kernel: KernelFaults::from_seed(seed),
                ..calm
            },
        };
        let mut sim = Sim::under(seed, conditions);
        sim.shape(self.simulated?);
        Some(sim)
    }

    pub(crate) fn is_threads(self) -> bool {
        self.engine == EngineChoice::Threads
    }

    /// Whether this is the plain form of its engine, for cases that placement cannot change.
    pub(crate) fn is_plain(self) -> bool {
        self.placement == Placement::Shared && self.loops == 1
    }

    /// Whether all connections live on one loop.
    pub(crate) fn is_one_loop(self) -> bool {
        self.is_plain() && !self.is_threads()
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Every variant, and whether its engine works on this machine.
pub(crate) fn working() -> Vec<(Variant, bool)> {
    let mut reported = None;
    ALL.into_iter()
        .map(|v| match v.builder().start() {
            _ if v.is_simulated() => (v, true),
            Ok(_) => (v, true),
            Err(e @ StartError::Engine { .. }) => {
                if reported != Some(v.engine) {
                    eprintln!("cases on {} are ignored: {e}", v.engine);
                    reported = Some(v.engine);
                }
                (v, false)
            }
            // Anything else is for the cases to fail on.
            Err(_) => (v, true),
        })
        .collect()
}
