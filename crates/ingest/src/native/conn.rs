//! One connection of the server: a hello, and then either a producer or a reader.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidewire::{Closed, Cx, Input, Instant, Next, Peer, Protocol, Turn};
use tidewire_log::{Policy, Progress, Refused};

use super::admin::Admin;
use super::codec::{Administer, Hello, Level, Malformed, Produce, Read, Reason, Subscribe};
use super::counters::Count;
use super::fleet::At;
use super::local::{IngestLocal, Owed};
use super::message::Message;
use super::producer::{Bound, Producer};
use super::reader::Reader;
use super::reply::{
    CUT_SHORT, DEFAULT_STREAM, NOWHERE, PROTECTED, RESERVED, is_reserved, millis, reason_of,
    refuse, refuse_and_close,
};
use super::shared::Shared;
use super::tokens::{Pass, Right};

/// The text for a producer that asks for level replicated while the replicator has not reached the home
/// yet.
const HOMELESS: &str = "the server has not reached the home of its log yet, and cannot promise level replicated: connect again";

/// One connection of an [`IngestService`](super::IngestService).
pub struct IngestConn {
    shared: Arc<Shared>,
    role: Role,
    /// The client's rights and its stream; `None` before its hello.
    let_in: Option<Box<LetIn>>,
    /// How long the client's hello waits, and for what.
    waits_until: Option<(Instant, &'static str)>,
}

/// See there.
struct LetIn {
    pass: Pass,
    right: Right,
    /// The stream; `None` for an administrator, which names a stream in each request.
    stream: Option<String>,
}

enum Role {
    /// The client has not sent its hello yet.
    Hello,
    /// The producer waits for what the session before it handed over, and is not welcomed yet.
    Settling(Box<Producer>),
    Producer(Box<Producer>),
    Reader(Box<Reader>),
    Admin(Box<Admin>),
}

impl fmt::Debug for IngestConn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.role {
            Role::Hello => f.write_str("IngestConn"),
            Role::Settling(producer) => write!(f, "IngestConn(settling {producer:?})"),
            Role::Producer(producer) => write!(f, "IngestConn({producer:?})"),
            Role::Reader(reader) => write!(f, "IngestConn({reader:?})"),
            Role::Admin(admin) => write!(f, "IngestConn({admin:?})"),
        }
    }
}

impl IngestConn {
    pub(super) fn new(shared: Arc<Shared>) -> IngestConn {
        IngestConn {
            shared,
            role: Role::Hello,
            let_in: None,
            waits_until: None,
        }
    }

    fn hello(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let (hello, len) = match Hello::decode(input.bytes()) {
            Ok(Read::Whole(hello, len)) => (hello, len),
            Ok(Read::Partial(needed)) => return Next::AtLeast(needed),
            Err(Malformed(why)) => {
                refuse(cx, 0, Reason::Malformed, 0, why);
                return Next::More;
            }
        };
        cx.link.clear_timer();
        let begun = match hello {
            Hello::Produce(produce) => self.produce(&produce, cx),
            Hello::Subscribe(subscribe) => self.subscribe(&subscribe, cx),
            Hello::Administer(administer) => self.administer(&administer, cx),
        };
        match begun {
            // The client says hello again when there is room.
            Err(TurnedAway::Busy) => {
                cx.local.crowded.push(cx.link.id());
                cx.local.tally.add(Count::paused_by_log, 1);
                return Next::Paused;
            }
            Err(TurnedAway::Later(why)) => {
                let within = self.shared.settings.hello_within;
                let (until, _) = *self
                    .waits_until
                    .get_or_insert_with(|| (cx.link.now() + within, why));
                cx.link.set_timer(until);
                cx.local.crowded.push(cx.link.id());
                return Next::Paused;
            }
            _ => {}
        }
        input.consume(len);
        if let Some(let_in) = &self.let_in
            && let Some(token) = self.shared.tokens.name(&let_in.pass)
        {
            cx.local.refused.let_in(cx.link.id(), token);
        }
        match begun {
            Ok(()) if cx.link.paused() => Next::Paused,
            Ok(()) if !cx.link.is_closing() => self.received(input, cx),
            Ok(()) | Err(TurnedAway::Busy | TurnedAway::Later(_)) => Next::More,
            Err(TurnedAway::Protected) => {
                if let Some(held_back) = self.shared.denials.pass(cx.link.now()) {
                    tracing::warn!(peer = %cx.link.peer().endpoint, held_back, "refused: {PROTECTED}");
                }
                refuse_and_close(cx, 0, Reason::Unauthorised, 0, PROTECTED);
                Next::More
            }
            Err(TurnedAway::Moved(to)) => {
                refuse_and_close(cx, 0, Reason::Moved, 0, &to);
                Next::More
            }
            Err(TurnedAway::For(reason, retry_after)) => {
                refuse_and_close(cx, 0, reason, millis(retry_after), reason.name());
                Next::More
            }
        }
    }

