//! `tidewire bench` and `tidewire lab` are another program, `tidewire-lab`, which this one becomes.
//!
//! A server needs no load generator, so `cargo build -p tidewire-cli` does not build one. Signals and the exit status are its own:
//! the process is replaced (`execve`).

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidewire_command::tree::Tree;

use crate::exit::Failure;

/// The commands of the other program.
pub(crate) const COMMANDS: [&str; 2] = ["bench", "lab"];

/// The name of the lab's program.
const PROGRAM: &str = "tidewire-lab";

/// The variable that tells the lab which `tidewire` to measure: this program.
const MEASURED: &str = "TIDEWIRE_PROGRAM";

/// Any words: `tidewire-lab` reads them.
#[derive(Debug, clap::Args)]
pub(crate) struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<OsString>,
}

/// Whether the other program is asked for: by its command, or by `help` and its command.
pub(crate) fn is_asked_for() -> bool {
    let mut words = env::args_os().skip(1).peekable();
    words.next_if(|word| word == "help");
    words.next().is_some_and(|word| is_its(&word))
}

fn is_its(word: &OsStr) -> bool {
    COMMANDS.iter().any(|command| word == *command)
}

/// Becomes `tidewire-lab`, with the arguments of this process. Returns only if that fails.
pub(crate) fn run() -> Result<(), Failure> {
    let program = found()?;
    let mut words = env::args_os();
    let mut command = command(&program);
    // Reports contain the command as it was given.
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    let failed = command.args(words).exec();
    Err(not_run(&program, &failed))
}

/// Commands of the lab, for completions; none where the lab is not found.
pub(crate) fn commands() -> Vec<clap::Command> {
    let described = || {
        let output = command(&found().ok()?).arg("commands").output().ok()?;
        let trees: Vec<Tree> = serde_json::from_slice(&output.stdout).ok()?;
        Some(trees.into_iter().map(clap::Command::from).collect())
    };
    described().unwrap_or_default()
}

/// Has the lab's program write its man pages to this directory; returns how many, 0 if the program
/// is not found.
pub(crate) fn pages(to: &Path) -> Result<usize, Failure> {
    let Ok(program) = found() else {
        return Ok(0);
    };
    let output = command(&program).arg("man").arg(to).output();
    let output = output.map_err(|e| not_run(&program, &e))?;
    let words = String::from_utf8_lossy(&output.stdout);
    let written = words.split(' ').next().and_then(|n| n.parse().ok());
    written.ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        Failure::failed(format!("{PROGRAM} wrote no pages: {}", said.trim()))
    })
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Ok(own) = env::current_exe() {
        command.env(MEASURED, own);
    }
    command
}

fn not_run(program: &Path, why: &io::Error) -> Failure {
    Failure::failed(format!("cannot run {}: {why}", program.display()))
}

/// Beside this executable, or in PATH.
fn found() -> Result<PathBuf, Failure> {
    let beside = env::current_exe().ok();
    let beside = beside.and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|dir| dir.join(PROGRAM));
    let mut places = beside.into_iter().chain(in_path);
    places.find(|place| place.is_file()).ok_or_else(|| {
        let release = match cfg!(debug_assertions) {
            true => "",
            false => "--release ",
        };
        Failure::failed(format!(
            "{} are another program, {PROGRAM}, which is neither beside this one nor in PATH; in the sources, \
             `cargo build {release}--bin {PROGRAM}` builds it, and `cargo install --path crates/lab` installs it",
            COMMANDS.join(" and ")
        ))
    })
}
