//! Servers to load: started as child processes, or found running.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidewire_load::child::{ChildServer, Launch};
use tidewire_load::owner;
use tidewire_load::procfs::{KnownBy, Process};
use tidewire_load::workload::{Target, Workload};

use super::generator::GeneratorArgs;
use super::scratch::Scratch;
use super::side::{Server, Side};
use crate::measured;
use tidewire_command::exit::Failure;

/// How long a server may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// A server that is ready for a load. A server that was started here ends when the value is
/// dropped.
pub(crate) struct Ready {
    child: Option<ChildServer>,
    /// The server is `tidewire serve`.
    own: bool,
    /// The directory of the server's log. Goes after the child has.
    scratch: Option<Scratch>,
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
        Ready::find_under(side, workload, generator, &|launch| launch)
    }

    /// Starts the server under another program, which `under` says.
    pub(super) fn find_under(
        side: &Side,
        workload: &Workload,
        generator: &GeneratorArgs,
        under: &dyn Fn(Launch) -> Launch,
    ) -> Result<Ready, Failure> {
        let cpu = generator.server_cpu();
        let mut scratch = None;
        let launch = match &side.server {
            Server::There { addr, pid } => {
                return Ok(Ready {
                    child: None,
                    own: false,
                    scratch: None,
                    target: Target {
                        addr: *addr,
                        process: match pid {
                            Some(pid) => Some(Process::new(*pid).with_children()),
                            None => found(*addr),
                        },
                        // The server's cores are not known here; one loop is measured.
                        cores: 1,
                    },
                    engine: None,
                });
            }
            Server::Own(args) => {
                if workload.needs_log() && !args.iter().any(|arg| arg.starts_with("--data")) {
                    scratch = Some(Scratch::new(generator.data())?);
                }
                own(args, workload, generator.congestion(), scratch.as_ref())?
            }
            Server::Program(words) => Launch::new(&words[0]).args(&words[1..]),
            Server::ProgramAt { command, addrs } => {
                let launch = Launch::new(&command[0]).args(&command[1..]);
                launch.listens_at_any(addrs.clone())
            }
        };
        let cores = match cpu {
            Some(_) => 1,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let launch = match cpu {
            Some(cpu) => launch.cpus([cpu]),
            None => launch,
        };
        let started = under(launch).start();
        let child =
            started.map_err(|e| Failure::failed(format!("cannot start the server: {e}")))?;
        let listening = &child.listeners()[0];
        Ok(Ready {
            target: Target {
                addr: listening.addr,
                process: Some(child.process().with_children().known_by(KnownBy::Start)),
                cores,
            },
            engine: Some(listening.engine.clone()),
            child: Some(child),
            scratch,
            own: matches!(side.server, Server::Own(_)),
        })
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The process that was started, if one was.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(ChildServer::pid)
    }

    /// The engine that it says it runs on.
    pub(crate) fn engine(&self) -> Option<&str> {
        self.engine.as_deref()
    }

    /// The last output of the server on its stderr.
    pub(crate) fn last_words(&self) -> String {
        self.child
            .as_ref()
            .map_or_else(String::new, ChildServer::stderr_tail)
    }

    /// Stops it if it was started here. Says whether its log was what held it up, if it says so.
    pub(crate) fn stop(self) -> Result<Option<String>, Failure> {
        let Some(child) = self.child else {
            return Ok(None);
        };
        // Nothing of a server that was started here remains.
        let server = self.target.process.as_ref().filter(|_| !self.own);
        let away = server.map_or(Vec::new(), |server| {
            owner::forked_away(self.target.addr, server)
        });
        for pid in away {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            // A process that has ended meanwhile is where it should be.
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        let stopped = child
            .stop(STOP_WITHIN)
            .map_err(|e| Failure::failed(format!("cannot stop the server: {e}")))?;
        // Other programs need not know what ending in order means.
        if stopped.is_clean() || !self.own {
            drop(self.scratch);
            return Ok(limited(&stopped.stderr));
        }
        Err(Failure::wrong(format!(
            "the server did not end in order ({}); its stderr ends with:\n{}",
            stopped.status, stopped.stderr
        )))
    }
}

/// The process behind an address, if it runs here and may be looked at.
fn found(addr: SocketAddr) -> Option<Process> {
    let pid = owner::listens_at(addr)?;
    show_line!(
        "process {pid} listens at {addr}: the CPU of the process that holds its connections is measured"
    );
    let process = Process::new(pid).with_children();
    Some(process.known_by(KnownBy::Listening))
}

/// What the counters in a server's last words say about its log.
fn limited(stderr: &str) -> Option<String> {
    let count = |name: &str| -> u64 {
        let counts = stderr.split_ascii_whitespace().filter_map(|word| {
            let (key, value) = word.rsplit_once('=')?;
            // The first counter of a line is preceded by `counters=`.
            key.ends_with(name).then(|| value.parse::<u64>().ok())?
        });
        counts.sum()
    };
    let log = count("paused_by_log");
    let commits = count("paused_by_window") + count("paused_by_commits");
    if log + commits == 0 {
        return None;
    }
    Some(format!(
        "reading was paused {log} times because the log's queue was full and {commits} times because \
         too much was not committed: the log was the limit at these times"
    ))
}

/// `tidewire serve`, for the service of the workload only.
fn own(
    args: &[String],
    workload: &Workload,
    congestion: Option<&str>,
    scratch: Option<&Scratch>,
) -> Result<Launch, Failure> {
    let executable = measured::program()?;
    let service = match workload.mode() {
        Some(mode) => format!("{}/{mode}", workload.service()),
        None => workload.service().to_owned(),
    };
    let listen = format!("{service}=127.0.0.1:0");
    // A server under load that pauses between runs is not idle; logs cost time, but for the counters
    // at the end.
    let log = "warn,tidewire::serve::services=info";
    let mut all = vec![
        "serve", &service, "--listen", &listen, "--idle", "0", "--log", log, "--admin", "off",
    ];
    // The server has no successor, and the usual control socket belongs to
    // another server.
    if !args.iter().any(|arg| arg.starts_with("--control")) {
        all.extend(["--control", "off"]);
    }
    all.extend(workload.server_args());
    if let Some(name) = congestion {
        all.extend(["--congestion", name]);
    }
    all.extend(args.iter().map(String::as_str));
    let mut all: Vec<OsString> = all.into_iter().map(OsString::from).collect();
    if let Some(scratch) = scratch {
        all.extend(["--data".into(), scratch.path().into()]);
    }
    Ok(Launch::new(executable).args(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_found_in_the_last_words() {
        let words = "INFO ingest counters=producers=1 messages=7 paused_by_log=3 paused_by_window=2\n\
                     INFO ack mode=sync counters=paused_by_log=4\n";
        let said = limited(words).unwrap();
        assert!(
            said.contains("paused 7 times") && said.contains("and 2 times"),
            "{said}"
        );
        assert_eq!(limited("INFO ingest counters=producers=1 messages=7"), None);
    }
}
