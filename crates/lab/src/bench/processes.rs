//! Several processes that make one load: this command once more for each, with the part that is its.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::str::FromStr;

use tidewire_load::workload::{
    self, Crew, Failure as LoadFailure, Generator, Outcome, Part, Plan, Target, Watch, serve_part,
};

use super::generator::GeneratorArgs;
use crate::exit::Failure;

/// A part of a load, and the server that it goes to: `I/N@IP:PORT`, I from 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartAt {
    pub(super) part: Part,
    addr: SocketAddr,
}

impl FromStr for PartAt {
    type Err = String;

    fn from_str(text: &str) -> Result<PartAt, String> {
        let read = || {
            let (part, addr) = text.split_once('@')?;
            let (number, of) = part.split_once('/')?;
            Some(PartAt {
                part: Part::new(number.parse().ok()?, of.parse().ok()?)?,
                addr: addr.parse().ok()?,
            })
        };
        read().ok_or_else(|| format!("{text:?} is not I/N@IP:PORT"))
    }
}

/// Makes a run, in this process or in as many as are wanted. `words` are those behind the name of this command that make
/// the same load.
pub(super) fn run(
    args: &GeneratorArgs,
    words: impl Iterator<Item = OsString>,
    plan: &Plan,
    generator: &Generator,
    target: &Target,
    watch: Watch<'_>,
) -> Result<Outcome, LoadFailure> {
    let processes = args.processes();
    if processes == 1 {
        return workload::run(plan, generator, target, watch);
    }
    let executable = std::env::current_exe()?;
    let words: Vec<OsString> = words.collect();
    let commands = (0..processes).map(|number| {
        let mut command = Command::new(&executable);
        let part = format!("{number}/{processes}@{}", target.addr);
        command.args(&words).arg("--part").arg(part);
        command
    });
    Crew::start(commands)?.run(plan, generator, target, watch)
}

/// Makes this process's part of a load.
pub(super) fn serve(at: PartAt, plan: &Plan, generator: &Generator) -> Result<(), Failure> {
    // The one that started this process measures the server.
    let target = Target {
        addr: at.addr,
        process: None,
        cores: 1,
    };
    let out = io::stdout().lock();
    serve_part(plan, generator, &target, at.part, io::stdin(), out)
        .map_err(|e| Failure::failed(format!("the process that started this part has gone: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_that_there_can_be() {
        let at: PartAt = "2/6@127.0.0.1:7000".parse().unwrap();
        assert_eq!(Some(at.part), Part::new(2, 6));
        assert_eq!(at.addr.port(), 7000);
        for bad in [
            "",
            "2/6",
            "6/6@127.0.0.1:7",
            "0/0@127.0.0.1:7",
            "1@127.0.0.1:7",
            "1/2@here",
        ] {
            assert!(bad.parse::<PartAt>().is_err(), "{bad}");
        }
    }
}
