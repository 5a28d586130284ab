//! A server to load, as written on the command line.
//!
//! `tidewire serve` or another program, which are started for a run, or a server that runs already.

use std::net::SocketAddr;
use std::str::FromStr;

use tidewire_load::workload::{Chosen, Instead};

use tidewire_command::exit::Failure;
use tidewire_command::host;

/// A server, and what is different about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) server: Server,
    /// Loads this service instead of the one that the load is for.
    pub(crate) service: Option<Instead>,
    /// The side's name in the result.
    pub(crate) name: String,
}

/// The server of a side: started here, or running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// `tidewire serve`, with these arguments.
    Own(Vec<String>),
    /// A program that says where it listens.
    Program(Vec<String>),
    /// A program that says nothing, and is ready when it accepts at one of these addresses.
    ProgramAt {
        command: Vec<String>,
        addrs: Vec<SocketAddr>,
    },
    /// The server runs; without its process no CPU time can be had.
    There { addr: SocketAddr, pid: Option<u32> },
}

impl Default for Server {
    fn default() -> Server {
        Server::Own(Vec::new())
    }
}

impl FromStr for Side {
    type Err = String;

    /// `KEY=VALUE` pairs with commas between: `engine`, `workers`, `placement`, `busy-poll` and
    /// `args` for a server to start; `addr` and `pid` for one that runs; `cmd` for another program;
    /// `service` and `name` for any. `cmd` and `args` take the rest of the text, commas included.
    fn from_str(text: &str) -> Result<Side, String> {
        let mut side = Side {
            name: text.to_owned(),
            ..Side::default()
        };
        let (mut own, mut program) = (Vec::new(), None);
        let (mut addr, mut pid) = (None, None);
        let mut rest = text;
        while !rest.is_empty() {
            let (key, after) = rest
                .split_once('=')
                .ok_or_else(|| format!("{rest:?} is not KEY=VALUE"))?;
            let (value, next) = match key {
                "cmd" | "args" => (after, ""),
                _ => after.split_once(',').unwrap_or((after, "")),
            };
            rest = next;
            let bad = |what: &str| format!("{key}={value}: {what}");
            match key {
                "engine" | "workers" | "placement" | "busy-poll" | "congestion" => {
                    own.extend([format!("--{key}"), value.to_owned()]);
                }
                "args" => own.extend(value.split_ascii_whitespace().map(str::to_owned)),
                "cmd" => program = Some(words(value)),
                "addr" => addr = Some(host::server(value).map_err(|e| bad(&e))?),
                "pid" => pid = Some(value.parse().map_err(|_| bad("not a process id"))?),
                "service" => side.service = Some(service(value)?),
                "name" => value.clone_into(&mut side.name),
                _ => {
                    return Err(format!(
                        "no key is called {key:?}: engine, workers, placement, busy-poll, \
                         congestion, args, cmd, addr, pid, service, name"
                    ));
                }
            }
        }
        side.server = match (program, addr, own.is_empty()) {
            (None, None, _) if pid.is_some() => return Err("pid goes with addr".into()),
            (None, None, _) => Server::Own(own),
            (Some(words), None, true) if !words.is_empty() => Server::Program(words),
            (None, Some(addr), true) => Server::There { addr, pid },
            _ => {
                return Err(
                    "cmd, addr and the settings of a server to start exclude each other".into(),
                );
            }
        };
        Ok(side)
    }
}

fn words(text: &str) -> Vec<String> {
    let text = text.trim_matches('"');
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

fn service(text: &str) -> Result<Instead, String> {
    match text.split_once('/') {
        Some(("ack", mode)) => mode
            .parse()
            .map(Instead::Ack)
            .map_err(|e: tidewire_ingest::classic::UnknownMode| e.to_string()),
        None if text == "discard" => Ok(Instead::Discard),
        None if text == "ingest" => Ok(Instead::Ingest),
        _ => Err(format!("service={text}: discard, ingest, or ack/MODE")),
    }
}

impl Side {
    /// Whether two servers of this side may run at once: only if each takes a free port. Two servers on one port would
    /// share connections.
    pub(crate) fn may_run_twice(&self) -> bool {
        match &self.server {
            Server::Own(_) => true,
            Server::Program(words) => words.iter().any(|word| word.ends_with(":0")),
            Server::ProgramAt { .. } | Server::There { .. } => false,
        }
    }

    /// The load for this side: that of the command, or for another service one of the same writes.
    pub(crate) fn load(&self, of: Chosen) -> Result<Chosen, Failure> {
        let Some(service) = self.service else {
            return Ok(of);
        };
        let workload = of.workload.instead(service).ok_or_else(|| {
            Failure::usage(format!(
                "{}: an ack service can only be loaded by bench ab ack",
                self.name
            ))
        })?;
        Ok(Chosen { workload, ..of })
    }
}

#[cfg(test)]
mod tests {
    use tidewire_ingest::classic::Mode;

    use super::*;

    fn side(text: &str) -> Side {
        text.parse().unwrap()
    }

    #[test]
    fn the_three_kinds_of_servers() {
        assert_eq!(
            side("engine=uring,busy-poll=50").server,
            Server::Own(
                ["--engine", "uring", "--busy-poll", "50"]
                    .map(str::to_owned)
                    .into()
            )
        );
        assert_eq!(
            side("addr=127.0.0.1:7,pid=12").server,
            Server::There {
                addr: "127.0.0.1:7".parse().unwrap(),
                pid: Some(12)
            }
        );
        assert_eq!(
            side("name=bare,cmd=bin/echo --cpus 0,1").server,
            Server::Program(["bin/echo", "--cpus", "0,1"].map(str::to_owned).into())
        );
        assert_eq!(side("name=bare,cmd=x").name, "bare");
        assert_eq!(
            side("service=ack/async").service,
            Some(Instead::Ack(Mode::Async))
        );
    }

    #[test]
    fn only_a_server_that_takes_a_free_port_may_run_twice() {
        for (text, may) in [
            ("engine=uring", true),
            ("cmd=./before serve echo --listen echo=127.0.0.1:0", true),
            (
                "cmd=./before serve echo --listen echo=127.0.0.1:7000",
                false,
            ),
            ("cmd=./before", false),
            ("addr=127.0.0.1:7", false),
        ] {
            assert_eq!(side(text).may_run_twice(), may, "{text}");
        }
    }

    #[test]
    fn contradictions_and_unknown_keys_are_refused() {
        for text in [
            "engine",
            "colour=red",
            "pid=1",
            "engine=epoll,cmd=x",
            "addr=here",
            "service=ack",
        ] {
            assert!(text.parse::<Side>().is_err(), "{text}");
        }
    }
}
