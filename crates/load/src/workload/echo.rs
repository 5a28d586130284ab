//! The echo load: messages that must come back as they were sent.

use serde::Serialize;
use serde_json::{Value, json};
use tidewire::Link;
use tidewire_command::count;

use super::client::Driver;
use super::discard::DiscardLoad;
use super::execution::{Execution, Made};
use super::failure::Failure;
use super::fault::{Fault, Wrong};
use super::flight::Flight;
use super::generator::Watch;
use super::load::{Baseline, Instead, Load, Scripted, Workload};
use super::null::Replies;
use super::options::{Chosen, Kind, Options, Unfit, at_least_one, bounded};
use super::pattern::Pattern;
use super::stage::Desk;

/// Messages that come back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EchoLoad {
    /// Bytes of a message, at least 1.
    pub size: usize,
    /// Messages in flight on each connection, at least 1.
    pub pipeline: u32,
    /// Messages handed to the kernel at once; a write waits until the pipeline has room for so
    /// many. 0 writes whatever there is room for.
    pub batch: u32,
}

impl Load for EchoLoad {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn spec(&self) -> Value {
        json!(self)
    }

    fn unit(&self) -> &'static str {
        "requests"
    }

    fn described(&self) -> String {
        let batch = match self.batch {
            0 => String::new(),
            batch => format!(", {batch} a write"),
        };
        format!(
            "echo of {} bytes, {} in flight{batch}",
            self.size, self.pipeline
        )
    }

    fn is_lock_step(&self) -> bool {
        self.pipeline == 1
    }

    fn counted(&self) -> Option<Scripted> {
        let whole = Workload::of(EchoLoad { batch: 0, ..*self });
        Some(Scripted::rounds(whole, self.pipeline, self.size))
    }

    fn instead(&self, service: Instead) -> Option<Workload> {
        (service == Instead::Discard).then(|| {
            Workload::of(DiscardLoad {
                size: self.size,
                batch: self.batch.max(1),
            })
        })
    }

    fn baseline(&self) -> Baseline {
        Baseline::Null(Replies::Same)
    }

    fn go(&self, execution: &Execution<'_, '_>, watch: Watch<'_>) -> Result<Made, Failure> {
        let (load, dealt) = (*self, execution.dealt());
        execution.go(false, watch, move |connection| {
            let flight = dealt.flight(connection);
            Echo::new(load, dealt.count(connection), connection, flight)
        })
    }
}

/// One connection of the load.
pub(super) struct Echo {
    load: EchoLoad,
    /// Messages still to be sent; `u64::MAX` has no end.
    left: u64,
    in_flight: u32,
    messages: Messages,
    flight: Flight,
}

impl Echo {
    pub(super) fn new(load: EchoLoad, count: u64, connection: u64, flight: Flight) -> Echo {
        Echo {
            load,
            left: count,
            in_flight: 0,
            messages: Messages::new(load.size, connection),
            flight,
        }
    }

    fn next_batch(&self) -> u64 {
        let room = self.load.pipeline - self.in_flight;
        let most = match self.load.batch {
            _ if self.flight.is_paced() => room,
            0 => room,
            batch => batch.min(self.load.pipeline),
        };
        let most = u64::from(most).min(self.left);
        if most <= room.into() { most } else { 0 }
    }
}

impl Driver for Echo {
    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        let messages = self.flight.take(self.next_batch(), link, desk);
        if messages == 0 {
            return;
        }
        self.left -= if self.left == u64::MAX { 0 } else { messages };
        // At most the pipeline, which is a u32.
        self.in_flight += messages as u32;
        self.messages.write(messages, link, desk);
    }

    fn received(
        &mut self,
        bytes: &[u8],
        link: &mut Link<'_>,
        desk: &mut Desk,
    ) -> Result<usize, Wrong> {
        let whole = self.messages.check(bytes, desk)?;
        if whole > 0 {
            self.in_flight -= whole;
            desk.count(whole.into(), u64::from(whole) * self.load.size as u64);
            self.flight.answered(whole.into(), link, desk);
            self.send(link, desk);
        }
        Ok(bytes.len())
    }

    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong> {
        self.send(link, desk);
        Ok(())
    }

    fn abandon(&mut self, _: &mut Desk) -> Option<u64> {
        self.flight.forget();
        self.messages.restart();
        Some(std::mem::take(&mut self.in_flight).into())
    }

    fn end(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        self.flight.end(self.left, link, desk);
        self.left = 0;
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.in_flight == 0
    }

    fn is_waiting(&self) -> bool {
        self.in_flight > 0
    }

    fn is_in_a_reply(&self) -> bool {
        self.messages.partial > 0
    }

    fn owed(&self) -> String {
        format!(
            "{} of {} messages in flight unanswered",
            self.in_flight, self.load.pipeline
        )
    }
}

