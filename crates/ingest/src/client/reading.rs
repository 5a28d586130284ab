//! A reader's conversation with a server, over as many connections as it takes: a state machine
//! without socket and clock.

use super::broken::Broken;
use crate::native::codec::{
    Batch, Begin, FRAME_HEADER, Hello, Read, ReaderFrame, ReaderWelcome, ServerFrame, Subscribe,
};

/// Frames before the welcome have bodies of at most so many bytes.
const BODY_MAX: usize = 1024;

/// The request of a reader.
///
/// ```
/// use tidewire_ingest::client::{Begin, Subscribing};
///
/// let tail = Subscribing { begin: Begin::Tail, follow: true, ..Subscribing::default() };
/// assert_eq!(Subscribing::default().begin, Begin::Position(0)); // the oldest record
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribing {
    /// The stream; empty for `default`. At most 255 bytes, as all names.
    pub stream: String,
    /// The first record to read; default position 0, which means the oldest record that is kept.
    pub begin: Begin,
    /// Waits at the tail for more; default: ends there.
    pub follow: bool,
    /// When following, waits for a stream that does not exist; by default a missing stream is an
    /// error.
    pub wait: bool,
    /// The name of a cursor kept by the server: to begin at, and to move. With one, the end without
    /// `follow` is where the tail was when the reader was welcomed first.
    pub cursor: String,
    /// A secret, where the server asks for one.
    pub token: String,
    /// Bytes that the server may send ahead; default 4 MiB. One batch may exceed the limit.
    pub credit: u64,
}

impl Default for Subscribing {
    fn default() -> Subscribing {
        Subscribing {
            stream: String::new(),
            begin: Begin::Position(0),
            follow: false,
            wait: false,
            cursor: String::new(),
            token: String::new(),
            credit: 4 << 20,
        }
    }
}

/// The reader's state machine, described in the module. A program that drives a `Reading` calls
/// [`connected`](Reading::connected) for each connection, writes the bytes of
/// [`output`](Reading::output), and offers received bytes to [`received`](Reading::received).
///
/// ```
/// use tidewire_ingest::client::{Heard, Reading, Subscribing};
/// use tidewire_ingest::native::codec::{ReaderWelcome, ServerFrame};
///
/// let mut reading = Reading::new(Subscribing::default()).unwrap();
/// reading.connected();
/// assert!(reading.output().starts_with(b"TIDE"));
/// let mut bytes = Vec::new();
/// let welcome = ReaderWelcome { first: 0, next: 0, start: 0, body_max: 1000, skipped: false };
/// ServerFrame::ReaderWelcome(welcome).encode(&mut bytes);
/// ServerFrame::End { next: 0, short: false }.encode(&mut bytes);
/// assert_eq!(reading.received(&bytes), Ok((40, Some(Heard::Welcome(welcome)))));
/// assert_eq!(reading.received(&bytes[40..]), Ok((16, Some(Heard::End))));
/// ```
#[derive(Debug)]
pub struct Reading {
    wants: Subscribing,
    /// Where to go on; known from the first welcome.
    next: Option<u64>,
    welcome: Option<ReaderWelcome>,
    /// A welcome came on this connection.
    open: bool,
    /// Where this side ends reading by itself. A server that ends it takes no word more of this
    /// reader, and so would miss where its cursor stands then.
    until: Option<u64>,
    /// Bytes of batches taken in and not given back as credit.
    spent: u64,
    out: Vec<u8>,
}

/// A frame that the server has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// Reading begins.
    Welcome(ReaderWelcome),
    /// Records.
    Batch(Batch<'a>),
    /// The tail was reached, and reading ends there.
    End,
}

impl Reading {
    /// A reader that has no connection yet.
    ///
    /// # Errors
    /// [`Broken::TooLong`]: a name that cannot be sent.
    pub fn new(wants: Subscribing) -> Result<Reading, Broken> {
        let mut reading = Reading {
            wants,
            next: None,
            welcome: None,
            open: false,
            until: None,
            spent: 0,
            out: Vec::new(),
        };
        reading.hello()?;
        Ok(reading)
    }

