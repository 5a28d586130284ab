//! The blocking administrator.

use std::io::{self, Read as _, Write};
use std::time::Duration;

use tidewire_log::{Compression, StreamSettings};

use super::broken::Broken;
use super::connect::{Line, Server, To, is_late};
use super::error::Error;
use crate::native::codec::{
    AdminFrame, Administer, Hello, Malformed, PlaceFrame, Read, ServerFrame, StreamFrame, Wanted,
};

/// Received at a time.
const RECEIVED: usize = 16 << 10;
/// Largest body of a frame that a server may send to an administrator.
const BODY_MAX: usize = 1024;

/// The state of a stream, as its server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// Name of the stream.
    pub name: String,
    /// The oldest position kept.
    pub first: u64,
    /// The position after the last record.
    pub next: u64,
    /// Bytes of the records that are kept, as they are stored.
    pub bytes: u64,
    /// Bytes of the log's oldest segments that are on the disk because of this stream, or of it and others; servers before 0.3
    /// do not say.
    pub pins: Option<u64>,
    /// When the last one was received: microseconds since the Unix epoch; 0 if none was.
    pub newest_us: u64,
    /// The settings of the stream.
    pub settings: StreamSettings,
    /// Records behind the slowest cursor or connected reader.
    pub lag: u64,
    /// How many producers have a mark.
    pub producers: u32,
    /// How many named cursors there are.
    pub cursors: u32,
    /// How many readers are connected.
    pub readers: u32,
}

impl StreamState {
    fn of(frame: &StreamFrame<'_>) -> StreamState {
        let limit = |limit: u64| Some(limit).filter(|&limit| limit > 0);
        StreamState {
            name: frame.name.to_owned(),
            first: frame.first,
            next: frame.next,
            bytes: frame.bytes,
            pins: frame.pins,
            newest_us: frame.newest_us,
            settings: StreamSettings {
                retain_bytes: limit(frame.retain_bytes),
                retain_age: limit(frame.retain_age_us).map(Duration::from_micros),
                limit_bytes: limit(frame.limit_bytes),
                // A compression of a later version is not known here.
                compression: Compression::of(frame.compression).unwrap_or_default(),
            },
            lag: frame.lag,
            producers: frame.producers,
            cursors: frame.cursors,
            readers: frame.readers,
        }
    }
}

/// A reader of a stream, or a named cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceState {
    /// The next position to be read.
    pub position: u64,
    /// How many records are behind that.
    pub lag: u64,
    /// The named cursor; empty for a reader without one.
    pub cursor: String,
    /// The reader's address; empty for a cursor.
    pub peer: String,
}

impl PlaceState {
    fn of(frame: &PlaceFrame<'_>) -> PlaceState {
        PlaceState {
            position: frame.position,
            lag: frame.lag,
            cursor: frame.cursor.to_owned(),
            peer: frame.peer.to_owned(),
        }
    }
}

/// Sees and changes the streams of a server, over one connection.
///
/// ```
/// use std::time::Duration;
/// use tidewire_ingest::client::{Administrator, Wanted};
/// # let running = tidewire_ingest::testing::server();
/// # let server = running.addrs()[0].to_string();
///
/// let timeout = Duration::from_secs(10);
/// let mut server = Administrator::connect(&server, "", timeout)?; // to "127.0.0.1:7400", say
/// let wanted = Wanted { retain_bytes: Some(Some(1 << 30)), ..Wanted::default() };
/// server.create("access-log", wanted)?;
/// for stream in server.streams()? {
///     println!("{} {}..{}", stream.name, stream.first, stream.next);
/// }
/// # Ok::<(), tidewire_ingest::client::Error>(())
/// ```
#[derive(Debug)]
pub struct Administrator {
    server: Server,
    line: Line,
    received: Vec<u8>,
    has_token: bool,
    timeout: Duration,
    /// The welcome has come.
    is_open: bool,
}

