//! The `tidewire` command: ready servers, and what talks to them. What measures them is `tidewire-lab` ([`lab`]).
//!
//! Each subcommand has a module of its own: what it takes (`args`), and what it does. Exit statuses
//! are in `exit`, the same for all subcommands.

#![forbid(unsafe_code)]

#[macro_use]
extern crate tidewire_command;

mod allocator;
mod colours;
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

use clap::{FromArgMatches, Parser, Subcommand};
use tidewire_command::{count, descriptors, exit, host, say, size, span, tls, version};

use crate::exit::Failure;
use crate::help::Help;

/// TCP servers for floods of small messages, on threads, epoll or io_uring.
#[derive(Debug, Parser)]
#[command(name = "tidewire", version = version::short(), long_version = version::long(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs servers until SIGTERM or SIGINT.
    Serve(Box<serve::Args>),
    /// Sends messages, and waits until they are acknowledged.
    Send(send::Args),
    /// Ships files as they grow and are rotated, each line once.
    Ship(Box<ship::Args>),
    /// Reads messages back.
    Read(read::Args),
    /// Lists, creates, changes and deletes the streams of a server.
    #[command(subcommand)]
    Stream(stream::Stream),
    /// Prints what a running server is doing, once.
    Info(look::Info),
    /// Shows what a running server is doing, live.
    Top(look::Top),
    /// Looks into the directory of a log.
    #[command(subcommand)]
    Log(log::Log),
    /// Moves keys in and out of the key-value server, as dumps of Redis.
    #[command(subcommand)]
    Kv(kv::Kv),
    /// Loads a server and measures it, or compares two.
    Bench(lab::Passed),
    /// Runs a matrix of workloads and servers, and compares them.
    Lab(lab::Passed),
    /// Prints or checks the configuration file of serve.
    #[command(subcommand)]
    Config(config::Config),
    /// Prints what completes commands in a shell.
    Completions(shell::Completions),
    /// Writes pages for man, one for each command.
    Man(shell::Man),
}

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
        Command::Completions(args) => args.run(),
        Command::Man(asked) => shell::man(&asked),
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
