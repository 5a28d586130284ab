//! The connect load: connections that are opened and closed, one after another in each place.
//!
//! The idea: a kernel completes handshakes even if the server sleeps. So each connection has one
//! message echoed before it is closed, which proves that the server has accepted it; a setting
//! switches this off.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tidewire::{Instant, Link};
use tidewire_command::count;

use super::client::Driver;
use super::echo::Messages;
use super::execution::{Execution, Made};
use super::failure::Failure;
use super::fault::{Fault, Wrong};
use super::flight::Flight;
use super::generator::Watch;
use super::load::{Baseline, Load, Scripted, Workload};
use super::null::Replies;
use super::options::{Chosen, Kind, Options, Unfit, bounded};
use super::stage::Desk;
use super::turns::Slot;

/// Connections that are opened and closed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ConnectLoad {
    /// Bytes of the message that each connection has echoed before it is closed; with 0 the
    /// connection is closed at once, accepted or not.
    pub size: usize,
}

impl Load for ConnectLoad {
    fn name(&self) -> &'static str {
        "connect"
    }

    fn service(&self) -> &'static str {
        "echo"
    }

    fn spec(&self) -> Value {
        json!(self)
    }

    fn unit(&self) -> &'static str {
        "connections"
    }

    fn described(&self) -> String {
        match self.size {
            0 => "connections opened and closed".to_owned(),
            size => format!("connections opened, an echo of {size} bytes, and closed"),
        }
    }

    fn is_lock_step(&self) -> bool {
        true
    }

    fn renews(&self) -> bool {
        true
    }

    fn counted(&self) -> Option<Scripted> {
        Some(Scripted::connections(Workload::of(*self)))
    }

    fn baseline(&self) -> Baseline {
        Baseline::Null(Replies::Same)
    }

    fn go(&self, execution: &Execution<'_, '_>, watch: Watch<'_>) -> Result<Made, Failure> {
        let (load, dealt) = (*self, execution.dealt());
        let connections = dealt.connections;
        let slot = |connection| {
            let pace = dealt.pace(connection, connections);
            Slot::new(dealt.count(connection), pace)
        };
        let slots: Arc<[Slot]> = (0..connections as u64).map(slot).collect();
        execution.go(false, watch, move |connection| {
            Connect::new(load, &slots, connection)
        })
    }
}

/// One connection of the load.
pub(super) struct Connect {
    slots: Arc<[Slot]>,
    connection: u64,
    messages: Messages,
    size: usize,
    flight: Flight,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Fresh,
    Asked,
    Answered,
}

impl Connect {
    pub(super) fn new(load: ConnectLoad, slots: &Arc<[Slot]>, connection: u64) -> Connect {
        Connect {
            slots: slots.clone(),
            connection,
            messages: Messages::new(load.size.max(1), connection),
            size: load.size,
            flight: Flight::new(None),
            state: State::Fresh,
        }
    }

    fn slot(&self) -> &Slot {
        &self.slots[self.connection as usize]
    }

    fn answered(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        self.state = State::Answered;
        desk.count(1, self.size as u64);
        self.flight.answered(1, link, desk);
        link.finish();
    }
}

impl Driver for Connect {
    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        if self.state != State::Fresh || self.slot().left() == 0 {
            return;
        }
        let slots = self.slots.clone();
        if !slots[self.connection as usize].begin(&mut self.flight, link) {
            return;
        }
        self.slot().spend(1);
        if self.size == 0 {
            return self.answered(link, desk);
        }
        self.state = State::Asked;
        self.messages.write(1, link, desk);
    }

    fn received(
        &mut self,
        bytes: &[u8],
        link: &mut Link<'_>,
        desk: &mut Desk,
    ) -> Result<usize, Wrong> {
        if self.size == 0 {
            return Err(Fault::ReplyBeforeRequest.because("bytes came, and nothing was sent"));
        }
        if self.messages.check(bytes, desk)? > 0 {
            self.answered(link, desk);
        }
        Ok(bytes.len())
    }

    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong> {
        self.send(link, desk);
        Ok(())
    }

    fn abandon(&mut self, _: &mut Desk) -> Option<u64> {
        let lost = self.state == State::Asked;
        self.state = State::Answered;
        Some(lost.into())
    }

    fn end(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        self.slot().end(link, desk);
    }

    fn is_done(&self) -> bool {
        self.slot().left() == 0 && self.state != State::Asked
    }

    fn is_waiting(&self) -> bool {
        self.state == State::Asked
    }

    fn is_in_a_reply(&self) -> bool {
        self.messages.partial > 0
    }

    fn follows(&self, now: Instant) -> Option<Instant> {
        (self.state == State::Answered).then(|| self.slot().follow(now))
    }

    fn owed(&self) -> String {
        match self.state {
            State::Fresh => "nothing was sent yet".into(),
            State::Asked => "its message unanswered".into(),
            State::Answered => "a close in order".into(),
        }
    }
}

/// Connections that are opened and closed.
pub(super) const KIND: Kind = Kind::of::<ConnectArgs>(
    "connect",
    "Connections that are opened, have one message echoed, and are closed",
)
.used(
    &["tidewire bench connect --connections 50 --duration 3s"],
    &["tidewire bench ab connect --a placement=shared --b placement=acceptor"],
);

/// The load of connections that are opened and closed.
#[derive(Clone, Debug, clap::Args)]
struct ConnectArgs {
    /// Bytes of the message that each connection has echoed before it is closed, which shows that a server
    /// has accepted it; 0 closes it at once
    #[arg(long, default_value = "64", value_name = "BYTES", value_parser = count::bytes)]
    size: usize,
}

impl Options for ConnectArgs {
    fn load(&self) -> Result<Chosen, Unfit> {
        bounded(self.size, 1)?;
        Ok(Chosen::of(Workload::of(ConnectLoad { size: self.size })))
    }
}
