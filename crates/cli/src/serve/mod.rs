//! `tidewire serve`: the ready servers in one process, on one set of loops.
//!
//! Settings come from flags and a file ([`args`]), are checked as a whole ([`settings`]), become
//! listeners ([`endpoint`], [`services`]), and run until a signal asks for the end ([`crate::signals`]).

mod args;
mod endpoint;
mod logging;
mod services;
mod settings;

use std::io::{self, Write};
use std::time::Duration;

use tidewire::{Builder, Counters, Running, StartError};

pub(crate) use args::Args;
pub(crate) use endpoint::Kind;

use self::endpoint::Endpoint;
use self::services::Services;
use self::settings::Settings;
use crate::descriptors;
use crate::exit::Failure;
use crate::signals::Signals;

/// Runs until a signal.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let settings = Settings::from(args)?;
    logging::start(settings.log_format, settings.log.as_deref())?;
    let descriptors = descriptors::raise_limit();
    // Before anything listens: a signal from here on means a graceful stop.
    let mut signals = Signals::catch()
        .map_err(|e| Failure::usage(format!("cannot catch SIGTERM and SIGINT: {e}")))?;
    let (running, services) = start(&settings)?;
    tracing::info!(
        engine = %running.engine(),
        reason = running.engine_reason(),
        workers = settings.workers,
        descriptors,
        "serving"
    );
    announce(&settings.endpoints, &running)
        .map_err(|e| Failure::usage(format!("cannot write to stdout where it listens: {e}")))?;
    while signals.wait(settings.stats_interval) == 0 {
        tracing::info!(counters = %running.counters(), "so far");
        services.log();
    }
    stop(running, signals, settings.stop_deadline);
    services.log();
    Ok(())
}

fn start(settings: &Settings) -> Result<(Running, Services), Failure> {
    let mut builder = Builder::new();
    builder
        .engine(settings.engine)
        .loops(settings.workers)
        .placement(settings.placement)
        .cpus(&settings.cpus)
        .busy_poll(settings.busy_poll);
    let services = Services::add(&mut builder, settings);
    let running = builder.start().map_err(|e| cannot_start(&e))?;
    Ok((running, services))
}

fn cannot_start(error: &StartError) -> Failure {
    let advice = match error {
        StartError::Listen { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse => {
                "; another process listens there: stop it, or choose other places with \
                 --listen SERVICE=ADDR (port 0 takes any free one)"
            }
            io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need the right to bind them",
            _ => "; see --listen, --bind and --congestion",
        },
        StartError::Engine { .. } => "; use --engine auto, epoll or threads",
        _ => "",
    };
    Failure::usage(format!("{error}{advice}"))
}

/// One line for each listener, for people and for programs that started this one.
fn announce(endpoints: &[Endpoint], running: &Running) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (endpoint, addr) in endpoints.iter().zip(running.addrs()) {
        write!(out, "listening service={}", endpoint.kind.service())?;
        if let Some(mode) = endpoint.kind.mode() {
            write!(out, " mode={mode}")?;
        }
        writeln!(out, " addr={addr} engine={}", running.engine())?;
    }
    out.flush()
}

fn stop(running: Running, mut signals: Signals, deadline: Duration) {
    tracing::info!(
        deadline_s = deadline.as_secs_f64(),
        "stopping; a second signal ends at once"
    );
    let stopper = running.stopper();
    // Not joined: it waits for a signal that need not come.
    std::thread::spawn(move || {
        if signals.wait(None) > 0 {
            tracing::warn!("second signal: cutting all connections");
            stopper.stop_now();
        }
    });
    let counters: Counters = running.stop(deadline);
    tracing::info!(%counters, "stopped");
}
