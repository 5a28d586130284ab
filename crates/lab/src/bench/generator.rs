//! The generator of the load, and where both sides run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidewire::{EngineChoice, TcpOptions};
use tidewire_load::workload::{Arrivals, Chosen, Generator, Rate};

use super::arrivals::ArrivalArgs;
use super::part::PartAt;
use tidewire_command::count;
use tidewire_command::exit::Failure;
use tidewire_command::span::Span;
use tidewire_command::tls::TlsArgs;

/// Addresses that look like 127.0.x.y.
const SOURCES_MAX: u32 = 65_000;

/// The options of the generator.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GeneratorArgs {
    /// Connections
    #[arg(long, short = 'c', default_value = "1", value_name = "N", value_parser = count::some)]
    connections: u32,
    #[command(flatten)]
    arrivals: ArrivalArgs,
    /// Processes that make the load together, each with its share of the connections: for more connections than one
    /// process may hold, and for more than one can load. What they find is added up exactly
    #[arg(long, default_value = "1", value_name = "N", value_parser = count::some)]
    processes: u32,
    /// Loopback addresses that connections come from in turns, 127.0.0.1 and the following ones: for
    /// more connections to one server than one address has ports for [default: one for each 20,000 connections to
    /// 127.0.0.1]
    #[arg(long, value_name = "N", value_parser = count::some)]
    sources: Option<u32>,
    /// How long all connections may take to be established
    #[arg(long, default_value = "30s", value_name = "TIME")]
    connect_within: Span,
    /// How long nothing may move on a connection that is owed something
    #[arg(long, default_value = "10s", value_name = "TIME")]
    stall: Span,
    /// Makes a connection that the server closes again, counts it and what was lost with it, and goes on, where that would
    /// else end the run with status 2. What HTTP allows a server to close is made again without it
    #[arg(long)]
    reconnect: bool,
    /// The generator's engine: threads, epoll, uring or auto
    #[arg(long, default_value = "epoll", value_name = "ENGINE")]
    client_engine: EngineChoice,
    /// The generator's loops
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    client_workers: u32,
    /// Longest time the generator polls before it sleeps
    #[arg(long, default_value_t = 0, value_name = "MICROS")]
    client_busy_poll: u64,
    /// Congestion control of both sides, such as cubic, where this command's own server is started;
    /// bbr disturbs loopback [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Where servers that are started keep their logs during the run, each in a directory of its own
    /// [default: the system's place for temporary files]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Core of the server that is started [default: 0 if there are two]
    #[arg(long, value_name = "CORE", conflicts_with = "no_pin")]
    server_cpu: Option<usize>,
    /// Core of the generator [default: 1 if there are two]
    #[arg(long, value_name = "CORE", conflicts_with = "no_pin")]
    client_cpu: Option<usize>,
    /// Lets both run on any core
    #[arg(long)]
    no_pin: bool,
    #[command(flatten)]
    tls: TlsArgs,
    /// This process makes only this part of the load; given to processes that --processes starts
    #[arg(long, hide = true, value_name = "I/N@IP:PORT")]
    part: Option<PartAt>,
    /// This process is the server of --ceiling
    #[arg(long, hide = true)]
    null: bool,
}

/// Most connections: what is kept of each place is there before the first one is.
const CONNECTIONS_MAX: u32 = 10_000_000;
/// Most processes of one load.
const PROCESSES_MAX: u32 = 1_000;

impl GeneratorArgs {
    /// The part of the load that this process makes, if it was started for one part.
    pub(super) fn part(&self) -> Option<PartAt> {
        self.part
    }

    /// Whether this process is a server that answers from nothing.
    pub(super) fn is_null(&self) -> bool {
        self.null
    }

    /// These arguments over TLS, with a server named `host`.
    pub(super) fn over_tls(mut self, host: &str) -> GeneratorArgs {
        self.tls = self.tls.for_host(host);
        self
    }

