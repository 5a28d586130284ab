//! A native server on the simulated network, and clients that say what they are told to.

use std::sync::Arc;
use std::time::Duration;

use tidewire::sim::{Conditions, LoopId, Outcome, PlainId, PlainState, Sim};
use tidewire_ingest::native::codec::{
    Begin, Hello, Level, Produce, Read, ReaderFrame, Reason, ServerFrame, Subscribe,
    message_header, parser,
};
use tidewire_ingest::native::{Counters, IngestService, Settings};
use tidewire_ingest::testing::SteppedLog;

/// Settings without threads.
pub(crate) fn settings() -> Settings {
    Settings {
        read_threads: 0,
        // The hosts of the simulated network are all others than the server's.
        protected: false,
        ..Settings::default()
    }
}

/// What a producer says first: durable, dense, from id 1, stream `default`.
pub(crate) fn produce(producer: &str) -> Produce<'_> {
    Produce {
        level: Some(Level::Durable),
        sparse: false,
        adopt: false,
        window_messages: 0,
        window_bytes: 0,
        first_id: 1,
        stream: "",
        producer,
        token: "",
    }
}

/// The hello of an anonymous producer, to a stream.
pub(crate) fn produce_to(stream: &str) -> Produce<'_> {
    Produce {
        stream,
        ..produce("")
    }
}

/// What a reader says first: from the beginning to the tail, as much as there is.
pub(crate) fn subscribe() -> Subscribe<'static> {
    Subscribe {
        begin: Begin::Position(0),
        follow: false,
        may_be_absent: false,
        credit: u64::MAX,
        stream: "",
        cursor: "",
        token: "",
    }
}

/// A refusal without a time to try again.
pub(crate) fn refusal(id: u64, reason: Reason) -> Frame {
    Frame::Refusal {
        id,
        reason,
        retry_after_ms: 0,
    }
}

pub(crate) fn reader(world: &mut World, subscribe: Subscribe<'_>) -> Client {
    world.client(Hello::Subscribe(subscribe))
}

/// The bytes of a hello.
pub(crate) fn hello(hello: Hello<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    hello.encode(&mut bytes).unwrap();
    bytes
}

/// The payload of the message with this id.
pub(crate) fn payload(id: u64) -> Vec<u8> {
    vec![id as u8; (id % 7) as usize]
}

/// Messages with these ids.
pub(crate) fn messages(ids: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for id in ids {
        message(&mut bytes, id, &payload(id));
    }
    bytes
}

pub(crate) fn message(bytes: &mut Vec<u8>, id: u64, payload: &[u8]) {
    bytes.extend_from_slice(&message_header(id, payload.len() as u32));
    bytes.extend_from_slice(payload);
}

/// A frame of the server, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Welcome {
        level: Level,
        last_id: Option<u64>,
    },
    Ack(u64),
    KeepAlive(u64),
    Refusal {
        id: u64,
        reason: Reason,
        retry_after_ms: u32,
    },
    ReaderWelcome {
        first: u64,
        next: u64,
        start: u64,
    },
    Batch {
        first: u64,
        producer: String,
        messages: Vec<(u64, Vec<u8>)>,
    },
    End(u64),
    /// An end short of the tail.
    Short(u64),
    /// A frame to an administrator, as it is shown.
    Admin(String),
}

