//! Who makes the load, and where both sides run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidewire::{EngineChoice, TcpOptions};
use tidewire_load::workload::{Arrivals, Generator, Rate};

use super::arrivals::ArrivalArgs;
use super::load::Load;
use crate::count;
use crate::exit::Failure;
use crate::span::Span;
use crate::tls::TlsArgs;

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
    /// Loopback addresses that connections come from in turns, 127.0.0.1 and those behind it: for
    /// more connections to one server than one address has ports for
    #[arg(long, default_value = "1", value_name = "N", value_parser = count::some)]
    sources: u32,
    /// How long nothing may move on a connection that is owed something
    #[arg(long, default_value = "10s", value_name = "TIME")]
    stall: Span,
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
}

impl GeneratorArgs {
    pub(crate) fn connections(&self) -> usize {
        self.connections as usize
    }

    /// When messages are sent; `default` is the rate of a load that has one of its own.
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

    fn client_cpu(&self) -> Option<usize> {
        self.client_cpu.or_else(|| self.by_default(1))
    }

    fn by_default(&self, core: usize) -> Option<usize> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (!self.no_pin && cores >= 2).then_some(core)
    }

    /// Who makes the load and where, in a few words.
    pub(crate) fn described(&self) -> String {
        let core =
            |cpu: Option<usize>| cpu.map_or("any core".to_owned(), |cpu| format!("core {cpu}"));
        let congestion = self.congestion.as_ref();
        format!(
            "{} connections{}, generator on {} ({}), started servers on {}{}",
            self.connections,
            if self.tls.is_wanted() {
                " over TLS"
            } else {
                ""
            },
            self.client_engine,
            core(self.client_cpu()),
            core(self.server_cpu()),
            congestion.map_or_else(String::new, |name| format!(", congestion control {name}")),
        )
    }

    /// The generator for a load.
    pub(crate) fn generator(&self, load: &Load) -> Result<Generator, Failure> {
        if self.stall.0.is_zero() {
            return Err(Failure::usage("--stall must be more than 0"));
        }
        if self.sources > SOURCES_MAX {
            return Err(Failure::usage(format!("--sources: at most {SOURCES_MAX}")));
        }
        Ok(Generator {
            sources: self.sources,
            stall: self.stall.0,
            progress: Duration::from_millis(200),
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
