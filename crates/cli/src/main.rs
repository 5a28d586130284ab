//! The `tidewire` command: servers that are ready to use, and their clients. The measuring commands are in
//! `tidewire-lab` ([`lab`]).
//!
//! Each subcommand has a module of its own, with its arguments (`args`) and its code. Exit statuses
//! are in `exit`; all subcommands use them.

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
mod names;
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

use tidewire_command::{count, descriptors, exit, host, program, say, size, span, tls};

use crate::commands::{Cli, Command};
use crate::help::Help;

fn main() -> ExitCode {
    if lab::is_asked_for() {
        return program::ended(lab::run());
    }
    allocator::announce();
    serve::install();
    let cli: Cli = match program::asked(help::command(Help::asked())) {
        Ok(cli) => cli,
        Err(status) => return status,
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
    program::ended(done)
}
