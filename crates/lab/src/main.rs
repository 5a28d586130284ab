//! The `tidewire-lab` program: measures servers. `tidewire bench` and `tidewire lab` run it.
//!
//! [`mod@bench`] loads one server, or compares two; [`lab`] runs a matrix of workloads and servers. The load itself is made by
//! the library `tidewire-load`. Servers to measure are started from `tidewire` ([`measured`]).

#![forbid(unsafe_code)]

#[macro_use]
extern crate tidewire_command;

mod bench;
mod help;
mod lab;
mod measured;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use mimalloc::MiMalloc;
use tidewire_command::exit::Failure;
use tidewire_command::man::Man;
use tidewire_command::tree::Tree;
use tidewire_command::{program, version};

use crate::help::Help;

/// The lab uses `tidewire`'s allocator, so that the generator costs what it cost when both were one
/// program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Loads servers, measures them, and says what may be believed.
#[derive(Debug, Parser)]
#[command(name = "tidewire", bin_name = "tidewire", version = version::short(), long_version = version::long(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Loads a server and measures it, or compares two.
    #[command(subcommand)]
    Bench(Box<bench::Bench>),
    /// Runs a matrix of workloads and servers, and compares them.
    Lab(Box<lab::Args>),
    /// Describes these commands as JSON, for completions.
    #[command(hide = true)]
    Commands,
    /// Writes pages for man, one for each command.
    #[command(hide = true)]
    Man(Man),
}

/// The command, with all that its help shows.
fn command(help: Help) -> clap::Command {
    help::shown(Cli::command(), help)
}

fn main() -> ExitCode {
    let cli: Cli = match program::asked(command(Help::asked())) {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    let done = match cli.command {
        Command::Bench(bench) => bench::run(*bench),
        Command::Lab(args) => lab::run(&args),
        Command::Commands => describe(),
        Command::Man(asked) => man(&asked),
    };
    program::ended(done)
}

/// The commands that `tidewire` has from here.
fn describe() -> Result<(), Failure> {
    let command = command(Help::Long);
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let trees: Vec<Tree> = shown.map(Tree::from).collect();
    let text = serde_json::to_string(&trees)
        .map_err(|e| Failure::failed(format!("cannot describe the commands: {e}")))?;
    show_line!("{text}");
    Ok(())
}

/// Pages for these commands; that of `tidewire` itself is written by `tidewire`.
fn man(asked: &Man) -> Result<(), Failure> {
    let own = |name: &str| matches!(name, "bench" | "lab");
    let written = asked.write(command(Help::Long), false, own)?;
    show_line!("{written} pages in {}", asked.to.display());
    Ok(())
}