    /// The next position to read; `None` before the first welcome.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.next
    }

    /// Whether the server has said its welcome on this connection.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether reading ends here.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.until.is_some_and(|until| self.next >= Some(until))
    }

    /// The server's last welcome.
    #[must_use]
    pub fn welcome(&self) -> Option<&ReaderWelcome> {
        self.welcome.as_ref()
    }

    /// A connection is there. Reading goes on after the records that were received before.
    pub fn connected(&mut self) {
        self.hello().expect("checked when it was made");
        self.open = false;
        self.spent = 0;
    }

    fn hello(&mut self) -> Result<(), Broken> {
        self.out.clear();
        let begin = self.next.map_or(self.wants.begin, Begin::Position);
        let subscribe = Subscribe {
            begin,
            follow: self.wants.follow || !self.wants.cursor.is_empty(),
            may_be_absent: self.wants.wait && self.wants.follow,
            credit: self.wants.credit.max(1),
            stream: &self.wants.stream,
            cursor: &self.wants.cursor,
            token: &self.wants.token,
        };
        Ok(Hello::Subscribe(subscribe).encode(&mut self.out)?)
    }

    /// The bytes to write now; empty the buffer when they are written.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Has the server move the cursor named to `position`: all records before it are dealt with.
    pub fn commit_cursor(&mut self, position: u64) {
        if self.open {
            ReaderFrame::CommitCursor(position).encode(&mut self.out);
        }
    }

    /// Takes one frame from the start of `bytes`, if it is complete; returns how many bytes were
    /// used and what the frame says. Call this function again as long as it consumes bytes. Then
    /// check [`is_over`](Reading::is_over).
    ///
    /// # Errors
    /// [`Broken`]: the connection is to be closed.
    pub fn received<'a>(&mut self, bytes: &'a [u8]) -> Result<(usize, Option<Heard<'a>>), Broken> {
        let Read::Whole(frame, len) = ServerFrame::decode(bytes, self.body_max())? else {
            return Ok((0, None));
        };
        let heard = match frame {
            ServerFrame::Unknown(_) => return Ok((len, None)),
            ServerFrame::Refusal(refusal) => {
                return Err(Broken::from(refusal).of_token(!self.wants.token.is_empty()));
            }
            ServerFrame::ReaderWelcome(welcome) if !self.open => {
                self.welcomed(welcome)?;
                Heard::Welcome(welcome)
            }
            ServerFrame::Batch(batch) if self.open => {
                self.took(&batch, len as u64)?;
                Heard::Batch(batch)
            }
            ServerFrame::End { next, .. } if self.open => {
                // Behind the last batch there may be a gap.
                self.next = self.next.max(Some(next));
                Heard::End
            }
            _ => {
                return Err(Broken::Malformed(
                    "a frame that the protocol does not allow at this point".into(),
                ));
            }
        };
        Ok((len, Some(heard)))
    }

    /// How many bytes, from the start of `bytes`, are needed until [`received`](Reading::received)
    /// can do something with them, as far as is known.
    #[must_use]
    pub fn needed(&self, bytes: &[u8]) -> usize {
        let len = bytes.get(4..FRAME_HEADER).map_or(0, |len| {
            u32::from_le_bytes(len.try_into().expect("4 bytes"))
        });
        // A frame that is too long is refused by its header: its body may never come.
        let is_too_long = len as usize > self.body_max();
        FRAME_HEADER + if is_too_long { 0 } else { len as usize }
    }

    fn body_max(&self) -> usize {
        match &self.welcome {
            Some(welcome) if self.open => BODY_MAX.max(welcome.body_max as usize),
            _ => BODY_MAX,
        }
    }

    fn welcomed(&mut self, welcome: ReaderWelcome) -> Result<(), Broken> {
        if let Some(next) = self.next
            && welcome.start != next
        {
            return Err(Broken::Gap {
                next,
                start: welcome.start,
            });
        }
        if self.next.is_none() && !self.wants.follow && !self.wants.cursor.is_empty() {
            self.until = Some(welcome.next);
        }
        self.next = Some(welcome.start);
        self.welcome = Some(welcome);
        self.open = true;
        Ok(())
    }

    fn took(&mut self, batch: &Batch<'_>, len: u64) -> Result<(), Broken> {
        // A later position is a gap: what was there was lost in damage, and the log marked as repaired.
        if self.next.is_none_or(|next| batch.first < next) || batch.count == 0 {
            return Err(Broken::Malformed(format!(
                "{} records from position {} on, where {:?} is next",
                batch.count, batch.first, self.next
            )));
        }
        let Some(next) = batch.first.checked_add(batch.count.into()) else {
            return Err(Broken::Malformed(format!(
                "{} records from position {} on, which is above the largest possible position",
                batch.count, batch.first
            )));
        };
        self.next = Some(next);
        self.spent += len;
        if self.spent >= self.wants.credit / 4 {
            ReaderFrame::Credit(std::mem::take(&mut self.spent)).encode(&mut self.out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reader waited for a body that the server need not send, for ever.
    #[test]
    fn a_frame_that_is_too_long_is_refused_by_its_header() {
        let mut reading = Reading::new(Subscribing::default()).expect("settings");
        reading.connected();
        let mut header = [5, 0, 0, 0, 0, 0, 0, 0];
        header[4..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(reading.needed(&header), header.len());
        let refused = reading.received(&header);
        assert!(matches!(refused, Err(Broken::Malformed(_))), "{refused:?}");
    }

    /// In a release build the position wrapped to 0, in a debug build it ended the program.
    #[test]
    fn a_position_behind_the_last_one_is_refused() {
        let mut reading = Reading::new(Subscribing::default()).expect("settings");
        reading.connected();
        let welcome = ReaderWelcome {
            first: 0,
            next: u64::MAX,
            start: u64::MAX,
            body_max: 1 << 20,
            skipped: false,
        };
        reading.welcomed(welcome).expect("a welcome");
        let batch = |first, count| Batch {
            first,
            count,
            timestamp_us: 0,
            producer: "",
            messages: b"",
        };
        let refused = reading.took(&batch(u64::MAX, 2), 0);
        assert!(matches!(refused, Err(Broken::Malformed(_))), "{refused:?}");
    }
}
