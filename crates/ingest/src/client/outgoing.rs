//! Producers on the toolkit's engines: a protocol around a session, which tells a handler what
//! happens.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidewire::{
    Closed, Cx, Dial, Handle, Input, LoopHandle, Next, Origin, Peer, Protocol, Refusal, Service,
    Turn,
};

use super::backoff::{Backoff, Persistence};
use super::broken::Broken;
use super::outbox::Amount;
use super::session::{Event, Session};
use crate::native::codec;

/// Connections in a row that end without a welcome before a producer gives up.
const FRUITLESS_MAX: u32 = 5;

/// The callbacks of a program that runs producers on loops. Callbacks run on a loop, so they must
/// not block.
pub trait Handler: Send + 'static {
    /// Messages may be pushed, as long as the session [has room](Session::has_room): after each
    /// welcome, after each acknowledgement, and when a post reaches the connection. Whether there
    /// are any more to come; if not, the connection ends when all is acknowledged.
    fn ready(&mut self, session: &mut Session) -> bool;

    /// A connection was welcomed. `handle` reaches it from anywhere: posting to it has
    /// [`ready`](Handler::ready) called.
    fn connected(&mut self, handle: Handle<()>) {
        let _ = handle;
    }

    /// All messages up to `id` are settled; `newly` of them were not before.
    fn acknowledged(&mut self, id: u64, newly: Amount) {
        let _ = (id, newly);
    }

    /// The server takes no messages for a while; they are sent again by themselves.
    fn refused(&mut self, refusal: &codec::Refusal<'_>) {
        let _ = refusal;
    }

    /// Called when the session is over. The session still has the messages that were not
    /// acknowledged.
    fn ended(self, session: Session, why: Ended);
}

/// Why a producer has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// All messages were acknowledged, and no more were to come.
    #[error("everything is acknowledged")]
    Done,
    /// The conversation cannot go on.
    #[error("{0}")]
    Broken(Broken),
    /// The server could not be reached again, in as many attempts as the dial allows.
    #[error("cannot connect: {0}")]
    Unreachable(io::Error),
    /// The loops are stopping, or the connection was cut on this side.
    #[error("this client ended the connection: {0}")]
    Stopped(Closed),
}

/// A service of dialled producers. Each goes on over as many connections as it takes.
///
/// ```
/// use std::sync::mpsc::{Sender, channel};
/// use tidewire::{Builder, Dial, Listen};
/// use tidewire_ingest::client::{Ended, Handler, Outgoing, Producing, Session};
/// # use tidewire_ingest::{native, testing::SteppedLog};
///
/// /// Sends the numbers up to ten.
/// struct Ten(u8, Sender<String>);
///
/// impl Handler for Ten {
///     fn ready(&mut self, session: &mut Session) -> bool {
///         while self.0 < 10 && session.push(&[self.0]).is_ok() {
///             self.0 += 1;
///         }
///         self.0 < 10
///     }
///     fn ended(self, _: Session, why: Ended) {
///         self.1.send(why.to_string()).unwrap();
///     }
/// }
///
/// let mut builder = Builder::new();
/// # let log = SteppedLog::new().auto();
/// # let settings = native::Settings::default();
/// # let limits = settings.limits();
/// # let server = native::IngestService::new(std::sync::Arc::new(log.clone()), settings);
/// # let server = builder.service_with(server, limits);
/// # builder.listen(server, Listen::at("127.0.0.1:0"));
/// let outgoing = Outgoing::new();
/// let service = builder.service(outgoing.clone());
/// let running = builder.start()?;
/// # let server_addr = running.addrs()[0].clone();
/// let (tell, told) = channel();
/// let session = Session::new(Producing::default())?;
/// let dial = outgoing.add(Dial::to(server_addr).attempts(10), session, Ten(0, tell));
/// running.dial(service, dial)?;
/// assert_eq!(told.recv()?, "everything is acknowledged");
/// # assert_eq!(log.records("default").len(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Outgoing<H>(Arc<Mutex<Waiting<H>>>, Arc<AtomicU64>);

/// Producers without a connection, by token.
type Waiting<H> = HashMap<u64, Producer<H>>;

/// One producer, with or without a connection.
struct Producer<H> {
    session: Session,
    handler: H,
    dial: Dial,
    token: u64,
    /// Connections in a row without a welcome; connections that the server asked to retry are not
    /// counted.
    fruitless: u32,
    /// Spaces connections that break: a server in trouble is not dialled again at once.
    backoff: Backoff,
}

impl<H> Clone for Outgoing<H> {
    fn clone(&self) -> Outgoing<H> {
        Outgoing(self.0.clone(), self.1.clone())
    }
}

impl<H> fmt::Debug for Outgoing<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outgoing")
    }
}

impl<H> Default for Outgoing<H> {
    fn default() -> Outgoing<H> {
        Outgoing(Arc::default(), Arc::default())
    }
}

impl<H: Handler> Outgoing<H> {
    /// A service without any producers. Clones stand for the same service.
    #[must_use]
    pub fn new() -> Outgoing<H> {
        Outgoing::default()
    }

