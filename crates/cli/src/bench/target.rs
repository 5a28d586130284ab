//! Servers to load: started as child processes, or found running.

use std::ffi::OsString;
use std::time::Duration;

use tidewire_load::child::{ChildServer, Launch};
use tidewire_load::procfs::Process;
use tidewire_load::workload::{Target, Workload};

use super::generator::GeneratorArgs;
use super::side::{Server, Side};
use crate::exit::Failure;

/// How long a server may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// A server, for as long as it is needed. One that was started ends with it.
pub(crate) struct Ready {
    child: Option<ChildServer>,
    /// It is this executable.
    own: bool,
    target: Target,
    engine: Option<String>,
}

impl Ready {
    /// Starts the server, or finds it.
    pub(crate) fn find(
        side: &Side,
        workload: &Workload,
        generator: &GeneratorArgs,
    ) -> Result<Ready, Failure> {
        let cpu = generator.server_cpu();
        let launch = match &side.server {
            Server::There { addr, pid } => {
                return Ok(Ready {
                    child: None,
                    own: false,
                    target: Target {
                        addr: *addr,
                        process: pid.map(Process::new),
                        // Where it may run is not known here; what is measured is one loop.
                        cores: 1,
                    },
                    engine: None,
                });
            }
            Server::Own(args) => own(args, workload, generator.congestion())?,
            Server::Program(words) => Launch::new(&words[0]).args(&words[1..]),
        };
        let cores = match cpu {
            Some(_) => 1,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let launch = match cpu {
            Some(cpu) => launch.cpus([cpu]),
            None => launch,
        };
        let started = launch.start();
        let child = started.map_err(|e| Failure::usage(format!("cannot start the server: {e}")))?;
        let listening = &child.listeners()[0];
        Ok(Ready {
            target: Target {
                addr: listening.addr,
                process: Some(child.process()),
                cores,
            },
            engine: Some(listening.engine.clone()),
            child: Some(child),
            own: matches!(side.server, Server::Own(_)),
        })
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The engine that it says it runs on.
    pub(crate) fn engine(&self) -> Option<&str> {
        self.engine.as_deref()
    }

    /// What it last wrote to its stderr.
    pub(crate) fn last_words(&self) -> String {
        self.child
            .as_ref()
            .map_or_else(String::new, ChildServer::stderr_tail)
    }

    /// Stops it if it was started here.
    pub(crate) fn stop(self) -> Result<(), Failure> {
        let Some(child) = self.child else {
            return Ok(());
        };
        let stopped = child
            .stop(STOP_WITHIN)
            .map_err(|e| Failure::usage(format!("cannot stop the server: {e}")))?;
        // Other programs need not know what ending in order means.
        if stopped.is_clean() || !self.own {
            return Ok(());
        }
        Err(Failure::wrong(format!(
            "the server did not end in order ({}); its stderr ends with:\n{}",
            stopped.status, stopped.stderr
        )))
    }
}

/// This executable's `serve`, for the service of the workload only.
fn own(args: &[String], workload: &Workload, congestion: Option<&str>) -> Result<Launch, Failure> {
    let executable = std::env::current_exe()
        .map_err(|e| Failure::usage(format!("cannot find this executable to start it: {e}")))?;
    let service = match workload.mode() {
        Some(mode) => format!("{}/{mode}", workload.service()),
        None => workload.service().to_owned(),
    };
    let listen = format!("{service}=127.0.0.1:0");
    // A server under load that pauses between runs is not idle; logs cost time.
    let mut all = vec![
        "serve", &service, "--listen", &listen, "--idle", "0", "--log", "warn",
    ];
    if let Some(name) = congestion {
        all.extend(["--congestion", name]);
    }
    all.extend(args.iter().map(String::as_str));
    let all: Vec<OsString> = all.into_iter().map(OsString::from).collect();
    Ok(Launch::new(executable).args(all))
}
