//! `tidewire bench`: loads a server and says what it took.
//!
//! A run has a load ([`load`]), a generator that makes it and a server that takes it ([`target`]);
//! [`single`] shows one run, [`search`] looks for a rate by many, [`ab`] compares two servers run by run.

mod ab;
mod arrivals;
mod ceiling;
mod cell;
mod compare;
mod comparison;
mod counted;
mod duet;
mod generator;
mod http;
mod kv;
mod live;
mod load;
mod numbers;
mod output;
mod page;
mod part;
mod processes;
mod rates;
mod runs;
mod sameness;
mod scratch;
mod search;
mod side;
mod single;
mod target;
mod url;
mod watch;

use clap::Subcommand;

use tidewire_command::exit::Failure;

pub(crate) use self::cell::{Cell, Ran};
pub(crate) use self::counted::{STARTS, Want, at_once};
pub(crate) use self::numbers::grouped;
pub(crate) use self::output::{environment, write};
pub(crate) use self::page::{command, stacked, write as write_page};
pub(crate) use self::scratch::Scratch;
pub(crate) use self::side::{Server, Side};
pub(crate) use self::watch::Watcher;

use self::http::HttpArgs;
use self::kv::KvArgs;
use self::load::{AckArgs, AckRoundsArgs, ConnectArgs, DiscardArgs, EchoArgs, IdleArgs};

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Messages that come back; every byte is checked.
    Echo(single::Args<EchoArgs>),
    /// Messages that are acknowledged; the chain of acknowledgements is checked.
    Ack(single::Args<AckRoundsArgs>),
    /// GET and SET, or a command of one's own, with random keys; every reply is checked.
    Kv(single::Args<KvArgs>),
    /// A request to a web server; status, length and body of every reply are checked.
    Http(single::Args<HttpArgs>),
    /// Bytes without an answer: what the machine can carry.
    Discard(single::Args<DiscardArgs>),
    /// Connections that are held, a share of them active: what they cost.
    Idle(single::Args<IdleArgs>),
    /// Connections that are opened, have one message echoed, and are closed.
    Connect(single::Args<ConnectArgs>),
    /// Compares two servers: short runs in turns, medians of ratios, with a control.
    #[command(subcommand)]
    Ab(Ab),
    /// Compares two results on disk: what has changed, and whether it may be believed.
    Compare(compare::Args),
}

/// The load of a comparison.
#[derive(Debug, Subcommand)]
pub(crate) enum Ab {
    /// Messages that come back.
    Echo(comparison::Args<EchoArgs>),
    /// Messages that are acknowledged.
    Ack(comparison::Args<AckArgs>),
    /// GET and SET, or a command of one's own, with random keys.
    Kv(comparison::Args<KvArgs>),
    /// A request to a web server.
    Http(comparison::Args<HttpArgs>),
    /// Bytes without an answer.
    Discard(comparison::Args<DiscardArgs>),
    /// Connections that are held.
    Idle(comparison::Args<IdleArgs>),
    /// Connections that are opened and closed.
    Connect(comparison::Args<ConnectArgs>),
}

/// Runs it.
pub(crate) fn run(bench: Bench) -> Result<(), Failure> {
    tidewire_command::descriptors::raise_limit();
    match bench {
        Bench::Echo(args) => single::run(&args),
        Bench::Ack(args) => single::run(&args),
        Bench::Kv(args) => single::run(&args),
        Bench::Http(args) => single::run(&args),
        Bench::Discard(args) => single::run(&args),
        Bench::Idle(args) => single::run(&args),
        Bench::Connect(args) => single::run(&args),
        Bench::Compare(args) => compare::run(&args),
        Bench::Ab(Ab::Echo(args)) => ab::run(&args),
        Bench::Ab(Ab::Ack(args)) => ab::run(&args),
        Bench::Ab(Ab::Kv(args)) => ab::run(&args),
        Bench::Ab(Ab::Http(args)) => ab::run(&args),
        Bench::Ab(Ab::Discard(args)) => ab::run(&args),
        Bench::Ab(Ab::Idle(args)) => ab::run(&args),
        Bench::Ab(Ab::Connect(args)) => ab::run(&args),
    }
}
