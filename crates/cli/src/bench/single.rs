//! One run against one server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tidewire::EngineChoice;
use tidewire_load::workload::{self, Extent, Outcome, Workload};

use super::generator::GeneratorArgs;
use super::load::{Load, LoadArgs};
use super::output;
use super::side::{Server, Side};
use super::target::Ready;
use super::watch::Watcher;
use crate::exit::Failure;
use crate::span::Span;

/// How long a run is if nobody says.
const DURATION: Duration = Duration::from_secs(3);
/// Load before the measured time, where that is given by time.
const WARM_UP: Duration = Duration::from_millis(300);

/// One run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args<L: LoadArgs> {
    #[command(flatten)]
    load: L,
    /// The server's address [default: a server is started, and stopped at the end]
    #[arg(long, value_name = "IP:PORT")]
    addr: Option<SocketAddr>,
    /// The server's process, to measure its CPU time
    #[arg(long, requires = "addr")]
    pid: Option<u32>,
    /// Engine of the server that is started: threads, epoll, uring or auto [default: auto]
    #[arg(long, conflicts_with = "addr")]
    engine: Option<EngineChoice>,
    /// More arguments for the server that is started, such as "--workers 2 --busy-poll 50"
    #[arg(
        long,
        value_name = "ARGS",
        conflicts_with = "addr",
        allow_hyphen_values = true
    )]
    server_args: Option<String>,
    #[command(flatten)]
    generator: GeneratorArgs,
    /// How long to measure [default: 3s]
    #[arg(long, value_name = "TIME", conflicts_with = "count")]
    duration: Option<Span>,
    /// Load before measuring [default: 300ms]
    #[arg(long, value_name = "TIME", conflicts_with = "count")]
    warmup: Option<Span>,
    /// Sends so many messages, over all connections, instead of for some time
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Writes the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The result for machines.
#[derive(Serialize)]
struct Shown<'a> {
    workload: &'a Workload,
    connections: usize,
    extent: Extent,
    server: SocketAddr,
    server_engine: Option<&'a str>,
    requests_per_second: f64,
    mib_per_second: f64,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// Runs it and shows what came out.
pub(crate) fn run<L: LoadArgs>(args: &Args<L>) -> Result<(), Failure> {
    let (load, extent) = args.plan()?;
    let mut watcher = Watcher::new()?;
    let server = Ready::find(&args.side(), &load.workload, &args.generator)?;
    let target = server.target();
    let connections = args.generator.connections();
    let generator = args.generator.generator(&load)?;
    first(&args.load, connections, &generator, &server)?;
    let done = workload::run(
        &load.workload,
        connections,
        extent,
        &generator,
        target,
        &mut |at| watcher.look(at),
    );
    watcher.done();
    let outcome = done.map_err(|e| failed(&e, &server))?;
    let engine = server.engine();
    println!("load         {}", output::described(&load.workload));
    println!("             {}", args.generator.described());
    let on = engine.map_or_else(String::new, |engine| format!(" on {engine}"));
    println!("server       {}{on}", target.addr);
    print!(
        "{}",
        output::text(
            &load.workload,
            lock_step(&load.workload, connections),
            &outcome
        )
    );
    if let Some(path) = &args.json {
        let shown = Shown {
            workload: &load.workload,
            connections,
            extent,
            server: target.addr,
            server_engine: engine,
            requests_per_second: outcome.requests_per_second(),
            mib_per_second: outcome.mib_per_second(),
            outcome: &outcome,
        };
        let kind = format!("bench {}", load.workload.service());
        output::write(path, &kind, output::environment(), shown)?;
    }
    if let Some(limit) = server.stop()? {
        println!("log          {limit}");
    }
    Ok(())
}

/// Loads a server with what has to be there before anything is measured.
pub(super) fn first<L: LoadArgs>(
    args: &L,
    connections: usize,
    generator: &workload::Generator,
    server: &Ready,
) -> Result<(), Failure> {
    let Some((workload, extent)) = args.first() else {
        return Ok(());
    };
    let target = server.target();
    workload::run(
        &workload,
        connections,
        extent,
        generator,
        target,
        &mut |_| true,
    )
    .map(drop)
    .map_err(|e| failed(&e, server))
}

/// What a failed run means for whoever called.
pub(super) fn failed(error: &workload::Failure, server: &Ready) -> Failure {
    let words = server.last_words();
    let words = if words.is_empty() {
        String::new()
    } else {
        format!("\nthe server's stderr ends with:\n{words}")
    };
    let message = format!("{error}{words}");
    if error.is_wrong_answer() {
        Failure::wrong(message)
    } else {
        Failure::usage(format!("{} ({})", message, server.target().addr))
    }
}

/// One message in flight in all.
fn lock_step(workload: &Workload, connections: usize) -> bool {
    connections == 1
        && match workload {
            Workload::Echo(load) => load.pipeline == 1,
            Workload::Ack(load) => load.window == 1,
            Workload::Native(load) => load.window == 1,
            Workload::Kv(load) => load.pipeline == 1,
            Workload::Http(load) => load.pipeline == 1,
            Workload::Discard(_) => false,
        }
}

impl<L: LoadArgs> Args<L> {
    fn plan(&self) -> Result<(Load, Extent), Failure> {
        let load = self.load.load()?;
        if let Some(count) = self.count {
            return Ok((load.endless(), Extent::Count(count)));
        }
        if let (None, Some(extent)) = (self.duration, load.own_extent()) {
            return Ok((load, extent));
        }
        let extent = Extent::Time {
            warm_up: self.warmup.map_or(WARM_UP, |span| span.0),
            measured: self.duration.map_or(DURATION, |span| span.0),
        };
        Ok((load.endless(), extent))
    }

    fn side(&self) -> Side {
        let server = match self.addr {
            Some(addr) => Server::There {
                addr,
                pid: self.pid,
            },
            None => {
                let engine = self
                    .engine
                    .map(|engine| ["--engine".into(), engine.to_string()]);
                let more = self
                    .server_args
                    .iter()
                    .flat_map(|args| args.split_ascii_whitespace());
                let more = more.map(str::to_owned);
                Server::Own(engine.into_iter().flatten().chain(more).collect())
            }
        };
        Side {
            server,
            ..Side::default()
        }
    }
}
