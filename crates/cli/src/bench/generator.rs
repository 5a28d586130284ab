//! Who makes the load, and where both sides run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidewire::{EngineChoice, TcpOptions};
use tidewire_load::workload::Generator;

use super::load::Load;
use crate::exit::Failure;
use crate::tls::TlsArgs;

/// The options of the generator.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GeneratorArgs {
    /// Connections
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
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
        Ok(Generator {
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
