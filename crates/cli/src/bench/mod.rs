//! `tidewire bench`: loads a server and says what it took.
//!
//! A run has a load ([`load`]), a generator that makes it and a server that takes it ([`target`]);
//! [`single`] shows one run, [`ab`] compares two servers run by run.

mod ab;
mod generator;
mod http;
mod load;
mod output;
mod scratch;
mod side;
mod single;
mod target;
mod watch;

use clap::Subcommand;

use crate::exit::Failure;

use self::http::HttpArgs;
use self::load::{AckArgs, AckRoundsArgs, DiscardArgs, EchoArgs, KvArgs};

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Messages that come back; every byte is checked.
    Echo(single::Args<EchoArgs>),
    /// Messages that are acknowledged; the chain of acknowledgements is checked.
    Ack(single::Args<AckRoundsArgs>),
    /// GET and SET with random keys; every reply is checked.
    Kv(single::Args<KvArgs>),
    /// A request to a web server; status, length and body of every reply are checked.
    Http(single::Args<HttpArgs>),
    /// Bytes that nobody answers: what the machine can carry.
    Discard(single::Args<DiscardArgs>),
    /// Compares two servers: short runs in turns, medians of ratios, with a control.
    #[command(subcommand)]
    Ab(Ab),
}

/// The load of a comparison.
#[derive(Debug, Subcommand)]
pub(crate) enum Ab {
    /// Messages that come back.
    Echo(ab::Args<EchoArgs>),
    /// Messages that are acknowledged.
    Ack(ab::Args<AckArgs>),
    /// GET and SET with random keys.
    Kv(ab::Args<KvArgs>),
    /// A request to a web server.
    Http(ab::Args<HttpArgs>),
    /// Bytes that nobody answers.
    Discard(ab::Args<DiscardArgs>),
}

/// Runs it.
pub(crate) fn run(bench: Bench) -> Result<(), Failure> {
    crate::descriptors::raise_limit();
    match bench {
        Bench::Echo(args) => single::run(&args),
        Bench::Ack(args) => single::run(&args),
        Bench::Kv(args) => single::run(&args),
        Bench::Http(args) => single::run(&args),
        Bench::Discard(args) => single::run(&args),
        Bench::Ab(Ab::Echo(args)) => ab::run(&args),
        Bench::Ab(Ab::Ack(args)) => ab::run(&args),
        Bench::Ab(Ab::Kv(args)) => ab::run(&args),
        Bench::Ab(Ab::Http(args)) => ab::run(&args),
        Bench::Ab(Ab::Discard(args)) => ab::run(&args),
    }
}