    /// Adds a producer that will connect by `dial`, which says how often to try each time. The
    /// result is to be given to [`Running::dial`](tidewire::Running::dial).
    pub fn add(&self, dial: Dial, session: Session, handler: H) -> Dial {
        let token = self.1.fetch_add(1, Relaxed);
        let dial = dial.token(token);
        let producer = Producer {
            session,
            handler,
            dial: dial.clone(),
            token,
            fruitless: 0,
            backoff: Backoff::new(Persistence::default(), token),
        };
        self.waiting().insert(token, producer);
        dial
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<H>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: Handler> Service for Outgoing<H> {
    type Conn = OutgoingConn<H>;

    fn on_loop(&self, _: LoopHandle<()>) -> OutgoingLocal<H> {
        OutgoingLocal(self.clone())
    }

    fn accept(&self, from: &Peer, _: &mut OutgoingLocal<H>) -> Result<OutgoingConn<H>, Refusal> {
        let Origin::Dialled(token) = from.origin else {
            return Err(Refusal::ByService("producers only dial"));
        };
        let producer = self.waiting().remove(&token);
        let producer = producer.ok_or(Refusal::ByService("no such producer"))?;
        Ok(OutgoingConn {
            producer,
            more: true,
            broken: None,
        })
    }

    fn dial_failed(&self, token: u64, error: &io::Error, _: &mut Turn<'_, OutgoingConn<H>>) {
        let producer = self.waiting().remove(&token);
        if let Some(producer) = producer {
            let error = io::Error::new(error.kind(), error.to_string());
            producer.end(Ended::Unreachable(error));
        }
    }
}

impl<H: Handler> Producer<H> {
    fn end(self, why: Ended) {
        self.handler.ended(self.session, why);
    }
}

/// A loop's part of [`Outgoing`].
pub struct OutgoingLocal<H>(Outgoing<H>);

impl<H> fmt::Debug for OutgoingLocal<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutgoingLocal")
    }
}

/// A connection of a producer.
pub struct OutgoingConn<H> {
    producer: Producer<H>,
    /// The handler has more to send.
    more: bool,
    broken: Option<Broken>,
}

impl<H> fmt::Debug for OutgoingConn<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutgoingConn({})", self.producer.token)
    }
}

impl<H: Handler> OutgoingConn<H> {
    /// Lets the handler push messages, and writes as much as may be written.
    fn go_on(&mut self, cx: &mut Cx<'_, Self>) {
        let Producer {
            session, handler, ..
        } = &mut self.producer;
        if self.more && session.next_id().is_some() {
            self.more = handler.ready(session);
        }
        let now = cx.link.now();
        while !cx.link.full()
            && let Some(piece) = session.output(now)
        {
            cx.link.write_shared(piece);
        }
        if !self.more && session.is_settled() {
            return cx.link.finish();
        }
        match session.deadline() {
            Some(at) => cx.link.set_timer(at),
            None => cx.link.clear_timer(),
        }
    }

    fn fail(&mut self, broken: Broken, cx: &mut Cx<'_, Self>) {
        self.broken = Some(broken);
        cx.link.finish();
    }

    /// Whether all there ever was is acknowledged.
    fn is_done(&self) -> bool {
        !self.more && self.producer.session.is_settled()
    }
}

impl<H: Handler> Protocol for OutgoingConn<H> {
    type Local = OutgoingLocal<H>;
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        self.producer.fruitless += 1;
        self.producer.session.connected(cx.link.now());
        self.go_on(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let Producer {
            session,
            handler,
            fruitless,
            backoff,
            ..
        } = &mut self.producer;
        let now = cx.link.now();
        let handle = cx.handle();
        let done = session.received(input.bytes(), now, |event| match event {
            Event::Welcome(_) => {
                *fruitless = 0;
                backoff.succeeded();
                handler.connected(handle.clone());
            }
            Event::Acknowledged { id, newly } => handler.acknowledged(id, newly),
            Event::Refused(refusal) => handler.refused(&refusal),
            Event::KeepAlive { .. } => {}
        });
        match done {
            Ok(n) => {
                input.consume(n);
                self.go_on(cx);
            }
            Err(broken) => self.fail(broken, cx),
        }
        Next::More
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        self.go_on(cx);
    }

    fn posted(&mut self, (): (), cx: &mut Cx<'_, Self>) {
        self.more = true;
        self.go_on(cx);
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        match self.producer.session.expired(cx.link.now()) {
            Ok(()) => self.go_on(cx),
            Err(broken) => self.fail(broken, cx),
        }
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        self.fail(self.producer.session.closed(), cx);
    }

    /// A producer without messages keeps its connection; a silent server is noticed by a timer.
    fn idle(&mut self, _: &mut Cx<'_, Self>) {}

    fn closed(mut self, why: Closed, turn: &mut Turn<'_, Self>) {
        if self.is_done() {
            return self.producer.end(Ended::Done);
        }
        if matches!(
            why,
            Closed::Stopped | Closed::StopDeadline | Closed::Panicked
        ) {
            return self.producer.end(Ended::Stopped(why));
        }
        let broken = self.broken.unwrap_or(self.producer.session.closed());
        let producer = &mut self.producer;
        if matches!(broken, Broken::Refused { .. } | Broken::Overtaken) {
            producer.fruitless = 0;
        }
        if !broken.is_passing() || producer.fruitless >= FRUITLESS_MAX {
            return self.producer.end(Ended::Broken(broken));
        }
        producer.session.disconnected();
        // How long to go on is the dial's to say, so no time is counted here.
        let pause = producer
            .backoff
            .after_failure(Duration::ZERO, Duration::ZERO);
        let pause = pause.unwrap_or_default().max(broken.retry_after());
        let (token, dial) = (producer.token, producer.dial.clone().after(pause));
        turn.local.0.waiting().insert(token, self.producer);
        turn.dial(dial);
    }
}
