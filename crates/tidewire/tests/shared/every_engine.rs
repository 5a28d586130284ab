//! A server on every engine that works here, for the tests of crates that serve something on them.

use tidewire::{Builder, EngineChoice, Running, StartError};

/// Starts what `build` adds to two loops of each engine, and hands it to `f`, which stops it. Says which
/// engines are skipped.
pub(crate) fn on_every_engine(build: impl Fn(&mut Builder), f: impl Fn(Running)) {
    for engine in [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ] {
        let mut builder = Builder::new();
        builder.engine(engine).loops(2);
        build(&mut builder);
        match builder.start() {
            Ok(running) => f(running),
            Err(e @ StartError::Engine { .. }) => eprintln!("skipped: {e}"),
            Err(e) => panic!("{e}"),
        }
    }
}
