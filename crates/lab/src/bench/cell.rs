//! One workload on one server, once: the unit of a matrix.

use std::ffi::OsString;
use std::time::Duration;

use tidewire_load::trust::Trust;
use tidewire_load::workload::{Extent, Outcome, Plan, Purpose, Watch};

use super::counted::{Counts, Want};
use super::generator::GeneratorArgs;
use super::loads::{Beside, Loads};
use super::processes;
use super::runs;
use super::side::Side;
use super::target::Ready;
use super::watch::Watcher;
use tidewire_command::exit::Failure;

/// A load and what makes it.
pub(crate) type Cell = Loads<Args>;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    generator: GeneratorArgs,
}

impl Beside for Args {
    const PURPOSE: Purpose = Purpose::Again;
}

/// The result of a run.
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) trust: Trust,
}

/// How long a run is, as words of a single run.
fn length(extent: Extent) -> Vec<String> {
    let word = |flag: &str, time: Duration| format!("--{flag}={}us", time.as_micros());
    match extent {
        Extent::Time { warm_up, measured } => {
            vec![word("warmup", warm_up), word("duration", measured)]
        }
        Extent::Count(count) => vec![format!("--count={count}")],
        Extent::Rounds => Vec::new(),
    }
}

impl Cell {
    /// How many connections it has.
    pub(crate) fn connections(&self) -> usize {
        self.generator.connections()
    }

    /// Counts what the server spends on each message; the `place`-th of several that are counted at once.
    pub(crate) fn count(
        &self,
        side: &Side,
        want: &Want<'_>,
        place: usize,
    ) -> Result<Counts, Failure> {
        want.count(&*self.load, &self.generator.elsewhere(place), side)
    }

    /// Starts the server, loads it for so long, and stops it. `words` are the arguments that this
    /// load was read from.
    pub(crate) fn run(
        &self,
        words: &[String],
        side: &Side,
        extent: Extent,
        watcher: &mut Watcher,
    ) -> Result<Ran, Failure> {
        if self.load.url().is_some() {
            return Err(Failure::usage(
                "a URL is of one server: a matrix has servers of its own",
            ));
        }
        let load = side.load(self.load.load()?.endless())?;
        let plan = Plan {
            workload: load.workload.clone(),
            connections: self.generator.connections(),
            arrivals: runs::arrivals(&*self.load, &self.generator)?,
            extent,
        };
        let generator = self.generator.generator(&load)?;
        let server = Ready::find(side, &load.workload, &self.generator)?;
        runs::first(&*self.load, &self.generator, &generator, &server)?;
        let goes_on: Watch<'_> = &mut |_| !watcher.interrupted();
        let words = std::iter::once("bench".to_owned()).chain(words.iter().cloned());
        let words = words.chain(length(extent)).map(OsString::from);
        let target = server.target();
        let outcome = processes::run(&self.generator, words, &plan, &generator, target, goes_on)
            .map_err(|e| runs::failed(&e, &server))?;
        server.stop()?;
        Ok(Ran {
            trust: Trust::of(&plan, &outcome),
            outcome,
        })
    }
}
