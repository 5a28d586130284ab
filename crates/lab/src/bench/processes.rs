//! Several processes that make one load: this command once more for each, with the part that is its.

use std::ffi::OsString;
use std::io;
use std::process::Command;

use tidewire_load::workload::{
    self, Crew, Failure as LoadFailure, Generator, Outcome, Plan, Target, Watch, serve_part,
};

use super::generator::GeneratorArgs;
use super::part::PartAt;
use tidewire_command::exit::Failure;

/// Makes a run, in this process or in as many as are wanted. `words` are the arguments of this
/// command that make this load.
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
