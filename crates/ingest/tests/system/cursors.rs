//! A reader that begins where its cursor stands, moves it, and goes and comes again as it likes.

use std::collections::BTreeSet;

use fastrand::Rng;
use tidewire::sim::{PlainId, PlainState, Sim};
use tidewire_ingest::client::{Begin, Broken, Heard, Reading, Subscribing};
use tidewire_ingest::native::codec::{Reason, parser};

use crate::reader::Record;
use crate::server::NATIVE;

const CURSOR: &str = "place";

struct Line {
    peer: PlainId,
    reading: Reading,
    heard: usize,
    /// Where it began, once it is welcomed.
    start: Option<u64>,
    /// The reader has said all.
    leaves: bool,
}

pub(crate) struct Cursors {
    line: Option<Line>,
    /// All places where the cursor was ever to stand, and where it stands without one.
    asked: BTreeSet<u64>,
    /// Where it must stand, if that is known.
    stands: Option<u64>,
    /// Earlier connections to this server may still say something.
    haunted: bool,
    /// What was read, with its position.
    pub(crate) read: Vec<(u64, Record)>,
}

impl Cursors {
    pub(crate) fn new() -> Cursors {
        Cursors {
            line: None,
            asked: BTreeSet::from([0]),
            stands: Some(0),
            haunted: false,
            read: Vec::new(),
        }
    }

    /// A server has died: what is on its way to it is lost, and what it had not synced may be.
    pub(crate) fn server_died(&mut self) {
        self.line = None;
        self.stands = None;
        self.haunted = false;
    }

    /// Goes on.
    ///
    /// # Errors
    /// What a server may not say.
    pub(crate) fn go_on(&mut self, sim: &mut Sim, rng: &mut Rng) -> Result<(), String> {
        let Some(mut line) = self.line.take() else {
            if rng.u8(..20) == 0 {
                self.line = Some(come(sim, rng));
            }
            return Ok(());
        };
        if self.hear(&mut line, sim)? {
            // The connection has ended in order: whatever it said was heard.
            return Ok(());
        }
        if !matches!(
            sim.state(line.peer),
            PlainState::Open | PlainState::Connecting
        ) {
            self.lost();
            return Ok(());
        }
        if let Some(start) = line.start.filter(|_| !line.leaves) {
            match rng.u8(..32) {
                0 => {
                    sim.close(line.peer, rng.bool());
                    self.lost();
                    return Ok(());
                }
                1..=3 => {
                    sim.finish(line.peer);
                    line.leaves = true;
                }
                // Before anything was read there may be no stream, and so no cursor of it.
                4..=9 if line.reading.next() > Some(0) => {
                    let read = line.reading.next().unwrap_or(start);
                    let at = rng.u64(start..=read);
                    self.asked.insert(at);
                    self.stands = Some(at).filter(|_| !self.haunted);
                    line.reading.commit_cursor(at);
                }
                _ => {}
            }
            if !line.leaves {
                sim.send(line.peer, line.reading.output());
                line.reading.output().clear();
            }
        }
        self.line = Some(line);
        Ok(())
    }

    /// Which of the reader's words were heard, or will be, is unknown.
    fn lost(&mut self) {
        self.stands = None;
        self.haunted = true;
    }

    /// Takes in what came; whether it has ended in order.
    fn hear(&mut self, line: &mut Line, sim: &Sim) -> Result<bool, String> {
        loop {
            let bytes = &sim.received(line.peer)[line.heard..];
            let (len, heard) = match line.reading.received(bytes) {
                Ok(received) => received,
                Err(Broken::Refused {
                    reason: Reason::Stopping | Reason::LogFailed,
                    ..
                }) => return Ok(false),
                Err(broken) => return Err(format!("cursor: {broken}")),
            };
            line.heard += len;
            match heard {
                None if len == 0 => return Ok(false),
                None => {}
                Some(Heard::End) => return Ok(true),
                Some(Heard::Welcome(welcome)) => {
                    let start = welcome.start;
                    if !self.asked.contains(&start) || self.stands.is_some_and(|at| at != start) {
                        let (asked, stands) = (&self.asked, self.stands);
                        return Err(format!(
                            "the cursor is at {start}; it was to be at one of {asked:?}, and is known to be at {stands:?}"
                        ));
                    }
                    line.start = Some(start);
                    self.stands = Some(start).filter(|_| !self.haunted);
                }
                Some(Heard::Batch(batch)) => {
                    let messages = parser(u32::MAX).parse(batch.messages);
                    for (position, frame) in (batch.first..).zip(messages.frames()) {
                        let id = u64::from_le_bytes(frame.id);
                        let record = (batch.producer.to_owned(), id, frame.payload.to_vec());
                        self.read.push((position, record));
                    }
                }
            }
        }
    }

    /// Whether what was read is what a log holds.
    pub(crate) fn check(&self, records: &[Record]) -> Result<(), String> {
        for (position, read) in &self.read {
            let there = usize::try_from(*position)
                .ok()
                .and_then(|at| records.get(at));
            if there != Some(read) {
                return Err(format!(
                    "position {position} was read behind a cursor as {read:?}, and is {there:?}"
                ));
            }
        }
        Ok(())
    }
}

fn come(sim: &mut Sim, rng: &mut Rng) -> Line {
    let subscribing = Subscribing {
        begin: Begin::Cursor,
        cursor: CURSOR.into(),
        follow: true,
        wait: true,
        credit: 1 << rng.u32(8..16),
        ..Subscribing::default()
    };
    let mut reading = Reading::new(subscribing).expect("short names");
    // Where the other reader is, so that the other loop has producers only.
    let peer = sim.plain(NATIVE[0]);
    reading.connected();
    sim.send(peer, reading.output());
    reading.output().clear();
    Line {
        peer,
        reading,
        heard: 0,
        start: None,
        leaves: false,
    }
}
