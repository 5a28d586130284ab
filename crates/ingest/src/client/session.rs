//! One producer's session with a server, over as many connections as needed: a state machine
//! without socket and clock.
//!
//! A message is registered in the resend buffer, and so has its id, before a byte of it is written.
//! Connections come and go below that: each begins with a hello, the welcome says how far the server
//! has come, and what is left is sent.

use std::time::Duration;

use bytes::Bytes;
use tidewire::Instant;

use super::broken::Broken;
use super::outbox::{Amount, Outbox, Window};
use super::settings::Producing;
use crate::native::codec::{Hello, Level, Produce, Read, Reason, Refusal, ServerFrame, Welcome};

/// No frame to a producer has a larger body.
const BODY_MAX: usize = 1024;

/// For this long after a connection began, its hello may still reach the server: about as long as Linux
/// retransmits unconfirmed data (`tcp_retries2`).
const LATE: Duration = Duration::from_secs(15 * 60);

/// The module's comment describes the type. A program that drives it
///
/// 1. calls [`connected`](Session::connected) when there is a connection,
/// 2. writes what [`output`](Session::output) hands out, whole and in order, whenever the connection
///    takes more,
/// 3. offers what it receives to [`received`](Session::received) and keeps what is not taken,
/// 4. calls [`expired`](Session::expired) at [`deadline`](Session::deadline),
/// 5. calls [`disconnected`](Session::disconnected) when the connection has gone, and begins again.
///
/// ```
/// use tidewire::Instant;
/// use tidewire_ingest::client::{Event, Producing, Session};
/// use tidewire_ingest::native::codec::{Level, ServerFrame, Welcome};
///
/// let now = Instant::from_nanos(0);
/// let mut session = Session::new(Producing::default()).unwrap();
/// session.connected(now);
/// assert!(session.output(now).unwrap().starts_with(b"TIDE"));
///
/// let mut from_server = Vec::new();
/// let welcome = Welcome {
///     level: Level::Durable, payload_max: 1000, window_messages: 10, window_bytes: 1000,
///     keepalive_ms: 1000, last_id: Some(41), forgotten: false,
/// };
/// ServerFrame::Welcome(welcome).encode(&mut from_server);
/// session.received(&from_server, now, |_| {}).unwrap();
///
/// assert_eq!(session.push(b"hello"), Ok(42));
/// assert!(session.output(now).unwrap().ends_with(b"hello"));
///
/// from_server.clear();
/// ServerFrame::Ack { id: 42, keep_alive: false, why: "" }.encode(&mut from_server);
/// let mut acknowledged = None;
/// session.received(&from_server, now, |event| {
///     if let Event::Acknowledged { id, .. } = event { acknowledged = Some(id) }
/// }).unwrap();
/// assert_eq!(acknowledged, Some(42));
/// assert!(session.is_settled());
/// ```
#[derive(Debug)]
pub struct Session {
    wants: Producing,
    outbox: Outbox,
    phase: Phase,
    /// The next id; none before the first welcome.
    next_id: Option<u64>,
    /// All messages up to this id are settled: acknowledged here, or taken by the server before.
    /// `None` if no message is settled.
    settled: Option<u64>,
    /// The highest id handed out on this connection.
    handed_out: Option<u64>,
    /// When the last frame arrived, or the first was expected.
    heard: Instant,
    granted: Option<Welcome>,
    /// Number of hellos that the server did not answer while their connections lasted. The server may read them
    /// yet, and take each for newer than the connection that is open then.
    unanswered: u32,
    /// When the connection of the last unanswered hello began.
    last_unanswered: Instant,
}

#[derive(Debug)]
enum Phase {
    Offline,
    /// The hello is to be handed out.
    Greeting(Bytes),
    /// The welcome is owed.
    Waiting,
    Open,
    /// The server took nothing from some message on; it is sent again then.
    Holding(Instant),
}

