//! The blocking reader.

use std::io::{self, Read, Write};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tidewire::Instant;

use super::backoff::{Backoff, Persistence};
use super::broken::Broken;
use super::clock::Clock;
use super::connect::{Line, Server, To, is_late};
use super::error::Error;
use super::reading::{Heard, Reading, Subscribing};
use crate::classic::HEADER;
use crate::native::codec::ReaderWelcome;

/// Received at a time.
const RECEIVED: usize = 256 << 10;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Position of the message in the stream.
    pub position: u64,
    /// The id that the record's producer gave it.
    pub id: u64,
    /// Producer of the message; empty if it had no name.
    pub producer: Bytes,
    /// The time at which the server received the record: microseconds since the Unix epoch.
    pub timestamp_us: u64,
    /// The record's payload.
    pub payload: Bytes,
}

/// Reads a stream, record by record, over as many connections as it takes: where one breaks, the
/// next goes on after the last record received.
///
/// ```
/// use tidewire_ingest::client::{Persistence, Reader, Subscribing};
/// # let running = tidewire_ingest::testing::server();
/// # let server = running.addrs()[0].to_string();
/// # use tidewire_ingest::client::{Producer, Producing};
/// # let producer = Producer::connect(&server, Producing::default(), Persistence::default())?;
/// # producer.send(b"GET /")?;
/// # producer.send(b"GET /robots.txt")?;
/// # producer.close()?;
///
/// let subscribing = Subscribing { stream: "default".into(), ..Subscribing::default() };
/// for record in Reader::connect(&server, subscribing, Persistence::default())? {
///     let record = record?;
///     println!("{} {:?}", record.position, record.payload);
///     if record.position == 1 {
///         break; // else it waits for more
///     }
/// }
/// # Ok::<(), tidewire_ingest::client::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    server: Server,
    persistence: Persistence,
    reading: Reading,
    line: Option<Line>,
    received: BytesMut,
    batch: Records,
    clock: Clock,
    over: bool,
}

/// The unread rest of a batch.
#[derive(Debug, Default)]
struct Records {
    next: u64,
    timestamp_us: u64,
    left: u32,
    producer: Bytes,
    messages: Bytes,
}

impl Records {
    /// The next record; an error if the batch has fewer records than it announces.
    fn next(&mut self) -> Option<Result<Record, Broken>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let bad = || Some(Err(Broken::Malformed("a batch with a record cut".into())));
        if self.messages.len() < HEADER {
            return bad();
        }
        let (id, size) = (self.messages.get_u64_le(), self.messages.get_u32_le());
        if self.messages.len() < size as usize {
            return bad();
        }
        let position = self.next;
        self.next += 1;
        Some(Ok(Record {
            position,
            id,
            producer: self.producer.clone(),
            timestamp_us: self.timestamp_us,
            payload: self.messages.split_to(size as usize),
        }))
    }
}

impl Reader {
    /// Connects and waits for the welcome. `persistence` holds for connections that
    /// are lost later; unless it says otherwise the first failure here is the result.
    ///
    /// # Errors
    /// [`Error`].
    pub fn connect(
        to: impl Into<To>,
        subscribing: Subscribing,
        persistence: Persistence,
    ) -> Result<Reader, Error> {
        let server = Server::named(to.into())?;
        let reading = Reading::new(subscribing).map_err(|e| server.broken(e))?;
        let mut reader = Reader {
            server,
            persistence,
            reading,
            line: None,
            received: BytesMut::new(),
            batch: Records::default(),
            clock: Clock::start(),
            over: false,
        };
        let since = reader.clock.now();
        let greeted = reader.greet(since);
        match greeted {
            Err(failure) if failure.is_passing() && persistence.at_first => {
                reader.reconnect(failure, since)?;
            }
            greeted => greeted?,
        }
        Ok(reader)
    }

    /// The server's latest welcome: which records the stream has.
    #[must_use]
    pub fn welcome(&self) -> ReaderWelcome {
        *self.reading.welcome().expect("connected")
    }

    /// The position of the next record.
    #[must_use]
    pub fn place(&self) -> u64 {
        match self.batch.left {
            0 => self.reading.next().expect("connected"),
            _ => self.batch.next,
        }
    }

