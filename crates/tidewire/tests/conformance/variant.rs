//! The engines and placements that every case runs on.

use std::fmt;

use tidewire::{Builder, EngineChoice, Placement, StartError};

/// One engine, with its loops placed in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) engine: EngineChoice,
    pub(crate) placement: Placement,
    pub(crate) loops: usize,
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
    }
}

pub(crate) const ALL: [Variant; 7] = [
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
];

impl Variant {
    /// A builder for this variant.
    pub(crate) fn builder(self) -> Builder {
        let mut builder = Builder::new();
        builder
            .engine(self.engine)
            .placement(self.placement)
            .loops(self.loops);
        builder
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
