//! The acknowledgement load: messages streamed as the classic clients do, every acknowledgement
//! checked against the chain.

use std::time::Duration;

use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tidewire::{Instant, Link};
use tidewire_ingest::classic::{Chain, Classic, HEADER, Mode, header};
use tidewire_ingest::{Level, client};

use super::ack_fault::Inquest;
use super::client::Driver;
use super::discard::DiscardLoad;
use super::execution::{Execution, Made};
use super::failure::Failure;
use super::fault::{Fault, Wrong};
use super::flight::Flight;
use super::generator::Watch;
use super::load::{Baseline, Instead, Load, Scripted, Workload};
use super::native::NativeLoad;
use super::stage::{Desk, Round};

/// Messages that are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AckLoad {
    /// The dialect spoken.
    #[serde(serialize_with = "by_name")]
    pub mode: Mode,
    /// The level that the server's acknowledgements must have; only the server's settings know it.
    #[serde(serialize_with = "level_name")]
    pub level: Level,
    /// Bytes of a payload; 5 in the field.
    pub payload: u32,
    /// Messages handed to the kernel at once, at least 1.
    pub batch: u32,
    /// Most messages sent and not acknowledged; 0 is no limit.
    pub window: u64,
    /// When acknowledgements are read while messages are sent; `None` is whenever they come.
    pub checks: Option<Checks>,
    /// Repeats the load in rounds; `None` is one round.
    pub rounds: Option<Rounds>,
}

/// Acknowledgements are left unread and looked for now and then.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Checks {
    /// After so many messages,
    pub messages: u64,
    /// but not sooner than this after the last look.
    pub interval: Duration,
    /// How long a look waits, sending nothing, if nothing has come.
    pub patience: Duration,
}

/// Rounds, each of which ends when every message of it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rounds {
    /// How many, at least 1.
    pub rounds: u64,
    /// Messages in each, at least 1.
    pub messages: u64,
    /// Ids begin at 0 in each round instead of counting on.
    pub restart_ids: bool,
}

fn by_name<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(mode.name())
}

fn level_name<S: Serializer>(level: &Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(level.name())
}

impl AckLoad {
    /// Bytes of a message.
    pub fn message_len(&self) -> usize {
        HEADER + self.payload as usize
    }
}

impl Load for AckLoad {
    fn name(&self) -> &'static str {
        "ack"
    }

    fn mode(&self) -> Option<&'static str> {
        Some(self.mode.name())
    }

    fn spec(&self) -> Value {
        json!(self)
    }

    fn unit(&self) -> &'static str {
        "messages"
    }

    fn described(&self) -> String {
        let window = match self.window {
            0 => String::new(),
            window => format!(", window {window}"),
        };
        let (mode, len, batch) = (self.mode, self.message_len(), self.batch);
        let checks = self
            .checks
            .map_or("", |_| ", acknowledgements read now and then");
        let level = match self.level {
            Level::None => String::new(),
            level => format!(", level {level}"),
        };
        format!("ack/{mode} of {len} bytes, {batch} a write{window}{checks}{level}")
    }

    fn is_durable(&self) -> bool {
        self.level == Level::Durable
    }

    fn is_lock_step(&self) -> bool {
        self.window == 1
    }

    fn rounds(&self) -> Option<u64> {
        self.rounds.map(|of| of.rounds)
    }

    fn endless(&self) -> Option<Workload> {
        Some(Workload::of(AckLoad {
            rounds: None,
            ..*self
        }))
    }

    fn counted(&self) -> Option<Scripted> {
        let plain = Workload::of(AckLoad {
            checks: None,
            rounds: None,
            ..*self
        });
        Some(Scripted::rounds(plain, self.batch, self.message_len()))
    }

    fn instead(&self, service: Instead) -> Option<Workload> {
        Some(match service {
            Instead::Ack(mode) => Workload::of(AckLoad {
                mode,
                window: match mode {
                    Mode::RequestReply => 1,
                    _ => self.window,
                },
                ..*self
            }),
            Instead::Ingest => Workload::of(NativeLoad {
                level: match self.level {
                    Level::Received => client::Level::Received,
                    Level::None | Level::Durable => client::Level::Durable,
                },
                named: false,
                payload: self.payload,
                batch: self.batch,
                window: self.window,
            }),
            Instead::Discard => Workload::of(DiscardLoad {
                size: self.message_len(),
                batch: self.batch,
            }),
        })
    }

    fn needs_log(&self) -> bool {
        self.level != Level::None
    }

    fn server_args(&self) -> Vec<&'static str> {
        match self.level {
            Level::None => Vec::new(),
            level => vec!["--ack-level", level.name()],
        }
    }

    /// A server that keeps nothing answers from nothing.
    fn baseline(&self) -> Baseline {
        Baseline::Own(Workload::of(AckLoad {
            level: Level::None,
            rounds: None,
            ..*self
        }))
    }

    fn go(&self, execution: &Execution<'_, '_>, watch: Watch<'_>) -> Result<Made, Failure> {
        let (load, dealt) = (*self, execution.dealt());
        execution.go(false, watch, move |connection| {
            let flight = dealt.flight(connection);
            Acks::new(load, dealt.count(connection), connection, flight)
        })
    }
}

