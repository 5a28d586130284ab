//! One workload on one server, once: what a matrix is made of.

use clap::Subcommand;
use tidewire_load::trust::Trust;
use tidewire_load::workload::{self, Extent, Outcome, Plan};

use super::generator::GeneratorArgs;
use super::http::HttpArgs;
use super::kv::KvArgs;
use super::load::{AckArgs, ConnectArgs, DiscardArgs, EchoArgs, IdleArgs, LoadArgs};
use super::side::Side;
use super::single;
use super::target::Ready;
use super::watch::Watcher;
use crate::exit::Failure;

/// A load and who makes it.
#[derive(Debug, Subcommand)]
pub(crate) enum Cell {
    Echo(Args<EchoArgs>),
    Ack(Args<AckArgs>),
    Kv(Args<KvArgs>),
    Http(Args<HttpArgs>),
    Discard(Args<DiscardArgs>),
    Idle(Args<IdleArgs>),
    Connect(Args<ConnectArgs>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args<L: LoadArgs> {
    #[command(flatten)]
    load: L,
    #[command(flatten)]
    generator: GeneratorArgs,
}

/// What a run has come to.
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) trust: Trust,
}

impl Cell {
    /// How many connections it has.
    pub(crate) fn connections(&self) -> usize {
        match self {
            Cell::Echo(args) => args.generator.connections(),
            Cell::Ack(args) => args.generator.connections(),
            Cell::Kv(args) => args.generator.connections(),
            Cell::Http(args) => args.generator.connections(),
            Cell::Discard(args) => args.generator.connections(),
            Cell::Idle(args) => args.generator.connections(),
            Cell::Connect(args) => args.generator.connections(),
        }
    }

    /// Starts the server, loads it, and stops it.
    pub(crate) fn run(
        &self,
        side: &Side,
        extent: Extent,
        watcher: &mut Watcher,
    ) -> Result<Ran, Failure> {
        match self {
            Cell::Echo(args) => args.run(side, extent, watcher),
            Cell::Ack(args) => args.run(side, extent, watcher),
            Cell::Kv(args) => args.run(side, extent, watcher),
            Cell::Http(args) => args.run(side, extent, watcher),
            Cell::Discard(args) => args.run(side, extent, watcher),
            Cell::Idle(args) => args.run(side, extent, watcher),
            Cell::Connect(args) => args.run(side, extent, watcher),
        }
    }
}

impl<L: LoadArgs> Args<L> {
    fn run(&self, side: &Side, extent: Extent, watcher: &mut Watcher) -> Result<Ran, Failure> {
        let load = side.load(self.load.load()?.endless())?;
        let plan = Plan {
            workload: load.workload,
            connections: self.generator.connections(),
            arrivals: single::arrivals(&self.load, &self.generator)?,
            extent,
        };
        let generator = self.generator.generator(&load)?;
        let server = Ready::find(side, &load.workload, &self.generator)?;
        single::first(&self.load, plan.connections, &generator, &server)?;
        let goes_on = &mut |_| !watcher.interrupted();
        let outcome = workload::run(&plan, &generator, server.target(), goes_on)
            .map_err(|e| single::failed(&e, &server))?;
        server.stop()?;
        Ok(Ran {
            trust: Trust::of(&plan, &outcome),
            outcome,
        })
    }
}
