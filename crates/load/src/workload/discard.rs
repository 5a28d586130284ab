//! The discard load: bytes without an answer, as fast as they are taken.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tidewire::Link;
use tidewire_command::count;

use super::client::Driver;
use super::execution::{Execution, Made};
use super::failure::Failure;
use super::fault::{Fault, Wrong};
use super::flight::Flight;
use super::generator::Watch;
use super::load::{Baseline, Instead, Load, Scripted, Workload};
use super::null::Replies;
use super::options::{Chosen, Kind, Options, Unfit, at_least_one, bounded};
use super::stage::Desk;

/// Bytes without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DiscardLoad {
    /// Bytes of a message, at least 1. Messages exist only in the counting.
    pub size: usize,
    /// Messages handed to the kernel at once, at least 1.
    pub batch: u32,
}

impl Load for DiscardLoad {
    fn name(&self) -> &'static str {
        "discard"
    }

    fn spec(&self) -> Value {
        json!(self)
    }

    fn unit(&self) -> &'static str {
        "messages"
    }

    fn described(&self) -> String {
        format!("discard of {} bytes, {} a write", self.size, self.batch)
    }

    fn is_answered(&self) -> bool {
        false
    }

    fn counted(&self) -> Option<Scripted> {
        None
    }

    fn instead(&self, service: Instead) -> Option<Workload> {
        (service == Instead::Discard).then(|| Workload::of(*self))
    }

    fn baseline(&self) -> Baseline {
        Baseline::Null(Replies::Nothing)
    }

    fn go(&self, execution: &Execution<'_, '_>, watch: Watch<'_>) -> Result<Made, Failure> {
        let (load, dealt) = (*self, execution.dealt());
        execution.go(true, watch, move |connection| {
            Discard::new(load, dealt.count(connection), dealt.flight(connection))
        })
    }
}

/// One connection of the load.
pub(super) struct Discard {
    size: usize,
    /// A full batch of zeros; sent again and again without a copy.
    batch: Bytes,
    /// Messages still to be sent; `u64::MAX` has no end.
    left: u64,
    /// Messages written that the kernel has not yet taken whole.
    writing: u64,
    flight: Flight,
}

impl Discard {
    pub(super) fn new(load: DiscardLoad, count: u64, flight: Flight) -> Discard {
        Discard {
            size: load.size,
            batch: Bytes::from(vec![0; load.size * load.batch as usize]),
            left: count,
            writing: 0,
            flight,
        }
    }
}

impl Driver for Discard {
    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        if link.full() {
            return self.flight.blocked();
        }
        let taken = std::mem::take(&mut self.writing);
        if taken > 0 {
            desk.count(taken, taken * self.size as u64);
            if desk.measuring() {
                desk.answered(link.clock());
            }
        }
        let most = self.left.min((self.batch.len() / self.size) as u64);
        let messages = self.flight.take(most, link, desk);
        self.flight.forget();
        if messages == 0 {
            return;
        }
        self.left -= if self.left == u64::MAX { 0 } else { messages };
        self.writing = messages;
        link.write_shared(self.batch.slice(..messages as usize * self.size));
    }

    fn received(&mut self, bytes: &[u8], _: &mut Link<'_>, _: &mut Desk) -> Result<usize, Wrong> {
        let n = bytes.len();
        let what = format!("{n} bytes came from a service that answers nothing");
        Err(Fault::ReplyBeforeRequest.because(what))
    }

    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong> {
        self.send(link, desk);
        Ok(())
    }

    fn abandon(&mut self, _: &mut Desk) -> Option<u64> {
        Some(std::mem::take(&mut self.writing))
    }

    fn end(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        self.flight.end(self.left, link, desk);
        self.left = 0;
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.writing == 0
    }

    fn is_waiting(&self) -> bool {
        self.writing > 0
    }

    fn owed(&self) -> String {
        format!("{} messages not taken", self.writing)
    }
}

/// Bytes without an answer.
pub(super) const KIND: Kind = Kind::of::<DiscardArgs>(
    "discard",
    "Bytes without an answer: what the machine can carry",
)
.used(
    &["tidewire bench discard --size 4096 --duration 3s"],
    &["tidewire bench ab discard --a engine=threads --b engine=uring"],
);

/// The discard load.
#[derive(Clone, Debug, clap::Args)]
struct DiscardArgs {
    /// Bytes of a message
    #[arg(long, default_value = "17", value_name = "BYTES", value_parser = count::bytes)]
    size: usize,
    /// Messages in each write; with --rate, most of them
    #[arg(long, default_value = "4096", value_name = "N", value_parser = count::some)]
    batch: u32,
}

impl Options for DiscardArgs {
    fn load(&self) -> Result<Chosen, Unfit> {
        at_least_one("--size", self.size)?;
        bounded(self.size, self.batch)?;
        Ok(Chosen::of(Workload::of(DiscardLoad {
            size: self.size,
            batch: self.batch,
        })))
    }
}
