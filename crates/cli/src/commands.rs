//! The commands of `tidewire`.

use clap::{Parser, Subcommand};
use tidewire_command::version;

use crate::{config, kv, lab, log, look, read, send, serve, shell, ship, stream};

/// TCP servers for floods of small messages, on threads, epoll or io_uring.
#[derive(Debug, Parser)]
#[command(name = "tidewire", version = version::short(), long_version = version::long(), max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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