    fn produce(&mut self, hello: &Produce<'_>, cx: &mut Cx<'_, Self>) -> Result<(), TurnedAway> {
        let stream = self.admit(cx.link.peer(), Right::Write, hello.stream, hello.token)?;
        let hold = match &self.shared.settings.fleet {
            None => None,
            Some(fleet) => {
                // The bell is armed first, then the state is read: later room rings.
                cx.local.bell.arm();
                match fleet.at(hello.producer) {
                    At::Here(hold) => hold,
                    At::There(place) => return Err(TurnedAway::Moved(place)),
                    At::Nowhere => return Err(TurnedAway::Later(NOWHERE)),
                }
            }
        };
        let bound = match &hold {
            None => None,
            Some(hold) => Some(hold.enter().ok_or(TurnedAway::Later(NOWHERE))?),
        };
        if self.shared.settings.declared && self.shared.log.range(stream).is_none() {
            return Err(Reason::NoStream.into());
        }
        if bound.is_none() && self.awaits_home(stream, hello, cx) {
            return Err(TurnedAway::Later(HOMELESS));
        }
        let bound = bound.map(|guest| Bound::new(guest, stream, hello.producer));
        let mut begun = Producer::begin(&self.shared, stream, hello, bound.as_ref(), cx);
        if matches!(begun, Err(Refused::Busy)) {
            // Once more, because there may be room since, which rang no bell.
            cx.local.bell.arm();
            begun = Producer::begin(&self.shared, stream, hello, bound.as_ref(), cx);
        }
        let producer = begun?.bound_to(bound);
        self.role = Role::Settling(Box::new(producer));
        // The bell is armed first, and then the log is looked at: a commit in between is not
        // missed.
        let mistakes = self.shared.settings.mistakes;
        if !mistakes.makes(|mistakes| mistakes.welcome_unarmed) {
            cx.local.bell.arm();
        }
        let progress = self.shared.log.progress();
        self.settle(&progress, cx);
        Ok(())
    }

    /// Whether a producer asks for level replicated while it is not known whether its messages
    /// reach the home.
    fn awaits_home(&self, stream: &str, hello: &Produce<'_>, cx: &mut Cx<'_, Self>) -> bool {
        let log = &self.shared.log;
        let level = hello.level.unwrap_or(self.shared.settings.level);
        let is_asked = level == Level::Replicated && log.policy() != Policy::Os;
        if !is_asked || !log.comes_home(stream) {
            return false;
        }
        // First armed, then looked.
        cx.local.bell.arm();
        let progress = log.progress();
        progress.seeks_home && !progress.replicates && progress.failure.is_none()
    }

    fn subscribe(
        &mut self,
        hello: &Subscribe<'_>,
        cx: &mut Cx<'_, Self>,
    ) -> Result<(), TurnedAway> {
        let stream = self.admit(cx.link.peer(), Right::Read, hello.stream, hello.token)?;
        if is_reserved(hello.cursor) {
            refuse_and_close(cx, 0, Reason::Malformed, 0, RESERVED);
            return Ok(());
        }
        if self.shared.readers.fetch_add(1, Relaxed) >= self.shared.settings.readers {
            self.shared.readers.fetch_sub(1, Relaxed);
            return Err(Reason::TooMany.into());
        }
        self.role = Role::Reader(Box::new(Reader::new(stream, hello)));
        if let Role::Reader(reader) = &mut self.role {
            reader.begin(hello, &self.shared, cx);
        }
        Ok(())
    }

    fn administer(
        &mut self,
        hello: &Administer<'_>,
        cx: &mut Cx<'_, Self>,
    ) -> Result<(), TurnedAway> {
        self.protect(cx.link.peer())?;
        let pass = Pass::new(hello.token);
        if !self.shared.tokens.allow(&pass, Right::Admin, None) {
            return Err(Reason::Unauthorised.into());
        }
        self.role = Role::Admin(Box::new(Admin::begin(pass, cx)));
        self.let_in = Some(Box::new(LetIn {
            pass: Pass::new(hello.token),
            right: Right::Admin,
            stream: None,
        }));
        Ok(())
    }

