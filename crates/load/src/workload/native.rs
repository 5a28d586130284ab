//! The load of the native protocol: a producer's session on each connection, the same that programs
//! use, so that every acknowledgement is checked as it is there.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tidewire::{Instant, Link};
use tidewire_ingest::client::{Amount, Event, Level, Producing, Session};

use super::client::Driver;
use super::execution::{Execution, Made};
use super::failure::Failure;
use super::fault::Wrong;
use super::flight::Flight;
use super::generator::Watch;
use super::load::{Baseline, Load, Scripted, Workload};
use super::stage::Desk;

/// Bytes of a message in front of its payload.
const HEADER: usize = tidewire_ingest::classic::HEADER;
/// Pieces of at most this many bytes are copied into the output, larger ones are shared with it.
const COPIED_MAX: usize = 4096;

/// Messages to a log, acknowledged at a level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NativeLoad {
    /// The level of acknowledgements: what an acknowledged message survives.
    #[serde(serialize_with = "by_name")]
    pub level: Level,
    /// Whether each connection is a producer with a name, `bench-0` and so on.
    pub named: bool,
    /// Bytes of a payload.
    pub payload: u32,
    /// Messages handed to the kernel at once, at least 1.
    pub batch: u32,
    /// Most messages sent and not acknowledged; 0 is what the server grants.
    pub window: u64,
}

fn by_name<S: Serializer>(level: &Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name(*level))
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Received => "received",
        Level::Durable => "durable",
        Level::Replicated => "replicated",
    }
}

impl NativeLoad {
    /// Bytes of a message.
    pub fn message_len(&self) -> usize {
        HEADER + self.payload as usize
    }
}

impl Load for NativeLoad {
    fn name(&self) -> &'static str {
        "ingest"
    }

    fn tag(&self) -> &'static str {
        "native"
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
        let named = if self.named { ", with names" } else { "" };
        let (len, batch, level) = (self.message_len(), self.batch, name(self.level));
        format!("ingest of {len} bytes, {batch} a write{window}, level {level}{named}")
    }

    fn is_lock_step(&self) -> bool {
        self.window == 1
    }

    fn counted(&self) -> Option<Scripted> {
        let own = Workload::of(*self);
        Some(Scripted::rounds(own, self.batch, self.message_len()))
    }

    fn needs_log(&self) -> bool {
        true
    }

    fn is_durable(&self) -> bool {
        self.level != Level::Received
    }

    fn baseline(&self) -> Baseline {
        Baseline::Unknown("the native protocol acknowledges what is in a log")
    }

    fn go(&self, execution: &Execution<'_, '_>, watch: Watch<'_>) -> Result<Made, Failure> {
        let (load, dealt) = (*self, execution.dealt());
        execution.go(false, watch, move |connection| {
            let flight = dealt.flight(connection);
            Native::new(load, dealt.count(connection), connection, flight)
        })
    }
}

/// One connection of the load.
pub(super) struct Native {
    load: NativeLoad,
    session: Session,
    payload: Vec<u8>,
    /// Messages still to be sent; `u64::MAX` has no end.
    left: u64,
    flight: Flight,
}

impl Native {
    pub(super) fn new(load: NativeLoad, count: u64, connection: u64, flight: Flight) -> Native {
        let producing = Producing {
            producer: if load.named {
                format!("bench-{connection}")
            } else {
                String::new()
            },
            level: load.level,
            // The window bounds the memory of the producer.
            buffer: Amount {
                messages: u64::MAX,
                bytes: u64::MAX,
            },
            window: Amount {
                messages: load.window,
                bytes: 0,
            },
            ..Producing::default()
        };
        Native {
            load,
            session: Session::new(producing).expect("names are short"),
            payload: vec![b'x'; load.payload as usize],
            left: count,
            flight,
        }
    }

    /// Messages that may go out now, in one write.
    fn next_batch(&self) -> u64 {
        let Some(granted) = self.session.granted() else {
            return 0;
        };
        let in_bytes = granted.window_bytes / self.load.message_len() as u64;
        let granted = u64::from(granted.window_messages).min(in_bytes).max(1);
        let window = match self.load.window {
            0 => granted,
            wanted => wanted.min(granted),
        };
        let room = window - self.session.held().messages.min(window);
        let most = self.left.min(window);
        if self.flight.is_paced() {
            return most.min(room);
        }
        let most = most.min(self.load.batch.into());
        if most <= room { most } else { 0 }
    }

    /// Hands over what the session has for the connection.
    fn write(&mut self, now: Instant, link: &mut Link<'_>) {
        while let Some(piece) = self.session.output(now) {
            if piece.len() <= COPIED_MAX {
                link.write(&piece);
            } else {
                link.write_shared(piece);
            }
        }
    }
}

impl Driver for Native {
    fn greet(&mut self, link: &mut Link<'_>) {
        let now = link.now();
        self.session.connected(now);
        self.write(now, link);
    }

    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        let messages = self.flight.take(self.next_batch(), link, desk);
        if messages == 0 {
            return;
        }
        self.left -= if self.left == u64::MAX { 0 } else { messages };
        for _ in 0..messages {
            let pushed = self.session.push(&self.payload);
            pushed.expect("a welcome came, and there is room");
        }
        self.write(link.now(), link);
    }

    fn received(
        &mut self,
        bytes: &[u8],
        link: &mut Link<'_>,
        desk: &mut Desk,
    ) -> Result<usize, Wrong> {
        let mut newly = Amount::default();
        let (mut refused, mut welcome) = (None, None);
        let done = self
            .session
            .received(bytes, link.now(), |event| match event {
                Event::Acknowledged { newly: more, .. } => {
                    newly.messages += more.messages;
                    newly.bytes += more.bytes;
                }
                Event::Refused(refusal) => {
                    refused = Some(format!("refused: {}, {}", refusal.reason, refusal.text));
                }
                Event::Welcome(granted) => welcome = Some(granted),
                Event::KeepAlive { .. } => {}
            });
        let done = done.map_err(|e| e.to_string())?;
        if let Some(granted) = welcome
            && granted.payload_max < self.load.payload
        {
            let most = granted.payload_max;
            return Err(format!("it takes payloads of at most {most} bytes").into());
        }
        if let Some(refused) = refused {
            // A load that is refused for a while cannot be measured.
            return Err(refused.into());
        }
        if newly.messages > 0 {
            desk.count(newly.messages, newly.bytes);
            self.flight.answered(newly.messages, link, desk);
        }
        if desk.is_sending() && (newly.messages > 0 || welcome.is_some()) {
            self.send(link, desk);
        }
        Ok(done)
    }

    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong> {
        self.send(link, desk);
        Ok(())
    }

    /// The session sends again what was not acknowledged, as it does for programs: nothing is lost.
    fn abandon(&mut self, _: &mut Desk) -> Option<u64> {
        self.session.disconnected();
        Some(0)
    }

    fn end(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        self.flight.end(self.left, link, desk);
        self.left = 0;
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.session.is_settled()
    }

    fn is_waiting(&self) -> bool {
        self.session.granted().is_none() || !self.session.is_settled()
    }

    fn owed(&self) -> String {
        match self.session.granted() {
            None => "no welcome".into(),
            Some(_) => format!("{} messages not acknowledged", self.session.held().messages),
        }
    }
}
