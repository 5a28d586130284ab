//! What the examples share: reading `--engine NAME` and `--self-test`, and waiting for Ctrl-C.

use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire::{Builder, EngineChoice, Listen, Running, Service, ServiceId};

/// What was asked for on the command line.
pub(crate) struct Args {
    pub(crate) engine: EngineChoice,
    pub(crate) loops: usize,
    /// Run against a client in this process, then exit: 0 if all went well.
    pub(crate) self_test: bool,
}

/// Reads the command line; explains itself and exits if it does not understand.
pub(crate) fn args() -> Args {
    let mut args = Args {
        engine: EngineChoice::Auto,
        loops: 1,
        self_test: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let understood = match word.as_str() {
            "--self-test" => {
                args.self_test = true;
                true
            }
            "--engine" => words
                .next()
                .and_then(|w| w.parse().ok())
                .map(|e| args.engine = e)
                .is_some(),
            "--loops" => words
                .next()
                .and_then(|w| w.parse().ok())
                .map(|n| args.loops = n)
                .is_some(),
            _ => false,
        };
        if !understood {
            eprintln!("usage: [--engine threads|epoll|uring|auto] [--loops N] [--self-test]");
            std::process::exit(2);
        }
    }
    args
}

/// Starts one service on a free port of 127.0.0.1 and says where.
#[allow(dead_code)]
pub(crate) fn start<S: Service>(args: &Args, service: S) -> (Running, ServiceId<S>) {
    let mut builder = Builder::new();
    builder.engine(args.engine).loops(args.loops);
    let id = builder.service(service);
    builder.listen(id, Listen::at(([127, 0, 0, 1], 0)));
    let running = builder.start().unwrap_or_else(|e| {
        eprintln!("{e}");
        std::process::exit(1);
    });
    println!(
        "listening on {} by {}",
        running.addrs()[0],
        running.engine()
    );
    (running, id)
}

/// Serves until SIGINT or SIGTERM (in a self-test, not at all), then stops in order.
#[allow(dead_code)]
pub(crate) fn end(args: &Args, running: Running) {
    if !args.self_test {
        let mut signals = Signals::new([SIGINT, SIGTERM]).expect("catch signals");
        signals.forever().next();
    }
    println!("{}", running.stop(Duration::from_secs(5)));
}