    /// Whether connections are of TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_wanted()
    }

    /// How many processes make the load.
    pub(super) fn processes(&self) -> usize {
        self.processes as usize
    }

    /// For commands that make many runs: refuses several processes.
    pub(super) fn in_one_process(&self, what: &str) -> Result<(), Failure> {
        match self.processes {
            1 => Ok(()),
            _ => Err(Failure::usage(format!(
                "--processes goes with single runs and the lab, not with {what}"
            ))),
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections as usize
    }

    /// The schedule of messages; `default` is the rate of a load that has one of its own.
    pub(crate) fn arrivals(&self, default: Option<f64>) -> Result<Arrivals, Failure> {
        self.arrivals.arrivals(default)
    }

    /// Whether a rate was given.
    pub(crate) fn has_rate(&self) -> bool {
        self.arrivals.has_rate()
    }

    /// How messages of whatever rate are spread.
    pub(crate) fn rate(&self) -> Rate {
        self.arrivals.rate()
    }

    /// These arguments with other cores for server and generator: for run number `place` of several
    /// parallel runs. Cores that the user has given stay.
    pub(super) fn elsewhere(&self, place: usize) -> GeneratorArgs {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let on = |core: usize| self.by_default(core % cores);
        GeneratorArgs {
            server_cpu: self.server_cpu.or_else(|| on(place)),
            client_cpu: self.client_cpu.or_else(|| on(place + 1)),
            ..self.clone()
        }
    }

    /// The core of a server that is started.
    pub(crate) fn server_cpu(&self) -> Option<usize> {
        self.server_cpu.or_else(|| self.by_default(0))
    }

    pub(crate) fn congestion(&self) -> Option<&str> {
        self.congestion.as_deref()
    }

    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// Several processes take the cores behind the server's in turns.
    fn client_cpu(&self) -> Option<usize> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let number = self.part.map_or(0, |at| at.part.number());
        let behind = number % (cores - 1).max(1);
        self.client_cpu.or_else(|| self.by_default(1 + behind))
    }

    fn by_default(&self, core: usize) -> Option<usize> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (!self.no_pin && cores >= 2).then_some(core)
    }

    /// The generator and its place, in a few words.
    pub(crate) fn described(&self) -> String {
        let core =
            |cpu: Option<usize>| cpu.map_or("any core".to_owned(), |cpu| format!("core {cpu}"));
        let congestion = self.congestion.as_ref();
        format!(
            "{} connections{}, generator {}on {} ({}), started servers on {}{}",
            self.connections,
            if self.tls.is_wanted() {
                " over TLS"
            } else {
                ""
            },
            match self.processes {
                1 => String::new(),
                n => format!("in {n} processes "),
            },
            self.client_engine,
            core(self.client_cpu()),
            core(self.server_cpu()),
            congestion.map_or_else(String::new, |name| format!(", congestion control {name}")),
        )
    }

    /// The generator for a load.
    pub(crate) fn generator(&self, load: &Chosen) -> Result<Generator, Failure> {
        if self.stall.0.is_zero() {
            return Err(Failure::usage("--stall must be more than 0"));
        }
        if self.sources.is_some_and(|n| n > SOURCES_MAX) {
            return Err(Failure::usage(format!("--sources: at most {SOURCES_MAX}")));
        }
        if self.connections > CONNECTIONS_MAX {
            return Err(Failure::usage(format!(
                "--connections: at most {CONNECTIONS_MAX}"
            )));
        }
        if self.processes > PROCESSES_MAX.min(self.connections) {
            return Err(Failure::usage(format!(
                "--processes: at most {PROCESSES_MAX}, and no more than there are connections"
            )));
        }
        Ok(Generator {
            sources: self.sources,
            connect_within: self.connect_within.0,
            stall: self.stall.0,
            progress: Duration::from_millis(200),
            live: false,
            reconnect: self.reconnect,
            tls: self.tls.client()?,
            engine: self.client_engine,
            loops: self.client_workers as usize,
            cpus: self.client_cpu().into_iter().collect(),
            busy_poll: Duration::from_micros(self.client_busy_poll),
            tcp: TcpOptions {
                nodelay: load.nodelay.unwrap_or(true),
                congestion: self.congestion.clone(),
                ..TcpOptions::default()
            },
        })
    }
}