/// News from the server for the producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Messages may be pushed, and are sent.
    Welcome(Welcome),
    /// All messages up to `id` are settled; `newly` of them were not before.
    Acknowledged {
        /// The last acknowledged id.
        id: u64,
        /// Messages that this acknowledges newly.
        newly: Amount,
    },
    /// The server is alive and still works on the client's request.
    KeepAlive {
        /// The reason why the server waits, as a text for people; empty if the server gives none.
        why: &'a str,
    },
    /// The server takes no messages from this one on for a while; the session sends them again by
    /// itself.
    Refused(Refusal<'a>),
}

/// Why a message was not taken into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// Before the first welcome no message can have an id.
    #[error("the server has not answered yet")]
    NoWelcome,
    /// The buffer is full until a message is acknowledged.
    #[error("the resend buffer is full")]
    Full,
    /// The server takes no message of this size.
    #[error("a message of {len} bytes is too large: the server takes at most {most}")]
    TooLarge {
        /// Bytes of the payload.
        len: usize,
        /// The largest allowed number.
        most: u32,
    },
    /// Ids must rise, and by one unless they are sparse.
    #[error("the id {id} does not follow: {expected} was expected")]
    OutOfOrder {
        /// The id given.
        id: u64,
        /// The next one, or with sparse ids the least.
        expected: u64,
    },
    /// All 2^64 were used.
    #[error("the last id, 2^64-1, was used")]
    NoMoreIds,
}

impl Session {
    /// A session that has no connection yet.
    ///
    /// # Errors
    /// [`Broken::TooLong`]: a name that cannot be sent.
    pub fn new(wants: Producing) -> Result<Session, Broken> {
        let session = Session {
            outbox: Outbox::new(wants.buffer),
            wants,
            phase: Phase::Offline,
            next_id: None,
            settled: None,
            handed_out: None,
            heard: Instant::default(),
            granted: None,
            unanswered: 0,
            last_unanswered: Instant::default(),
        };
        session.hello()?;
        Ok(session)
    }

    /// The id of the next message; `None` before the first welcome, and when there are no more.
    #[must_use]
    pub fn next_id(&self) -> Option<u64> {
        self.next_id
    }

    /// All messages up to this id are settled.
    #[must_use]
    pub fn settled(&self) -> Option<u64> {
        self.settled
    }

    /// Messages that were pushed and are not acknowledged.
    #[must_use]
    pub fn held(&self) -> Amount {
        self.outbox.held()
    }

    /// Messages that were handed out and are not acknowledged.
    #[must_use]
    pub fn in_flight(&self) -> Amount {
        self.outbox.in_flight()
    }

