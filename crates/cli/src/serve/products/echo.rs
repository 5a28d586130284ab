//! The two smallest services, which have no settings.

use tidewire_echo::{Discard, Echo};

use crate::exit::Failure;
use crate::serve::listeners::kind::{Mode, Service};
use crate::serve::product::{Entry, Frame, Product, Serving};

static SENDS_BACK: Service = Service {
    is_default: true,
    ..Service::new(
        "echo",
        &[Mode {
            name: None,
            ports: &[12345],
        }],
    )
};
static DROPS: Service = Service::new(
    "discard",
    &[Mode {
        name: None,
        ports: &[12346],
    }],
);

/// The echo service, which sends back the bytes that it receives.
pub(super) static ECHO: Entry = Entry::of::<EchoOptions>(&SENDS_BACK, "Echo");
/// Receives and drops.
pub(super) static DISCARD: Entry = Entry::of::<DiscardOptions>(&DROPS, "Discard");

#[derive(Debug, clap::Args)]
struct EchoOptions {}

#[derive(Debug, clap::Args)]
struct DiscardOptions {}

/// Counters for services without counters of their own.
struct Uncounted;

impl Serving for Uncounted {}

impl Product for EchoOptions {
    fn serve(&self, frame: &mut Frame<'_>) -> Result<Box<dyn Serving>, Failure> {
        frame.add(SENDS_BACK.kind(0), Echo);
        Ok(Box::new(Uncounted))
    }
}

impl Product for DiscardOptions {
    fn serve(&self, frame: &mut Frame<'_>) -> Result<Box<dyn Serving>, Failure> {
        frame.add(DROPS.kind(0), Discard);
        Ok(Box::new(Uncounted))
    }
}