    /// The stream that is meant, if the token is good for it.
    fn admit<'a>(
        &mut self,
        peer: &Peer,
        right: Right,
        stream: &'a str,
        token: &str,
    ) -> Result<&'a str, TurnedAway> {
        let stream = if stream.is_empty() {
            DEFAULT_STREAM
        } else {
            stream
        };
        self.protect(peer)?;
        let pass = Pass::new(token);
        if !self.shared.tokens.allow(&pass, right, Some(stream)) {
            return Err(Reason::Unauthorised.into());
        }
        self.let_in = Some(Box::new(LetIn {
            pass,
            right,
            stream: Some(stream.to_owned()),
        }));
        Ok(stream)
    }

    fn protect(&self, peer: &Peer) -> Result<(), TurnedAway> {
        let is_open = !self.shared.settings.protected || peer.is_trusted();
        if !is_open && self.shared.tokens.is_empty() {
            return Err(TurnedAway::Protected);
        }
        Ok(())
    }

    /// Whether the client still has the right that it was let in with; if not, it is told so. Tokens
    /// may have changed since.
    fn is_let_in(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let Some(LetIn {
            pass,
            right,
            stream,
        }) = self.let_in.as_deref()
        else {
            return true;
        };
        let stream = stream.as_deref();
        if self.shared.tokens.still_allow(pass, *right, stream) {
            return true;
        }
        match &mut self.role {
            Role::Producer(producer) => producer.shut_out(cx),
            Role::Reader(reader) => reader.shut_out(cx),
            Role::Admin(admin) => admin.shut_out(cx),
            Role::Hello | Role::Settling(_) => {
                let reason = Reason::Unauthorised;
                refuse(cx, 0, reason, 0, reason.name());
            }
        }
        false
    }

    // ---- What the log has done ----

    /// A batch of this connection is committed.
    pub(super) fn committed(&mut self, owed: &Owed, cx: &mut Cx<'_, Self>) {
        if let Role::Producer(producer) = &mut self.role {
            producer.committed(owed, cx);
        }
    }

    /// The log has failed while this connection waited for an acknowledgement.
    pub(super) fn log_failed(&mut self, progress: &Progress, cx: &mut Cx<'_, Self>) {
        if let Role::Producer(producer) = &mut self.role {
            producer.log_failed(progress, cx);
        }
    }

    /// Welcomes a producer if all that its older session handed over is settled.
    pub(super) fn settle(&mut self, progress: &Progress, cx: &mut Cx<'_, Self>) {
        if let Role::Admin(admin) = &mut self.role {
            return admin.settle(progress, cx);
        }
        if let Role::Settling(producer) = &mut self.role {
            if producer.settle(progress, &self.shared, cx) {
                let Role::Settling(producer) = std::mem::replace(&mut self.role, Role::Hello)
                else {
                    unreachable!("it was just that");
                };
                self.role = Role::Producer(producer);
            } else if !cx.link.is_closing() {
                cx.local.settling.push(cx.link.id());
            }
        }
    }

    /// The queue of the log may have room again.
    pub(super) fn room(&mut self, cx: &mut Cx<'_, Self>) {
        match &mut self.role {
            Role::Hello => cx.link.resume(),
            Role::Producer(producer) => producer.room(cx),
            Role::Reader(reader) => reader.commit_again(&self.shared, cx),
            Role::Admin(_) => cx.link.resume(),
            Role::Settling(_) => {}
        }
    }

    /// Goes on: there may be more to read.
    pub(super) fn follow(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.is_let_in(cx) {
            return;
        }
        if let Role::Reader(reader) = &mut self.role {
            reader.follow(&self.shared, cx);
        }
    }
}

