//! The `tidewire` command: ready servers, and what talks to them. What measures them is `tidewire-lab` ([`lab`]).
//!
//! Each subcommand has a module of its own: what it takes (`args`), and what it does. Exit statuses
//! are in `exit`, the same for all subcommands.

#![forbid(unsafe_code)]

#[macro_use]
extern crate tidewire_command;

mod allocator;
mod colours;
mod commands;
mod config;
mod data;
mod help;
mod kv;
mod lab;
mod log;
mod logging;
mod look;
mod read;
mod secret;
mod send;
mod serve;
mod shell;
mod ship;
mod signals;
mod status_line;
mod stream;

use std::process::ExitCode;

use clap::FromArgMatches;
use tidewire_command::{count, descriptors, exit, host, say, size, span, tls};

use crate::commands::{Cli, Command};
use crate::exit::Failure;
use crate::help::Help;

fn main() -> ExitCode {
    if lab::is_asked_for() {
        return ended(lab::run());
    }
    allocator::announce();
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
        Command::Serve(args) => serve::run(*args),
        Command::Send(args) => send::run(&args),
        Command::Ship(args) => ship::run(&args),
        Command::Read(args) => read::run(&args),
        Command::Kv(kv) => kv.run(),
        Command::Stream(stream) => stream::run(stream),
        Command::Info(info) => info.run(),
        Command::Top(top) => top.run(),
        Command::Log(log) => log::run(log),
        Command::Bench(_) | Command::Lab(_) => lab::run(),
        Command::Config(config) => config.run(),
        Command::Completions(args) => args.run(help::with_lab()),
        Command::Man(asked) => shell::man(&asked, help::command(Help::Long)),
    };
    ended(done)
}

/// Says why it failed, if it did.
fn ended(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { status, message }) => {
            say!("tidewire: {message}");
            status.into()
        }
    }
}
