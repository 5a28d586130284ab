//! A reader that follows a stream over as many connections as it takes, and remembers what it was given.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire::{Closed, Cx, Dial, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service, Turn};
use tidewire_ingest::client::{Broken, Heard, Reading, Subscribing};
use tidewire_ingest::native::codec::parser;

use crate::server::NATIVE;

/// A record, as read: producer, id and payload.
pub(crate) type Record = (String, u64, Vec<u8>);

#[derive(Debug)]
pub(crate) struct Seen {
    /// While it has no connection.
    reading: Option<Reading>,
    /// By position.
    pub(crate) records: Vec<Record>,
    pub(crate) wrong: Option<String>,
}

/// A service that dials one reader.
#[derive(Clone, Debug)]
pub(crate) struct Follower(pub(crate) Arc<Mutex<Seen>>);

pub(crate) fn dial() -> Dial {
    Dial::to(NATIVE[0])
        .attempts(u32::MAX)
        .backoff(Duration::from_millis(10), Duration::from_millis(200))
}

impl Follower {
    pub(crate) fn new(credit: u64) -> Follower {
        let subscribing = Subscribing {
            follow: true,
            wait: true,
            credit,
            ..Subscribing::default()
        };
        Follower(Arc::new(Mutex::new(Seen {
            reading: Some(Reading::new(subscribing).expect("short names")),
            records: Vec::new(),
            wrong: None,
        })))
    }
}

impl Service for Follower {
    type Conn = Following;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Following, Refusal> {
        let reading = self.0.lock().unwrap().reading.take();
        Ok(Following {
            reading: reading.expect("one connection at a time"),
            seen: self.0.clone(),
        })
    }
}

#[derive(Debug)]
pub(crate) struct Following {
    reading: Reading,
    seen: Arc<Mutex<Seen>>,
}

impl Following {
    fn hear(&mut self, input: &mut Input<'_>) -> Result<(), Broken> {
        loop {
            let (len, heard) = self.reading.received(input.bytes())?;
            if let Some(Heard::Batch(batch)) = heard {
                let mut seen = self.seen.lock().unwrap();
                if batch.first != seen.records.len() as u64 {
                    let (first, had) = (batch.first, seen.records.len());
                    seen.wrong = Some(format!("{first} comes behind {had} records"));
                }
                let messages = parser(u32::MAX).parse(batch.messages);
                seen.records.extend(messages.frames().map(|frame| {
                    let id = u64::from_le_bytes(frame.id);
                    (batch.producer.to_owned(), id, frame.payload.to_vec())
                }));
            }
            input.consume(len);
            if len == 0 {
                return Ok(());
            }
        }
    }

    fn write(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.write(self.reading.output());
        self.reading.output().clear();
    }
}

impl Protocol for Following {
    type Local = ();
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        self.reading.connected();
        self.write(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        match self.hear(input) {
            Ok(()) => self.write(cx),
            // The server is stopping, or its log has failed: there will be another.
            Err(Broken::Refused { .. }) => cx.link.finish(),
            Err(broken) => {
                self.seen.lock().unwrap().wrong = Some(broken.to_string());
                cx.link.finish();
            }
        }
        Next::More
    }

    /// The reader waits for what comes.
    fn idle(&mut self, _: &mut Cx<'_, Self>) {}

    fn closed(self, _: Closed, turn: &mut Turn<'_, Self>) {
        self.seen.lock().unwrap().reading = Some(self.reading);
        turn.dial(dial().after(Duration::from_millis(20)));
    }
}
