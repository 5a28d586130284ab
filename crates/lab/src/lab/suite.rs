//! The definition of a matrix: a TOML text, from a file or built in.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Parser;
use serde::Deserialize;

use crate::bench::{Cell, Server, Side};
use tidewire_command::exit::Failure;
use tidewire_command::host;
use tidewire_command::span::Span;

/// Suites that are built in.
const BUILT_IN: [(&str, &str); 6] = [
    ("engines", include_str!("suites/engines.toml")),
    ("classic", include_str!("suites/classic.toml")),
    ("kv", include_str!("suites/kv.toml")),
    ("connections", include_str!("suites/connections.toml")),
    ("http", include_str!("suites/http.toml")),
    ("peers", include_str!("suites/peers.toml")),
];

/// A matrix of workloads and servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    /// The question that the suite answers.
    pub(super) title: String,
    /// Blocks: each has every server of a workload once, and its base twice.
    #[serde(default = "rounds")]
    pub(super) rounds: u32,
    /// How long a run is measured.
    #[serde(default = "run_time")]
    pub(super) run_time: Span,
    /// Load before it is measured.
    #[serde(default = "warm_up")]
    pub(super) warm_up: Span,
    #[serde(rename = "server")]
    pub(super) servers: Vec<Host>,
    #[serde(rename = "workload")]
    pub(super) workloads: Vec<Work>,
}

fn rounds() -> u32 {
    10
}

fn run_time() -> Span {
    Span(std::time::Duration::from_millis(500))
}

fn warm_up() -> Span {
    Span(std::time::Duration::from_millis(100))
}

/// A server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Host {
    pub(super) name: String,
    /// A server of this command: more arguments of `serve`, such as `--engine uring`.
    #[serde(default)]
    pub(super) serve: Option<String>,
    /// Another program and its arguments, run as the caller's user. `{port}` is a free
    /// port.
    #[serde(default)]
    pub(super) command: Option<Vec<String>>,
    /// The address of the program, unless the program prints it in a line `listening addr=IP:PORT`;
    /// the program is ready when it accepts there. May contain `{port}`.
    #[serde(default)]
    pub(super) addr: Option<String>,
    /// The server is left out, with a message, where its program is not
    /// installed.
    #[serde(default)]
    pub(super) optional: bool,
}

/// A workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Work {
    pub(super) name: String,
    /// As on the command line behind `tidewire bench`.
    pub(super) load: String,
    /// The servers that it goes to; all, if it does not say.
    #[serde(default)]
    pub(super) servers: Vec<String>,
    /// The server that the others are compared with; by default the first.
    #[serde(default)]
    pub(super) base: Option<String>,
}

/// A load, as it stands behind `tidewire bench`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(subcommand)]
    cell: Cell,
}

impl Suite {
    /// The text of a suite: one built in, or else a file.
    pub(super) fn text(what: &str) -> Result<String, Failure> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(name, _)| *name == what) {
            return Ok((*text).to_owned());
        }
        std::fs::read_to_string(what).map_err(|e| {
            let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            let path = Path::new(what).display();
            let names = names.join(", ");
            Failure::usage(format!("{path} is no suite ({names}), and no file: {e}"))
        })
    }

    /// Reads and checks it: names are there and there once, loads can be meant.
    pub(super) fn read(text: &str) -> Result<Suite, Failure> {
        let suite: Suite =
            toml::from_str(text).map_err(|e| Failure::usage(format!("the suite: {e}")))?;
        suite.check().map_err(Failure::usage)?;
        Ok(suite)
    }

    fn check(&self) -> Result<(), String> {
        if self.rounds == 0 || self.run_time.0.is_zero() {
            return Err("rounds and run_time must be more than 0".into());
        }
        once("server", self.servers.iter().map(|server| &server.name))?;
        once("workload", self.workloads.iter().map(|work| &work.name))?;
        for server in &self.servers {
            let both = server.serve.is_some() == server.command.is_some();
            if both || (server.addr.is_some() && server.command.is_none()) {
                let name = &server.name;
                return Err(format!(
                    "server {name:?}: serve, or command perhaps with addr"
                ));
            }
            if server.command.as_ref().is_some_and(Vec::is_empty) {
                return Err(format!("server {:?}: an empty command", server.name));
            }
        }
        for work in &self.workloads {
            let known = |name: &String| self.servers.iter().any(|server| server.name == *name);
            if let Some(name) = work
                .servers
                .iter()
                .chain(&work.base)
                .find(|name| !known(name))
            {
                return Err(format!(
                    "workload {:?}: no server is called {name:?}",
                    work.name
                ));
            }
            if !self
                .servers_of(work)
                .iter()
                .any(|server| server.name == self.base_of(work))
            {
                return Err(format!(
                    "workload {:?}: its base is none of its servers",
                    work.name
                ));
            }
            work.cell()?;
        }
        Ok(())
    }

    /// The servers that a workload goes to.
    pub(super) fn servers_of(&self, work: &Work) -> Vec<&Host> {
        let all = self.servers.iter();
        match work.servers.is_empty() {
            true => all.collect(),
            false => all
                .filter(|server| work.servers.contains(&server.name))
                .collect(),
        }
    }

    /// The name of the server that the others of a workload are compared with.
    pub(super) fn base_of<'a>(&'a self, work: &'a Work) -> &'a str {
        match &work.base {
            Some(name) => name,
            None => self
                .servers_of(work)
                .first()
                .map_or("", |server| &server.name),
        }
    }
}