/// Bytes that are compared to say what went wrong.
const COMPARED: usize = 64;
/// Bytes that may be missing from a reply to say that it is short.
const SHIFT_MAX: u64 = 1 << 16;

/// Messages of one size that are consecutive slices of the pattern and are echoed.
pub(super) struct Messages {
    size: usize,
    /// Positions in the stream of bytes.
    start: u64,
    sent_to: u64,
    received_to: u64,
    /// Bytes of the message at the front that have come.
    pub(super) partial: usize,
}

impl Messages {
    pub(super) fn new(size: usize, connection: u64) -> Messages {
        let start = Pattern::start(connection);
        Messages {
            size,
            start,
            sent_to: start,
            received_to: start,
            partial: 0,
        }
    }

    /// Messages that were sent before will not come back any more.
    fn restart(&mut self) {
        self.received_to = self.sent_to;
        self.start = self.sent_to;
        self.partial = 0;
    }

    pub(super) fn write(&mut self, messages: u64, link: &mut Link<'_>, desk: &Desk) {
        let end = self.sent_to + messages * self.size as u64;
        while self.sent_to < end {
            let piece = desk
                .stage
                .pattern
                .slice(self.sent_to, (end - self.sent_to) as usize);
            link.write(piece);
            self.sent_to += piece.len() as u64;
        }
    }

    /// Checks echoed bytes; returns how many messages they complete.
    pub(super) fn check(&mut self, bytes: &[u8], desk: &Desk) -> Result<u32, Wrong> {
        let pattern = &desk.stage.pattern;
        let owed = self.sent_to - self.received_to;
        if let Some(at) = pattern.difference(self.received_to, bytes) {
            return Err(self.difference(at, bytes, pattern));
        }
        if bytes.len() as u64 > owed {
            let what = format!("{} bytes came back, {owed} were owed", bytes.len());
            return Err(Fault::ReplyBeforeRequest.because(what));
        }
        self.received_to += bytes.len() as u64;
        self.partial += bytes.len();
        // At most the number of messages in flight, which is a u32.
        let messages = (self.partial / self.size) as u32;
        self.partial %= self.size;
        Ok(messages)
    }

    /// The echo differs from byte `at` on: finds out whether it is another part of the pattern.
    fn difference(&self, at: usize, bytes: &[u8], pattern: &Pattern) -> Wrong {
        let size = self.size as u64;
        let owed = self.sent_to - self.received_to;
        let message = (self.partial + at) / self.size + 1;
        let what = format!(
            "byte {at} of {} received is {:#04x}, not what was sent (message {message}, {owed} bytes owed)",
            bytes.len(),
            bytes[at]
        );
        let here = self.received_to + at as u64;
        // The bytes that follow, if they are enough not to equal another part by chance.
        let rest = &bytes[at..bytes.len().min(at + COMPARED)];
        let is = |position: u64| rest.len() >= 8 && pattern.difference(position, rest).is_none();
        let again = here - self.start >= size && is(here - size);
        let fault = if again {
            Fault::DuplicatedReply
        } else if here >= self.sent_to {
            Fault::ReplyBeforeRequest
        } else if is(here + size) {
            Fault::LostReply
        } else if (1..size.min(SHIFT_MAX)).any(|by| is(here + by)) {
            Fault::ShortReply
        } else {
            let len = bytes.len().min(at + COMPARED) - at;
            Fault::of_difference(&bytes[at..at + len], pattern.slice(here, len))
        };
        fault.because(what)
    }
}

/// Messages that come back.
pub(super) const KIND: Kind =
    Kind::of::<EchoArgs>("echo", "Messages that come back; every byte is checked").used(
        &[
            "tidewire bench echo --connections 50 --size 512 --duration 3s",
            "tidewire bench echo --addr db.example:12345 --rate 20k",
        ],
        &["tidewire bench ab echo --a engine=epoll --b engine=uring --rounds 20"],
    );

/// The echo load.
#[derive(Clone, Debug, clap::Args)]
struct EchoArgs {
    /// Bytes of a message
    #[arg(long, default_value = "512", value_name = "BYTES", value_parser = count::bytes)]
    size: usize,
    /// Messages in flight on each connection
    #[arg(long, default_value = "1", value_name = "N", value_parser = count::some)]
    pipeline: u32,
    /// Messages in each write; 0 is as many as the pipeline has room for. Not with --rate
    #[arg(long, default_value = "0", value_name = "N", value_parser = count::small)]
    batch: u32,
}

impl Options for EchoArgs {
    fn load(&self) -> Result<Chosen, Unfit> {
        at_least_one("--size", self.size)?;
        let most = if self.batch == 0 {
            self.pipeline
        } else {
            self.batch
        };
        bounded(self.size, most.min(self.pipeline))?;
        Ok(Chosen::of(Workload::of(EchoLoad {
            size: self.size,
            pipeline: self.pipeline,
            batch: self.batch,
        })))
    }

    fn says_batch(&self) -> bool {
        self.batch != 0
    }
}