    /// Whether the next record is here already, so that asking for it does not wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.batch.left > 0 || self.received.len() >= self.reading.needed(&self.received)
    }

    /// Waits for the next record and returns it. `None` at the tail, unless following.
    ///
    /// # Errors
    /// [`Error`]; reading is over then.
    pub fn read(&mut self) -> Result<Option<Record>, Error> {
        loop {
            if let Some(record) = self.batch.next() {
                return record.map(Some).map_err(|e| self.end(e));
            }
            if self.over {
                return Ok(None);
            }
            if let Err(failure) = self.batch() {
                self.over = true;
                return Err(failure);
            }
        }
    }

    /// Tells the server that all records before `position` are dealt with: the cursor named when
    /// connecting moves there, to be begun at by a later reader. The cursor is durable with the
    /// log's next commit; the server does not answer.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub fn commit_cursor(&mut self, position: u64) -> Result<(), Error> {
        self.reading.commit_cursor(position);
        self.write()
    }

    /// Ends reading in order, so that a cursor just moved has reached the server.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub fn close(mut self) -> Result<(), Error> {
        let Some(mut line) = self.line.take() else {
            return Ok(());
        };
        let drain = |line: &mut Line| -> io::Result<()> {
            line.end_writing()?;
            line.socket()
                .set_read_timeout(Some(self.persistence.timeout))?;
            let mut rest = vec![0; RECEIVED];
            while line.read(&mut rest)? > 0 {}
            Ok(())
        };
        match drain(&mut line) {
            Err(e) if e.kind() != io::ErrorKind::NotConnected => {
                Err(self.server.failed("end reading from", e))
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, broken: Broken) -> Error {
        self.over = true;
        self.batch = Records::default();
        self.server.broken(broken)
    }

    /// Receives until there is a batch or the end; connects again if need be.
    fn batch(&mut self) -> Result<(), Error> {
        while !self.over {
            match self.turn() {
                Ok(true) => break,
                Ok(false) => {}
                Err(failure) if failure.is_passing() => {
                    self.reconnect(failure, self.clock.now())?;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Reads one frame; returns whether it is a batch or the end.
    fn turn(&mut self) -> Result<bool, Error> {
        let needed = self.reading.needed(&self.received);
        if self.received.len() < needed {
            self.receive(needed)?;
            return Ok(false);
        }
        let frame = self.received.split_to(needed).freeze();
        let (_, heard) = self
            .reading
            .received(&frame)
            .map_err(|e| self.server.broken(e))?;
        match heard {
            Some(Heard::Batch(batch)) => {
                self.batch = Records {
                    next: batch.first,
                    timestamp_us: batch.timestamp_us,
                    left: batch.count,
                    producer: frame.slice_ref(batch.producer.as_bytes()),
                    messages: frame.slice_ref(batch.messages),
                };
                self.over = self.reading.is_over();
                self.write()?;
                Ok(true)
            }
            Some(Heard::End) => {
                self.over = true;
                Ok(true)
            }
            Some(Heard::Welcome(_)) => {
                self.over = self.reading.is_over();
                Ok(false)
            }
            None => Ok(false),
        }
    }

    /// Waits for bytes, so many of which make a frame.
    fn receive(&mut self, needed: usize) -> Result<(), Error> {
        let have = self.received.len();
        self.received.resize(RECEIVED.max(needed), 0);
        let line = self.line.as_mut();
        let read = line.map_or(Ok(0), |line| {
            loop {
                match line.read(&mut self.received[have..]) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    other => return other,
                }
            }
        });
        self.received
            .truncate(have + read.as_ref().map_or(0, |&n| n));
        match read {
            Ok(0) if !self.reading.is_open() => Err(self.server.broken(Broken::ClosedUnanswered)),
            Ok(0) => Err(self.server.broken(Broken::Closed)),
            Ok(_) => Ok(()),
            Err(e) => Err(self.server.failed("read from", e)),
        }
    }

    fn write(&mut self) -> Result<(), Error> {
        if let Some(line) = &mut self.line
            && !self.reading.output().is_empty()
        {
            let output = self.reading.output();
            let wrote = line.write_all(output).and_then(|()| line.flush());
            wrote.map_err(|e| self.server.failed("write to", e))?;
            self.reading.output().clear();
        }
        Ok(())
    }

    /// Connects and waits for the welcome; `since`: when the last connection was lost.
    fn greet(&mut self, since: Instant) -> Result<(), Error> {
        self.received.clear();
        let began = self.clock.now();
        let most = self.persistence.timeout;
        let left = self.persistence.left(began.since(since));
        let most = left.map_or(most, |left| left.min(most));
        self.line = Some(self.server.connect(most)?);
        self.reading.connected();
        self.write()?;
        // A server that says nothing at all, or a byte now and then, must not hold it up for ever; later silence is the tail.
        let until = self.clock.now() + most;
        while !self.reading.is_open() {
            let now = self.clock.now();
            if now >= until {
                return Err(self.server.broken(Broken::Unanswered(most)));
            }
            self.patience(Some(until.since(now)))?;
            match self.turn() {
                Err(Error::Connection { source, .. }) if is_late(&source) => {}
                turn => drop(turn?),
            }
        }
        self.patience(None)
    }

    fn patience(&self, time: Option<Duration>) -> Result<(), Error> {
        let line = self.line.as_ref().expect("connected");
        line.socket()
            .set_read_timeout(time)
            .map_err(|e| self.server.failed("set up the connection to", e))
    }

    #[allow(clippy::disallowed_methods, reason = "blocking clients run on no loop")]
    fn reconnect(&mut self, mut failure: Error, since: Instant) -> Result<(), Error> {
        // A server that is stopping waits for this side to close.
        self.line = None;
        let mut backoff = Backoff::new(self.persistence, Clock::seed());
        loop {
            let elapsed = self.clock.now().since(since);
            let asked = failure.broken().map_or(Duration::ZERO, Broken::retry_after);
            let Some(pause) = backoff.after_failure(elapsed, asked) else {
                return Err(match backoff.failed() {
                    1 => failure,
                    attempts => Error::GaveUp {
                        attempts,
                        elapsed,
                        last: Box::new(failure),
                    },
                });
            };
            std::thread::sleep(pause);
            match self.greet(since) {
                Err(again) if again.is_passing() => failure = again,
                greeted => return greeted,
            }
        }
    }
}

/// Ends at the tail, unless following, and after the first error.
impl Iterator for Reader {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Result<Record, Error>> {
        self.read().transpose()
    }
}