impl Protocol for IngestConn {
    type Local = IngestLocal;
    type Message = Message;

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.set_timer_after(self.shared.settings.hello_within);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if !self.is_let_in(cx) {
            return Next::More;
        }
        match &mut self.role {
            Role::Hello => self.hello(input, cx),
            Role::Settling(_) => Next::Paused,
            Role::Producer(producer) => producer.received(input, &self.shared, cx),
            Role::Reader(reader) => reader.received(input, &self.shared, cx),
            Role::Admin(admin) => admin.received(input, &self.shared, cx),
        }
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        match &mut self.role {
            Role::Producer(producer) => producer.writable(cx),
            Role::Reader(reader) => reader.go_on(&self.shared, cx),
            Role::Hello | Role::Settling(_) | Role::Admin(_) => {}
        }
    }

    fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        if unread > 0 {
            cx.local.tally.add(Count::truncated, 1);
        }
        match &mut self.role {
            Role::Hello if unread == 0 => cx.link.finish(),
            Role::Hello => refuse(cx, 0, Reason::Malformed, 0, CUT_SHORT),
            // The producer is welcomed first.
            Role::Settling(producer) => producer.finishes_early(),
            Role::Producer(producer) => producer.peer_finished(unread, cx),
            Role::Reader(reader) => reader.peer_finished(unread, &self.shared, cx),
            Role::Admin(admin) => admin.peer_finished(unread, cx),
        }
    }

    /// Complete messages are stored and acknowledged, even if the bytes behind them are not
    /// complete.
    fn cut_short(&mut self, unread: usize, _: &'static str, cx: &mut Cx<'_, Self>) {
        self.peer_finished(unread, cx);
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        match &mut self.role {
            Role::Hello if self.waits_until.is_some() => {
                let why = self.waits_until.map_or("", |(_, why)| why);
                let away = self.shared.log.progress().away.filter(|_| why == HOMELESS);
                let away = away.map(|away| format!(": {away}")).unwrap_or_default();
                refuse(cx, 0, Reason::Stopping, 0, &format!("{why}{away}"));
            }
            Role::Hello => {
                let within = self.shared.settings.hello_within;
                let text = format!("no hello within {within:?}");
                refuse(cx, 0, Reason::TooSlow, 0, &text);
            }
            Role::Producer(producer) => producer.expired(&self.shared, cx),
            Role::Reader(reader) => reader.expired(&self.shared, cx),
            Role::Settling(_) | Role::Admin(_) => {}
        }
    }

    /// A producer may have nothing to say for days.
    fn idle(&mut self, _: &mut Cx<'_, Self>) {}

    fn posted(&mut self, message: Message, cx: &mut Cx<'_, Self>) {
        // A reader that has much to catch up with says nothing for long.
        if matches!(message, Message::Read(_)) && !self.is_let_in(cx) {
            return;
        }
        match (message, &mut self.role) {
            (Message::Fenced, Role::Settling(producer) | Role::Producer(producer)) => {
                producer.fenced(cx);
            }
            (Message::Unbound, Role::Settling(producer) | Role::Producer(producer)) => {
                producer.unbound(&self.shared, cx);
            }
            (Message::Read(answer), Role::Reader(reader)) => {
                reader.answered(answer, &self.shared, cx);
            }
            _ => unreachable!("no such message is sent to it"),
        }
    }

    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        match &mut self.role {
            Role::Hello => cx.link.finish(),
            Role::Settling(_) => refuse(cx, 0, Reason::Stopping, 0, Reason::Stopping.name()),
            Role::Producer(producer) => producer.draining(cx),
            Role::Reader(reader) => reader.draining(cx),
            Role::Admin(admin) => admin.draining(cx),
        }
    }

    fn closed(self, _: Closed, turn: &mut Turn<'_, Self>) {
        if let Some(id) = turn.id() {
            turn.local.refused.closed(id);
        }
        match self.role {
            Role::Hello | Role::Admin(_) => {}
            Role::Settling(producer) | Role::Producer(producer) => producer.closed(&self.shared),
            Role::Reader(reader) => {
                reader.closed(&self.shared);
                self.shared.readers.fetch_sub(1, Relaxed);
            }
        }
    }
}

/// Why a hello is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TurnedAway {
    /// The queue of the log is full: it has to wait.
    Busy,
    /// The client comes from another host, and there are no tokens to ask for.
    Protected,
    /// The producer belongs to the server there.
    Moved(Arc<str>),
    /// The hello cannot be answered yet, for this reason: it waits.
    Later(&'static str),
    /// The hello is refused, and may be tried again after a time where that is not zero.
    For(Reason, Duration),
}

impl From<Reason> for TurnedAway {
    fn from(reason: Reason) -> TurnedAway {
        TurnedAway::For(reason, Duration::ZERO)
    }
}

impl From<Refused> for TurnedAway {
    fn from(refused: Refused) -> TurnedAway {
        match refused {
            Refused::Busy => TurnedAway::Busy,
            Refused::DiskFull { retry_after } | Refused::StreamFull { retry_after } => {
                TurnedAway::For(reason_of(refused), retry_after)
            }
            other => reason_of(other).into(),
        }
    }
}