/// Batches of at most this many bytes are copied into the output, larger ones are shared with it.
const COPIED_MAX: usize = 4096;

/// One connection of the load.
pub(super) struct Acks {
    load: AckLoad,
    connection: u64,
    batch: BatchBytes,
    chain: Chain,
    /// Rounds to come after this one.
    rounds_left: u64,
    /// Messages of this round still to be sent; `u64::MAX` has no end.
    left: u64,
    next_id: u64,
    unacknowledged: u64,
    flight: Flight,
    round_began: Option<Instant>,
    round_messages: u64,
    reading: Reading,
    /// An acknowledgement is missing: is it lost, or does it come later?
    inquest: Option<Inquest>,
}

/// Whether acknowledgements are read, where that is done in checks.
enum Reading {
    /// Acknowledgements are read whenever they arrive.
    Freely,
    /// The check is due later; `sent` messages were sent since the last look, at `looked`.
    Later { sent: u64, looked: Instant },
    /// A look is under way, and nothing is sent meanwhile.
    Looking,
}

impl Acks {
    pub(super) fn new(load: AckLoad, count: u64, connection: u64, flight: Flight) -> Acks {
        let classic = Classic::preset(load.mode);
        Acks {
            load,
            connection,
            batch: BatchBytes::new(&load),
            chain: Chain::new(classic.form),
            rounds_left: load.rounds.map_or(0, |rounds| rounds.rounds - 1),
            left: load.rounds.map_or(count, |rounds| rounds.messages),
            next_id: 0,
            unacknowledged: 0,
            flight,
            round_began: None,
            round_messages: 0,
            reading: Reading::Freely,
            inquest: None,
        }
    }

    /// Messages that may go out now, in one write.
    fn next_batch(&self) -> u64 {
        // By the clock a write has what is due, and the window is a bound on messages, not on writes.
        let paced = self.flight.is_paced();
        let most = self.left.min(u64::from(self.load.batch));
        match self.load.window {
            0 => most,
            window if paced => most.min(window.saturating_sub(self.unacknowledged)),
            window => {
                let most = most.min(window);
                if self.unacknowledged + most <= window {
                    most
                } else {
                    0
                }
            }
        }
    }

    /// Looks for acknowledgements if it is time for that.
    fn check(&mut self, messages: u64, now: Instant, link: &mut Link<'_>) {
        let Some(checks) = self.load.checks else {
            return;
        };
        if self.left == 0 {
            // The round is over when the last acknowledgement has come: read on.
            self.reading = Reading::Freely;
            link.clear_timer();
            return link.resume();
        }
        match &mut self.reading {
            Reading::Freely => {
                self.reading = Reading::Later {
                    sent: messages,
                    looked: now,
                };
                link.pause();
            }
            Reading::Later { sent, looked } => {
                *sent += messages;
                if *sent >= checks.messages && now.since(*looked) >= checks.interval {
                    self.reading = Reading::Looking;
                    link.set_timer(now + checks.patience);
                    link.resume();
                }
            }
            Reading::Looking => {}
        }
    }

    /// A look is over: sends on.
    fn looked(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        if matches!(self.reading, Reading::Looking) {
            self.reading = Reading::Later {
                sent: 0,
                looked: link.clock(),
            };
            link.clear_timer();
            link.pause();
            self.send(link, desk);
        }
    }

    fn acknowledged(&mut self, messages: u64, link: &mut Link<'_>, desk: &mut Desk) {
        self.unacknowledged -= messages;
        desk.count(messages, messages * self.load.message_len() as u64);
        self.flight.answered(messages, link, desk);
        if self.left == 0 && self.unacknowledged == 0 {
            self.round_over(link.clock(), desk);
        }
    }

    fn round_over(&mut self, now: Instant, desk: &mut Desk) {
        let Some(rounds) = self.load.rounds else {
            return;
        };
        if let Some(began) = self.round_began.take() {
            desk.stage.round(Round {
                connection: self.connection,
                messages: std::mem::take(&mut self.round_messages),
                elapsed: now.since(began),
            });
        }
        if self.rounds_left > 0 {
            self.rounds_left -= 1;
            self.left = rounds.messages;
            if rounds.restart_ids {
                self.next_id = 0;
                self.chain = Chain::new(Classic::preset(self.load.mode).form);
            }
        }
    }
}