/// The server's answer to a request.
enum Heard {
    Stream(StreamState),
    Place(PlaceState),
    Done { more: bool },
    Other,
}

impl Administrator {
    /// Connects and waits for the welcome. `timeout` is for connecting, and for each answer.
    ///
    /// # Errors
    /// [`Error`].
    pub fn connect(
        to: impl Into<To>,
        token: &str,
        timeout: Duration,
    ) -> Result<Administrator, Error> {
        let server = Server::named(to.into())?;
        let mut hello = Vec::new();
        let encoded = Hello::Administer(Administer { token }).encode(&mut hello);
        encoded.map_err(|e| server.broken(e.into()))?;
        let line = server.connect(timeout)?;
        let patient = line.socket().set_read_timeout(Some(timeout));
        patient.map_err(|e| server.failed("set up the connection to", e))?;
        let mut administrator = Administrator {
            server,
            line,
            received: Vec::new(),
            has_token: !token.is_empty(),
            timeout,
            is_open: false,
        };
        administrator.send(&hello)?;
        administrator.hear(|frame| match frame {
            ServerFrame::AdminWelcome => Some(()),
            _ => None,
        })?;
        administrator.is_open = true;
        Ok(administrator)
    }

    /// All streams that the token is for, by their names.
    ///
    /// # Errors
    /// [`Error`].
    pub fn streams(&mut self) -> Result<Vec<StreamState>, Error> {
        let mut all: Vec<StreamState> = Vec::new();
        loop {
            let after = all.last().map(|last| last.name.clone()).unwrap_or_default();
            let before = all.len();
            let more = self.ask(&AdminFrame::List { after: &after }, |heard| {
                if let Heard::Stream(stream) = heard {
                    all.push(stream);
                }
            })?;
            if !more || all.len() == before {
                return Ok(all);
            }
        }
    }

    /// Creates a stream; an empty name is `default`. The stream is durable when this returns.
    ///
    /// # Errors
    /// [`Error`]; [`Broken::Refused`] has the server's reason.
    pub fn create(&mut self, stream: &str, wanted: Wanted) -> Result<(), Error> {
        self.change(&AdminFrame::Create { stream, wanted })
    }

    /// Changes the given settings of a stream; other settings stay. The change is durable when this
    /// returns.
    ///
    /// # Errors
    /// [`Error`]; [`Broken::Refused`] has the server's reason.
    pub fn set(&mut self, stream: &str, wanted: Wanted) -> Result<(), Error> {
        self.change(&AdminFrame::Set { stream, wanted })
    }

    /// Deletes a stream, with its records, cursors and producers' marks. The deletion is durable
    /// when this returns.
    ///
    /// # Errors
    /// [`Error`]; [`Broken::Refused`] has the server's reason.
    pub fn delete(&mut self, stream: &str) -> Result<(), Error> {
        self.change(&AdminFrame::Delete { stream })
    }

    /// Removes the records of a stream before a position. The removal is durable when this returns. Servers before 0.3 refuse
    /// this as unsupported.
    ///
    /// # Errors
    /// [`Error`]; [`Broken::Refused`] has the server's reason.
    pub fn trim(&mut self, stream: &str, before: u64) -> Result<(), Error> {
        self.change(&AdminFrame::Trim { stream, before })
    }

    /// Deletes a named cursor of a stream. The deletion is durable when this returns.
    ///
    /// # Errors
    /// [`Error`]; [`Broken::Refused`] has the server's reason.
    pub fn delete_cursor(&mut self, stream: &str, cursor: &str) -> Result<(), Error> {
        self.change(&AdminFrame::DeleteCursor { stream, cursor })
    }

