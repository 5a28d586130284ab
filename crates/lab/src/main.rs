//! The `tidewire-lab` program: measures servers. `tidewire bench` and `tidewire lab` run it.
//!
//! [`bench`] loads one server, or compares two; [`lab`] runs a matrix of workloads and servers. The load itself is made by
//! the library `tidewire-load`. Servers to measure are started from `tidewire` ([`measured`]).

#![forbid(unsafe_code)]

#[macro_use]
extern crate tidewire_command;

mod bench;
mod commands;
mod help;
mod lab;
mod measured;

use std::process::ExitCode;

use clap::FromArgMatches;
use mimalloc::MiMalloc;
use tidewire_command::man::Man;
use tidewire_command::tree::Tree;
use tidewire_command::{count, descriptors, exit, host, say, span, tls};

use crate::commands::{Cli, Command};
use crate::exit::Failure;
use crate::help::Help;

/// The allocator of `tidewire`, so that the generator costs what it cost when both were one program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let parsed = help::command(Help::asked())
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version come this way too; what cannot be printed has nowhere to go.
            let _ = e.print();
            return if e.use_stderr() {
                exit::USAGE.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let done = match cli.command {
        Command::Bench(bench) => bench::run(*bench),
        Command::Lab(args) => lab::run(&args),
        Command::Commands => describe(),
        Command::Man(asked) => man(&asked),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { status, message }) => {
            say!("tidewire: {message}");
            status.into()
        }
    }
}

/// The commands that `tidewire` has from here.
fn describe() -> Result<(), Failure> {
    let command = help::command(Help::Long);
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
    let written = asked.write(help::command(Help::Long), false, own)?;
    show_line!("{written} pages in {}", asked.to.display());
    Ok(())
}