fn once<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("two {what}s are called {name:?}"));
        }
    }
    match seen.is_empty() {
        true => Err(format!("there is no {what}")),
        false => Ok(()),
    }
}

impl Work {
    /// The words of the load.
    pub(super) fn words(&self) -> Result<Vec<String>, String> {
        words(&self.load)
    }

    /// The load, from its line.
    pub(super) fn cell(&self) -> Result<Cell, String> {
        let wrong = |e: String| format!("workload {:?}: {e}", self.name);
        let line = Line::try_parse_from(self.words().map_err(wrong)?)
            .map_err(|e| wrong(e.render().to_string()))?;
        Ok(line.cell)
    }
}

/// Splits at blanks; words in single or double quotes may have blanks.
pub(super) fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(format!("a quote without its end: {text:?}"));
    }
    words.extend(word);
    Ok(words)
}

impl Host {
    /// How it is started: arguments of `serve`, or its command with a port of this run.
    pub(super) fn side(&self) -> Result<Side, Failure> {
        let server = match (&self.serve, &self.command) {
            (Some(args), _) => Server::Own(words(args).map_err(Failure::usage)?),
            (None, Some(command)) => {
                let port = free_port()?;
                let put = |text: &String| text.replace("{port}", &port.to_string());
                let command = command.iter().map(put).collect();
                match &self.addr {
                    None => Server::Program(command),
                    Some(addr) => {
                        // Nothing listens yet that would say which address of a name it is.
                        let addrs = host::servers(&put(addr))
                            .map_err(|e| Failure::usage(format!("server {:?}: {e}", self.name)))?;
                        Server::ProgramAt { command, addrs }
                    }
                }
            }
            (None, None) => Server::default(),
        };
        Ok(Side {
            server,
            name: self.name.clone(),
            ..Side::default()
        })
    }

    /// What will be run, as one line.
    pub(super) fn shown(&self) -> String {
        match (&self.serve, &self.command) {
            (Some(args), _) => format!("tidewire serve ... {args}"),
            (None, Some(command)) => command.join(" "),
            (None, None) => "tidewire serve ...".to_owned(),
        }
    }

    /// The server's program, if it cannot be found.
    pub(super) fn missing(&self) -> Option<&str> {
        let program = self.command.as_ref()?.first()?;
        let there = match program.contains('/') {
            true => Path::new(program).exists(),
            false => std::env::var_os("PATH").is_some_and(|paths| {
                std::env::split_paths(&paths).any(|dir| dir.join(program).exists())
            }),
        };
        (!there).then_some(program)
    }
}

/// A port that is free now. Another program may take the port meanwhile: then the server fails with
/// a message.
fn free_port() -> Result<u16, Failure> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0));
    let addr = listener.and_then(|listener| listener.local_addr());
    addr.map(|addr| addr.port())
        .map_err(|e| Failure::failed(format!("cannot find a free port: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_built_in_can_be_read() {
        for (name, text) in BUILT_IN {
            let suite = Suite::read(text).unwrap_or_else(|e| panic!("{name}: {}", e.message));
            assert!(suite.workloads.len() >= 2, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_place() {
        let server = "[[server]]\nname='a'\nserve=''\n";
        let work = "[[workload]]\nname='w'\nload='echo'\n";
        let title = "title='t'\n";
        let refused = |text: &str, words: &str| {
            let said = Suite::read(text).expect_err(text).message;
            assert!(said.contains(words), "{said}, not {words}");
        };
        assert!(Suite::read(&[title, server, work].concat()).is_ok());
        refused(&[title, server, server, work].concat(), "two servers");
        refused(&[title, server, work, "base='b'"].concat(), "\"b\"");
        refused(&[title, server, work, "colour=1"].concat(), "colour");
        refused(
            &[title, server, &work.replace("echo", "echo --size none")].concat(),
            "workload \"w\"",
        );
        refused(
            &[title, server, &work.replace("echo", "paint")].concat(),
            "paint",
        );
        refused(
            &[title, "[[server]]\nname='a'\n", work].concat(),
            "server \"a\"",
        );
        refused(&[title, work].concat(), "server");
    }

    #[test]
    fn quotes_keep_blanks() {
        assert_eq!(
            words("http -H 'Accept: text/html'  --path \"/\"").unwrap(),
            ["http", "-H", "Accept: text/html", "--path", "/"]
        );
        assert_eq!(words("a ''").unwrap(), ["a", ""]);
        assert!(words("'a").is_err());
    }
}
