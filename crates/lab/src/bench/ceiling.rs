//! What the generator reaches against a server that answers from nothing.
//!
//! The idea: the trivial server is this command once more, with the same arguments, so it knows the replies. It runs on
//! the cores of the server under load, and is loaded in a closed loop.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use tidewire::EngineChoice;
use tidewire_load::meter::SATURATED;
use tidewire_load::workload::{self, Arrivals, Extent, Generator, Plan, Workload, null_server};

use super::generator::GeneratorArgs;
use super::runs;
use super::side::{Server, Side};
use super::target::Ready;
use super::watch::Watcher;
use tidewire_command::exit::Failure;

const WARM_UP: Duration = Duration::from_millis(300);
const MEASURED: Duration = Duration::from_secs(1);

/// The most that a generator has reached.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Ceiling {
    pub(super) requests_per_second: f64,
    /// Busy share of the cores that the generator may use.
    pub(super) generator_busy_share: f64,
    /// The generator had no more to give; else that server was the limit, and the ceiling is higher.
    pub(super) reached: bool,
}

impl Ceiling {
    /// Loads such a server as a plan loads the real one; `None` if the user has interrupted.
    pub(super) fn of(
        plan: &Plan,
        args: &GeneratorArgs,
        generator: &Generator,
        watcher: &mut Watcher,
    ) -> Result<Option<Ceiling>, Failure> {
        let (side, workload) = null(&plan.workload)?;
        let server = Ready::find(&side, &workload, args)?;
        let plan = Plan {
            workload,
            arrivals: Arrivals::Closed,
            extent: Extent::Time {
                warm_up: WARM_UP,
                measured: MEASURED,
            },
            ..plan.clone()
        };
        watcher.show("the generator's ceiling");
        let goes_on: workload::Watch<'_> = &mut |_| !watcher.interrupted();
        let outcome = workload::run(&plan, generator, server.target(), goes_on)
            .map_err(|e| runs::failed(&e, &server))?;
        watcher.done();
        server.stop()?;
        let Some(metered) = outcome.metered.as_ref().filter(|_| !outcome.interrupted) else {
            return Ok(None);
        };
        let possible = metered.elapsed.as_nanos() as f64 * outcome.generator_cores as f64;
        let busy = metered.generator.total_ns as f64 / possible.max(1.0);
        Ok(Some(Ceiling {
            requests_per_second: outcome.requests_per_second(),
            generator_busy_share: busy,
            reached: busy >= SATURATED,
        }))
    }
}

/// Whether there can be such a server for a load; if not, why.
pub(super) fn check(workload: &Workload) -> Result<(), Failure> {
    null(workload).map(drop)
}

/// The server, and the load that it understands.
fn null(workload: &Workload) -> Result<(Side, Workload), Failure> {
    let (server, workload) = match workload.baseline() {
        workload::Baseline::Own(workload) => {
            let words = ["--engine", "epoll"].map(str::to_owned);
            (Server::Own(words.into()), workload)
        }
        workload::Baseline::Unknown(why) => {
            return Err(Failure::usage(format!("--ceiling: {why}")));
        }
        workload::Baseline::Null(_) => {
            let executable = std::env::current_exe()
                .map_err(|e| Failure::failed(format!("cannot find this executable: {e}")))?;
            let words = std::env::args_os().skip(1).chain(["--null".into()]);
            // An argument that is not UTF-8 is the name of a file to write, which that server does
            // not do.
            let words = std::iter::once(executable.into()).chain(words);
            let words = words.map(|word: OsString| word.to_string_lossy().into_owned());
            (Server::Program(words.collect()), workload.clone())
        }
    };
    Ok((
        Side {
            server,
            name: "null".into(),
            ..Side::default()
        },
        workload,
    ))
}

/// Is that server until it is killed.
pub(super) fn serve(workload: &Workload) -> Result<(), Failure> {
    let workload::Baseline::Null(replies) = workload.baseline() else {
        return Err(Failure::usage("the replies to this load are unknown"));
    };
    let started = null_server(replies, EngineChoice::Epoll);
    let running = started.map_err(|e| Failure::failed(format!("cannot start: {e}")))?;
    let mut out = std::io::stdout().lock();
    for addr in running.addrs() {
        writeln!(out, "listening service=null addr={addr} engine=epoll")
            .map_err(|e| Failure::failed(format!("cannot say where: {e}")))?;
    }
    loop {
        // A signal ends the process.
        std::thread::park();
    }
}