    /// The named cursors of a stream, by their names.
    ///
    /// # Errors
    /// [`Error`]; [`Broken::Refused`] has the server's reason.
    pub fn cursors(&mut self, stream: &str) -> Result<Vec<PlaceState>, Error> {
        let mut all: Vec<PlaceState> = Vec::new();
        loop {
            let after = all.last().map(|last| last.cursor.clone());
            let after = after.unwrap_or_default();
            let before = all.len();
            let request = AdminFrame::Cursors {
                stream,
                after: &after,
            };
            let more = self.ask(&request, |heard| {
                if let Heard::Place(place) = heard {
                    all.push(place);
                }
            })?;
            if !more || all.len() == before {
                return Ok(all);
            }
        }
    }

    /// The readers of a stream that are connected.
    ///
    /// # Errors
    /// [`Error`]; [`Broken::Refused`] has the server's reason.
    pub fn readers(&mut self, stream: &str) -> Result<Vec<PlaceState>, Error> {
        let mut all = Vec::new();
        self.ask(&AdminFrame::Readers { stream }, |heard| {
            if let Heard::Place(place) = heard {
                all.push(place);
            }
        })?;
        Ok(all)
    }

    fn change(&mut self, request: &AdminFrame<'_>) -> Result<(), Error> {
        self.ask(request, |_| ()).map(|_| ())
    }

    /// Asks, and hears all of the answer; whether there is more.
    fn ask(
        &mut self,
        request: &AdminFrame<'_>,
        mut each: impl FnMut(Heard),
    ) -> Result<bool, Error> {
        let mut bytes = Vec::new();
        let encoded = request.encode(&mut bytes);
        encoded.map_err(|e| self.server.broken(e.into()))?;
        self.send(&bytes)?;
        loop {
            let heard = self.hear(|frame| {
                Some(match frame {
                    ServerFrame::Stream(stream) => Heard::Stream(StreamState::of(stream)),
                    ServerFrame::Place(place) => Heard::Place(PlaceState::of(place)),
                    ServerFrame::Done { more, .. } => Heard::Done { more: *more },
                    ServerFrame::Unknown(_) => Heard::Other,
                    _ => return None,
                })
            })?;
            match heard {
                Heard::Done { more } => return Ok(more),
                heard => each(heard),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let wrote = self.line.write_all(bytes).and_then(|()| self.line.flush());
        wrote.map_err(|e| self.server.failed("write to", e))
    }

    /// Waits for the next frame that `meant` accepts.
    fn hear<T>(&mut self, meant: impl Fn(&ServerFrame<'_>) -> Option<T>) -> Result<T, Error> {
        loop {
            let frame = ServerFrame::decode(&self.received, BODY_MAX);
            match frame {
                Ok(Read::Whole(frame, length)) => {
                    let heard = match &frame {
                        ServerFrame::Refusal(refusal) => {
                            Err(Broken::from(*refusal).of_token(self.has_token))
                        }
                        frame => meant(frame)
                            .ok_or_else(|| Broken::Malformed(format!("{frame:?} out of place"))),
                    };
                    self.received.drain(..length);
                    return heard.map_err(|e| self.server.broken(e));
                }
                Ok(Read::Partial(_)) => self.receive()?,
                Err(Malformed(why)) => {
                    return Err(self.server.broken(Broken::Malformed(why.to_owned())));
                }
            }
        }
    }

    fn receive(&mut self) -> Result<(), Error> {
        let have = self.received.len();
        self.received.resize(have + RECEIVED, 0);
        let read = loop {
            match self.line.read(&mut self.received[have..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.received
            .truncate(have + read.as_ref().map_or(0, |&n| n));
        match read {
            Ok(0) => Err(self.server.broken(match self.is_open {
                true => Broken::Closed,
                false => Broken::ClosedUnanswered,
            })),
            Ok(_) => Ok(()),
            Err(e) if is_late(&e) => Err(self.server.broken(match self.is_open {
                true => Broken::Silent(self.timeout),
                false => Broken::Unanswered(self.timeout),
            })),
            Err(e) => Err(self.server.failed("read from", e)),
        }
    }
}