/// All whole frames in `bytes`.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut all = Vec::new();
    while let Read::Whole(frame, len) = ServerFrame::decode(bytes, 64 << 20).unwrap() {
        bytes = &bytes[len..];
        all.push(match frame {
            ServerFrame::Welcome(w) => Frame::Welcome {
                level: w.level,
                last_id: w.last_id,
            },
            ServerFrame::Ack {
                id,
                keep_alive: false,
                why: "",
            } => Frame::Ack(id),
            ServerFrame::Ack { id, .. } => Frame::KeepAlive(id),
            ServerFrame::Refusal(r) => Frame::Refusal {
                id: r.id,
                reason: r.reason,
                retry_after_ms: r.retry_after_ms,
            },
            ServerFrame::ReaderWelcome(w) => Frame::ReaderWelcome {
                first: w.first,
                next: w.next,
                start: w.start,
            },
            ServerFrame::Batch(b) => {
                let batch = parser(u32::MAX).parse(b.messages);
                assert_eq!(batch.bytes(), b.messages, "a torn message in a batch");
                let messages: Vec<(u64, Vec<u8>)> = batch
                    .frames()
                    .map(|f| (u64::from_le_bytes(f.id), f.payload.to_vec()))
                    .collect();
                assert_eq!(messages.len(), b.count as usize);
                Frame::Batch {
                    first: b.first,
                    producer: b.producer.to_owned(),
                    messages,
                }
            }
            ServerFrame::End { next, short: false } => Frame::End(next),
            ServerFrame::End { next, .. } => Frame::Short(next),
            admin @ (ServerFrame::AdminWelcome
            | ServerFrame::Stream(_)
            | ServerFrame::Place(_)
            | ServerFrame::Done { .. }) => Frame::Admin(format!("{admin:?}")),
            ServerFrame::Unknown(kind) => panic!("a frame of kind {kind}"),
        });
    }
    all
}

/// A server and its network.
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) log: SteppedLog,
    pub(crate) service: Arc<IngestService>,
    pub(crate) at: LoopId,
    addr: tidewire::Endpoint,
}

/// A client: a plain peer, and how much of what it was sent has been looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) peer: PlainId,
    seen: usize,
}

impl World {
    pub(crate) fn new(log: SteppedLog) -> World {
        World::with(log, settings(), 7)
    }

    pub(crate) fn with(log: SteppedLog, settings: Settings, seed: u64) -> World {
        World::on(Sim::under(seed, Conditions::calm()), log, settings)
    }

    pub(crate) fn on(mut sim: Sim, log: SteppedLog, settings: Settings) -> World {
        let limits = settings.limits();
        let service = Arc::new(IngestService::new(Arc::new(log.clone()), settings));
        let at = sim.add_loop();
        let served = sim.service(at, service.clone(), limits);
        let addr = sim.listen(served);
        World {
            sim,
            log,
            service,
            at,
            addr,
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.service.counters()
    }

    /// Lets everything happen that needs no deadline.
    pub(crate) fn quiet(&mut self) {
        let outcome = self.sim.run_until_quiet(Duration::from_secs(30));
        assert_ne!(outcome, Outcome::StepLimit, "it spins");
    }

    pub(crate) fn connect(&mut self) -> Client {
        Client {
            peer: self.sim.plain(&self.addr),
            seen: 0,
        }
    }

    /// Connects and says this.
    pub(crate) fn client(&mut self, first: Hello<'_>) -> Client {
        let client = self.connect();
        self.send(client, &hello(first));
        client
    }

    /// A producer that has been welcomed.
    pub(crate) fn producer(&mut self, produce: Produce<'_>) -> Client {
        let mut client = self.client(Hello::Produce(produce));
        let frames = self.frames(&mut client);
        assert!(matches!(frames[..], [Frame::Welcome { .. }]), "{frames:?}");
        client
    }

    pub(crate) fn send(&mut self, client: Client, bytes: &[u8]) {
        self.sim.send(client.peer, bytes);
        self.quiet();
    }

    /// Sends frames of a reader.
    pub(crate) fn say(&mut self, client: Client, frame: ReaderFrame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.send(client, &bytes);
    }

    /// The frames that have come since the last call.
    pub(crate) fn frames(&mut self, client: &mut Client) -> Vec<Frame> {
        self.quiet();
        let all = frames(self.sim.received(client.peer));
        let new = all[client.seen..].to_vec();
        client.seen = all.len();
        new
    }

    /// Whether the server has ended the connection.
    pub(crate) fn ended(&mut self, client: Client) -> bool {
        self.quiet();
        self.sim.state(client.peer) != PlainState::Open
    }

    /// The ids stored in a stream, of one producer.
    pub(crate) fn stored(&self, producer: &str) -> Vec<u64> {
        let records = self.log.records("default");
        let of_it = records.iter().filter(|r| r.producer == producer);
        of_it
            .map(|record| {
                assert_eq!(record.payload, payload(record.id), "{record:?}");
                record.id
            })
            .collect()
    }
}
