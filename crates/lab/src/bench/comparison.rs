//! Two servers that are compared, from the command line.

use std::path::PathBuf;

use tidewire_command::count;
use tidewire_command::exit::Failure;
use tidewire_command::span::Span;
use tidewire_load::workload::{Arrivals, Chosen, Generator, Purpose};

use super::counted::{CountArgs, Pair};
use super::generator::GeneratorArgs;
use super::loads::{Beside, Loads};
use super::runs;
use super::side::Side;
use super::target::Ready;
use super::watch::Watcher;

/// A comparison. Both servers run during the whole comparison.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The base, as KEY=VALUE,...: engine, workers, placement, busy-poll, congestion and args for a
    /// server to start; addr and perhaps pid for one that runs; cmd (to the end of the text) for another
    /// program that prints `listening addr=...`; service=discard or service=ack/MODE to load that
    /// with the same writes; name
    #[arg(long, value_name = "SIDE")]
    pub(super) a: Side,
    /// What is compared with it
    #[arg(long, value_name = "SIDE")]
    pub(super) b: Side,
    /// Rounds, each a run of either side and of the control
    #[arg(long, default_value = "20", value_name = "N", value_parser = count::some)]
    pub(super) rounds: u32,
    /// How long a run is measured
    #[arg(long, default_value = "500ms", value_name = "TIME")]
    pub(super) round_time: Span,
    /// Load before measuring, in each run
    #[arg(long, default_value = "50ms", value_name = "TIME")]
    pub(super) warmup: Span,
    /// Leaves out the control, a second server like A
    #[arg(long)]
    pub(super) no_control: bool,
    /// Loads both servers at once instead of in turns, and compares them slice by slice: how they do under contention.
    /// Take a --round-time of 2s and more
    #[arg(long, conflicts_with = "no_control")]
    pub(super) duet: bool,
    #[command(flatten)]
    pub(super) count: CountArgs,
    #[command(flatten)]
    pub(super) generator: GeneratorArgs,
    /// Writes the result as JSON, every run included
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Writes the result as one page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

/// A server with its load.
pub(super) struct Stand {
    pub(super) server: Ready,
    pub(super) load: Chosen,
    pub(super) arrivals: Arrivals,
    pub(super) generator: Generator,
}

impl Beside for Args {
    const PURPOSE: Purpose = Purpose::Again;
}

impl Loads<Args> {
    /// Counts both, where that was asked for.
    pub(super) fn counted(&self, watcher: &mut Watcher) -> Result<Option<Pair>, Failure> {
        let (load, generator) = (&*self.load, &self.generator);
        self.count
            .pair(load, generator, [&self.a, &self.b], watcher)
    }

    /// Starts or finds a server, and loads it with what has to be there.
    pub(super) fn stand(&self, side: &Side, base: &Chosen) -> Result<Stand, Failure> {
        let load = side.load(base.clone())?;
        let server = Ready::find(side, &load.workload, &self.generator)?;
        let generator = self.generator.generator(&load)?;
        runs::first(&*self.load, &self.generator, &generator, &server)?;
        Ok(Stand {
            server,
            load,
            arrivals: runs::arrivals(&*self.load, &self.generator)?,
            generator,
        })
    }
}
