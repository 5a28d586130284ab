//! `tidewire bench`: loads a server and says what it took.
//!
//! A run has a load ([`loads`]), a generator that makes the load, and a server that takes it
//! ([`target`]). [`single`] shows one run, [`search`] finds a rate in many runs, [`ab`] compares two
//! servers run by run.

mod ab;
mod against;
mod arrivals;
mod ceiling;
mod cell;
mod compare;
mod comparison;
mod counted;
mod duet;
mod generator;
mod live;
mod loads;
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
mod watch;

use clap::Subcommand;

use tidewire_command::exit::Failure;

pub(crate) use self::cell::{Cell, Ran};
pub(crate) use self::counted::{STARTS, Want, at_once};
pub(crate) use self::output::{environment, report, write, write_report};
pub(crate) use self::page::{stacked, write as write_page};
pub(crate) use self::sameness::{MISSES_APART, lengths_differ};
pub(crate) use self::scratch::Scratch;
pub(crate) use self::side::{Server, Side};
pub(crate) use self::watch::Watcher;
pub(crate) use tidewire_load::numbers::grouped;

use self::loads::Loads;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    #[command(flatten)]
    One(Loads<single::Args>),
    /// Compares two servers: short runs in turns, medians of ratios, with a control.
    #[command(subcommand)]
    Ab(Loads<comparison::Args>),
    /// Compares two results on disk: what has changed, and whether it may be believed.
    Compare(compare::Args),
}

/// Runs it.
pub(crate) fn run(bench: Bench) -> Result<(), Failure> {
    tidewire_command::descriptors::raise_limit();
    match bench {
        Bench::One(args) => single::run(&args),
        Bench::Ab(args) => ab::run(&args),
        Bench::Compare(args) => compare::run(&args),
    }
}