impl Driver for Acks {
    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        if self.inquest.is_some() {
            return;
        }
        let messages = self.next_batch();
        if messages == 0 && self.left > 0 && matches!(self.reading, Reading::Later { .. }) {
            // The window is full: only an acknowledgement opens it.
            self.reading = Reading::Looking;
            return link.resume();
        }
        if matches!(self.reading, Reading::Looking) {
            return self.flight.blocked();
        }
        let messages = self.flight.take(messages, link, desk);
        if messages == 0 {
            return;
        }
        let now = link.clock();
        self.round_began.get_or_insert(now);
        self.left -= if self.left == u64::MAX { 0 } else { messages };
        self.unacknowledged += messages;
        self.round_messages += messages;
        self.batch.write(self.next_id, messages as usize, link);
        self.next_id += messages;
        self.check(messages, now, link);
    }

    fn received(
        &mut self,
        bytes: &[u8],
        link: &mut Link<'_>,
        desk: &mut Desk,
    ) -> Result<usize, Wrong> {
        if let Some(inquest) = &mut self.inquest {
            return inquest.hear(bytes);
        }
        let before = self.chain.acknowledged();
        let taken = match self.chain.check(bytes) {
            Ok(taken) => taken,
            Err(broken) => {
                let form = Classic::preset(self.load.mode).form;
                let inquest = Inquest::of(&broken, form, self.next_id)?;
                // The chain says no more; all of it is heard again.
                self.inquest = Some(inquest);
                link.resume();
                link.set_timer(link.clock() + Inquest::PATIENCE);
                return self.inquest.as_mut().map_or(Ok(0), |it| it.hear(bytes));
            }
        };
        let messages = self.chain.acknowledged() - before;
        if messages > self.unacknowledged {
            let owed = self.unacknowledged;
            let what = format!("{messages} messages acknowledged, only {owed} were outstanding");
            return Err(Fault::ReplyBeforeRequest.because(what));
        }
        if messages > 0 {
            self.acknowledged(messages, link, desk);
            self.looked(link, desk);
            self.send(link, desk);
        }
        Ok(taken)
    }

    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong> {
        if let Some(inquest) = &self.inquest {
            return Err(inquest.lost());
        }
        match self.reading {
            Reading::Looking => self.looked(link, desk),
            Reading::Freely | Reading::Later { .. } => self.send(link, desk),
        }
        Ok(())
    }

    /// The chain of another connection begins anew.
    fn abandon(&mut self, desk: &mut Desk) -> Option<u64> {
        self.flight.forget();
        self.chain = Chain::new(Classic::preset(self.load.mode).form);
        self.next_id = 0;
        self.reading = Reading::Freely;
        self.inquest = None;
        self.round_began = None;
        self.round_messages = 0;
        if self.left == 0 {
            // A round without its end has no time, and the next one follows.
            self.round_over(Instant::from_nanos(0), desk);
        }
        Some(std::mem::take(&mut self.unacknowledged))
    }

    fn end(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        if self.inquest.is_some() {
            return;
        }
        self.flight.end(self.left, link, desk);
        (self.left, self.rounds_left) = (0, 0);
        self.reading = Reading::Freely;
        link.clear_timer();
        link.resume();
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.rounds_left == 0 && self.unacknowledged == 0
    }

    fn is_waiting(&self) -> bool {
        self.unacknowledged > 0
    }

    fn owed(&self) -> String {
        format!("{} messages not acknowledged", self.unacknowledged)
    }
}

/// A batch ready to be sent, but for the ids.
struct BatchBytes {
    message_len: usize,
    bytes: Bytes,
}

impl BatchBytes {
    fn new(load: &AckLoad) -> BatchBytes {
        let order = Classic::preset(load.mode).order;
        let mut message = header(order, [0; 8], load.payload).to_vec();
        message.resize(load.message_len(), b'x');
        BatchBytes {
            message_len: message.len(),
            bytes: Bytes::from(message.repeat(load.batch as usize)),
        }
    }

    /// Writes `messages` with ids from `first` on.
    fn write(&mut self, first: u64, messages: usize, link: &mut Link<'_>) {
        // All earlier bytes were sent, so nothing else holds the buffer. If something does after
        // all, the bytes are copied.
        let mut bytes = bytes::BytesMut::from(std::mem::take(&mut self.bytes));
        let all = bytes.chunks_exact_mut(self.message_len).take(messages);
        for (message, id) in all.zip(first..) {
            message[..8].copy_from_slice(&id.to_ne_bytes());
        }
        self.bytes = bytes.freeze();
        let len = messages * self.message_len;
        if len <= COPIED_MAX {
            link.write(&self.bytes[..len]);
        } else {
            link.write_shared(self.bytes.slice(..len));
        }
    }
}