    /// Whether everything pushed is acknowledged.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.outbox.held().messages == 0
    }

    /// The server's latest welcome: the granted level and limits.
    #[must_use]
    pub fn granted(&self) -> Option<&Welcome> {
        self.granted.as_ref()
    }

    /// Whether a message with so many bytes of payload would be taken for lack of nothing but a
    /// connection.
    #[inline]
    #[must_use]
    pub fn has_room(&self, len: usize) -> bool {
        self.outbox.has_room(len)
    }

    /// Takes a message into the buffer and returns the message's id.
    ///
    /// # Errors
    /// [`NotTaken`].
    #[inline]
    pub fn push(&mut self, payload: &[u8]) -> Result<u64, NotTaken> {
        let id = self.next()?;
        self.take(id, payload)
    }

    /// Takes a message with an id of the caller's choice: the next one, or with sparse ids that or
    /// any above.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn push_as(&mut self, id: u64, payload: &[u8]) -> Result<(), NotTaken> {
        let expected = self.next()?;
        if id < expected || (id > expected && !self.wants.sparse) {
            return Err(NotTaken::OutOfOrder { id, expected });
        }
        self.take(id, payload).map(drop)
    }

    #[inline]
    fn next(&self) -> Result<u64, NotTaken> {
        match (self.next_id, &self.granted) {
            (Some(id), _) => Ok(id),
            (None, None) => Err(NotTaken::NoWelcome),
            (None, Some(_)) => Err(NotTaken::NoMoreIds),
        }
    }

    #[inline]
    fn take(&mut self, id: u64, payload: &[u8]) -> Result<u64, NotTaken> {
        let most = self.granted.map_or(0, |granted| granted.payload_max);
        if payload.len() > most as usize {
            let len = payload.len();
            return Err(NotTaken::TooLarge { len, most });
        }
        if !self.outbox.has_room(payload.len()) {
            return Err(NotTaken::Full);
        }
        self.outbox.push(id, payload);
        self.next_id = id.checked_add(1);
        Ok(id)
    }

    /// A connection is there; the hello will be handed out first.
    pub fn connected(&mut self, now: Instant) {
        self.disconnected();
        let hello = self.hello().expect("checked when it was made");
        self.phase = Phase::Greeting(hello.into());
        self.heard = now;
    }

    /// The connection is lost, and with it all messages that were handed out and not acknowledged.
    /// The next connection sends the unacknowledged messages again, unless the server has them.
    pub fn disconnected(&mut self) {
        if matches!(self.phase, Phase::Waiting) {
            self.unanswered = self.unanswered.saturating_add(1);
            self.last_unanswered = self.heard;
        }
        self.phase = Phase::Offline;
        self.outbox.rewind(0);
        self.handed_out = None;
    }

    fn hello(&self) -> Result<Vec<u8>, Broken> {
        let resumes = self.granted.is_some();
        let produce = Produce {
            level: Some(self.wants.level),
            sparse: self.wants.sparse,
            // Messages acknowledged as received may have been lost in a crash of the server.
            adopt: resumes && self.wants.level == Level::Received,
            window_messages: self.wants.window.messages.try_into().unwrap_or(u32::MAX),
            window_bytes: self.wants.window.bytes,
            first_id: self.first_id(),
            stream: &self.wants.stream,
            producer: &self.wants.producer,
            token: &self.wants.token,
        };
        let mut bytes = Vec::new();
        Hello::Produce(produce).encode(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether a connection is there on which the server owes its welcome.
    pub(super) fn awaits_welcome(&self) -> bool {
        matches!(self.phase, Phase::Greeting(_) | Phase::Waiting)
    }

    /// Why the conversation ended, if the server has closed the connection now.
    pub(super) fn closed(&self) -> Broken {
        match self.phase {
            Phase::Greeting(_) | Phase::Waiting => Broken::ClosedUnanswered,
            _ => Broken::Closed,
        }
    }

    /// The id of the first message that will be sent.
    fn first_id(&self) -> u64 {
        let first = self.outbox.first_id().or(self.next_id);
        first.unwrap_or(if self.granted.is_some() {
            u64::MAX
        } else {
            self.wants.first_id
        })
    }

    /// The next bytes to write; `None` if nothing may be written now. Bytes that were handed out
    /// must be written whole, whatever is received meanwhile.
    pub fn output(&mut self, now: Instant) -> Option<Bytes> {
        match &mut self.phase {
            Phase::Greeting(hello) => {
                let hello = std::mem::take(hello);
                self.phase = Phase::Waiting;
                Some(hello)
            }
            Phase::Open => {
                let waited = self.in_flight().messages > 0;
                let (bytes, last) = self.outbox.next(self.window())?;
                if !waited {
                    self.heard = now;
                }
                self.handed_out = self.handed_out.max(Some(last));
                Some(bytes)
            }
            Phase::Offline | Phase::Waiting | Phase::Holding(_) => None,
        }
    }

    fn window(&self) -> Window {
        let granted = self.granted.as_ref().expect("open after a welcome");
        let smaller = |wanted: u64, granted: u64| match wanted {
            0 => granted,
            _ => wanted.min(granted),
        };
        Window {
            messages: smaller(self.wants.window.messages, granted.window_messages.into()),
            bytes: smaller(self.wants.window.bytes, granted.window_bytes),
        }
    }

    /// Takes the received bytes, whole frames only, and calls `each` for each event; returns how
    /// many bytes were used.
    ///
    /// # Errors
    /// [`Broken`]: the connection is to be closed.
    pub fn received(
        &mut self,
        bytes: &[u8],
        now: Instant,
        mut each: impl FnMut(Event<'_>),
    ) -> Result<usize, Broken> {
        if !bytes.is_empty() {
            self.heard = now;
        }
        let mut done = 0;
        while let Read::Whole(frame, len) = ServerFrame::decode(&bytes[done..], BODY_MAX)? {
            done += len;
            if let Some(event) = self.frame(frame, now)? {
                each(event);
            }
        }
        Ok(done)
    }

    fn frame<'a>(
        &mut self,
        frame: ServerFrame<'a>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, Broken> {
        let greeted = matches!(self.phase, Phase::Open | Phase::Holding(_));
        Ok(Some(match frame {
            ServerFrame::Unknown(_) => return Ok(None),
            ServerFrame::Refusal(refusal) if refusal.closes => {
                // The hello has been answered.
                self.phase = Phase::Offline;
                return Err(self.refused_for_good(refusal, now));
            }
            ServerFrame::Welcome(welcome) if matches!(self.phase, Phase::Waiting) => {
                self.welcome(welcome)?;
                Event::Welcome(welcome)
            }
            ServerFrame::Ack {
                keep_alive, why, ..
            } if greeted && keep_alive => Event::KeepAlive { why },
            ServerFrame::Ack { id, .. } if greeted => {
                let newly = self.acknowledged(id)?;
                Event::Acknowledged { id, newly }
            }
            ServerFrame::Refusal(refusal) if greeted => {
                self.refused(&refusal, now)?;
                Event::Refused(refusal)
            }
            _ => {
                return Err(Broken::Malformed(
                    "a frame that the protocol does not allow at this point".into(),
                ));
            }
        }))
    }

    /// The newer session that fences this producer may be this client's own: a hello of an earlier connection that
    /// the server read late. Each such hello excuses one refusal, so that one of two clients with one name gives
    /// up in the end.
    fn refused_for_good(&mut self, refusal: Refusal<'_>, now: Instant) -> Broken {
        let excused = self.unanswered > 0 && now.since(self.last_unanswered) <= LATE;
        if refusal.reason != Reason::Fenced || !excused {
            return Broken::from(refusal).of_token(!self.wants.token.is_empty());
        }
        self.unanswered -= 1;
        Broken::Overtaken
    }

    fn welcome(&mut self, welcome: Welcome) -> Result<(), Broken> {
        let (wanted, granted) = (self.wants.level, welcome.level);
        if granted < wanted && !self.wants.accept_lower {
            return Err(Broken::Level { wanted, granted });
        }
        if welcome.forgotten && !self.wants.accept_duplicates {
            return Err(Broken::Forgotten);
        }
        let again = self.granted.replace(welcome).is_some();
        if !again {
            let mark = welcome.last_id;
            self.next_id = mark.map_or(Some(self.wants.first_id), |id| id.checked_add(1));
            self.settled = mark;
        } else if !self.wants.producer.is_empty() {
            self.resume(&welcome)?;
        }
        self.phase = Phase::Open;
        Ok(())
    }

    /// Goes on after the mark that the server has, if that can be.
    fn resume(&mut self, welcome: &Welcome) -> Result<(), Broken> {
        let mark = welcome.last_id;
        if let (Some(mark), Some(next)) = (mark, self.next_id)
            && mark >= next
        {
            let sent = next.saturating_sub(1);
            return Err(Broken::NameTaken { sent, mark });
        }
        if let Some(acknowledged) = self.settled
            && mark.is_none_or(|mark| mark < acknowledged)
            && self.wants.level >= Level::Durable
            // Messages of a forgotten producer are not lost, and a caller that goes on then has
            // agreed to that.
            && !welcome.forgotten
        {
            return Err(Broken::Lost { acknowledged, mark });
        }
        if let Some(mark) = mark {
            self.outbox.acknowledged(mark);
            self.settled = self.settled.max(Some(mark));
        }
        Ok(())
    }

    fn acknowledged(&mut self, id: u64) -> Result<Amount, Broken> {
        if self.settled.is_some_and(|settled| id <= settled) {
            return Ok(Amount::default());
        }
        if self.handed_out.is_none_or(|last| id > last) {
            return Err(Broken::Malformed(format!(
                "the server acknowledged {id}, which was not sent"
            )));
        }
        self.settled = Some(id);
        Ok(self.outbox.acknowledged(id))
    }

    fn refused(&mut self, refusal: &Refusal<'_>, now: Instant) -> Result<(), Broken> {
        let known = self.handed_out.is_some_and(|last| refusal.id <= last)
            && self.settled.is_none_or(|settled| refusal.id > settled);
        if !known || refusal.reason == Reason::Malformed {
            let id = refusal.id;
            let what = format!("the server refused {id}, which was not in flight");
            return Err(Broken::Malformed(what));
        }
        self.outbox.rewind(refusal.id);
        let pause = Duration::from_millis(refusal.retry_after_ms.into());
        self.phase = Phase::Holding(now + pause);
        Ok(())
    }

    /// When [`expired`](Session::expired) is to be called, if no byte is received before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let silent = self.heard + self.wants.silence;
        match self.phase {
            Phase::Offline => None,
            Phase::Greeting(_) | Phase::Waiting => Some(silent),
            Phase::Holding(until) => Some(until),
            Phase::Open if self.in_flight().messages > 0 => Some(silent),
            Phase::Open => None,
        }
    }

    /// The time has come.
    ///
    /// # Errors
    /// [`Broken::Silent`] or [`Broken::Unanswered`]: the connection is to be closed.
    pub fn expired(&mut self, now: Instant) -> Result<(), Broken> {
        match (&self.phase, self.deadline()) {
            (_, None) => {}
            (_, Some(at)) if now < at => {}
            (Phase::Holding(_), _) => {
                self.phase = Phase::Open;
                self.heard = now;
            }
            (Phase::Greeting(_) | Phase::Waiting, _) => {
                return Err(Broken::Unanswered(self.wants.silence));
            }
            _ => return Err(Broken::Silent(self.wants.silence)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1);

    fn welcomed(
        session: &mut Session,
        last_id: Option<u64>,
        forgotten: bool,
    ) -> Result<(), Broken> {
        session.connected(NOW);
        session.output(NOW).expect("the hello");
        let welcome = Welcome {
            level: Level::Durable,
            payload_max: 1000,
            window_messages: 10,
            window_bytes: 1000,
            keepalive_ms: 1000,
            last_id,
            forgotten,
        };
        let mut bytes = Vec::new();
        ServerFrame::Welcome(welcome).encode(&mut bytes);
        session.received(&bytes, NOW, |_| {}).map(drop)
    }

    /// A Redis server waits for the end of a line; one that speaks TLS closes.
    #[test]
    fn a_hello_without_an_answer_is_told_from_a_conversation_that_breaks() {
        let mut session = Session::new(Producing::default()).expect("a session");
        session.connected(NOW);
        session.output(NOW).expect("the hello");
        let silence = Producing::default().silence;
        assert_eq!(
            session.expired(NOW + silence),
            Err(Broken::Unanswered(silence))
        );
        assert_eq!(session.closed(), Broken::ClosedUnanswered);
        welcomed(&mut session, None, false).expect("welcome");
        session.push(b"x").expect("room");
        session.output(NOW).expect("the message");
        assert_eq!(session.expired(NOW + silence), Err(Broken::Silent(silence)));
        assert_eq!(session.closed(), Broken::Closed);
    }

    /// A log that was replaced by an empty one while the client had no connection.
    #[test]
    fn a_server_that_knows_nothing_of_what_it_acknowledged_has_lost_it() {
        for (acknowledged, forgotten) in [(true, false), (false, false), (true, true)] {
            let mut session = Session::new(Producing {
                producer: "p".into(),
                accept_duplicates: forgotten,
                ..Producing::default()
            })
            .expect("a session");
            welcomed(&mut session, None, false).expect("welcome");
            let id = session.push(b"x").expect("room");
            session.output(NOW).expect("the message");
            if acknowledged {
                let mut ack = Vec::new();
                let (keep_alive, why) = (false, "");
                let frame = ServerFrame::Ack {
                    id,
                    keep_alive,
                    why,
                };
                frame.encode(&mut ack);
                session.received(&ack, NOW, |_| {}).expect("taken in");
            }
            let again = welcomed(&mut session, None, forgotten);
            let lost = Broken::Lost {
                acknowledged: id,
                mark: None,
            };
            match acknowledged && !forgotten {
                true => assert_eq!(again, Err(lost)),
                false => assert_eq!(again, Ok(())),
            }
        }
    }
}
