//! The service that speaks the small binary protocol, on database 0 of the store.
//!
//! A WRITE is a plain SET: it replaces whatever was there and its expiry. A READ of a key that holds
//! something else than a string, or a value too long for the protocol's one byte of length, answers
//! as a miss does, with an empty value, and is counted. A WRITE that the store refuses for lack of
//! memory ends the connection: an answer could only pretend. If the log is too busy for a WRITE, the
//! WRITE waits and the peer waits too; so does every request while the store is being recovered.
//!
//! The binary protocol has no password and no users. If the store's user `default` has a password
//! or restricted rights, now or later, this service refuses all clients, unless a setting has it
//! serve them all the same. Without a password, it refuses clients of other hosts.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tidewire::{
    Conns, Cx, Input, Limits, LoopHandle, Next, Peer, Protocol, Refusal, Service, Throttle,
};

use super::durable::{Durable, Waiting};
use super::resp_service::RespService;
use super::shared::MINUTE;
use super::stats::Count;
use crate::binary::{self, Request, Step};
use crate::commands::{self, Spec};
use crate::durable::KvLog;
use crate::number::parse_integer;
use crate::reply::{Proto, Reply};
use crate::store::{Ran, Store};

/// The database that the binary protocol serves.
const DB: u16 = 0;

/// When a WRITE is tried again that the log was too busy for.
const RETRY: Duration = Duration::from_millis(2);

/// When requests are tried again that wait for the store to be recovered.
const LOADING_RETRY: Duration = Duration::from_millis(20);

/// Replies that are put together before they are handed on; bytes. Each goes out in one piece.
const FLUSH: usize = 48 << 10;

/// The counters of the service, on all loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinaryCounters {
    /// READs answered, misses included.
    pub reads: u64,
    /// WRITEs done.
    pub writes: u64,
    /// READs of values that the protocol cannot carry; answered empty.
    pub unreadable: u64,
    /// Connections closed because their bytes broke the protocol.
    pub faults: u64,
    /// WRITEs refused for lack of memory, or of room in the log, by a server that does not own the store, or because the key is a
    /// stream of the log of messages; each closed its connection.
    pub refused: u64,
}

impl fmt::Display for BinaryCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "reads={} writes={} unreadable={} faults={} refused={}",
            self.reads, self.writes, self.unreadable, self.faults, self.refused
        )
    }
}

/// The counts of one loop.
#[derive(Debug, Default)]
struct Counts {
    reads: Count,
    writes: Count,
    unreadable: Count,
    faults: Count,
    refused: Count,
}

impl Counts {
    fn add_to(&self, sum: &mut BinaryCounters) {
        sum.reads += self.reads.value();
        sum.writes += self.writes.value();
        sum.unreadable += self.unreadable.value();
        sum.faults += self.faults.value();
        sum.refused += self.refused.value();
    }
}

/// The counts of all loops.
#[derive(Debug, Default)]
struct Totals {
    running: Vec<Arc<Counts>>,
    /// Counts of loops that have ended: the threads engine has one for each connection.
    ended: BinaryCounters,
}

/// Serves a [`Store`] to clients of the binary protocol. A clone is another handle on the same
/// service.
#[derive(Clone)]
pub struct BinaryService {
    store: Arc<Store>,
    durable: Arc<OnceLock<Durable<()>>>,
    guard: Option<RespService>,
    totals: Arc<Mutex<Totals>>,
    /// Throttle of log lines about clients whose connections it closes.
    closings: Arc<Throttle>,
    /// The prefix of keys that are not the store's.
    reserved: Option<Arc<[u8]>>,
    get: &'static Spec,
    set: &'static Spec,
}

impl BinaryService {
    /// Serves database 0 of `store` to every client.
    #[must_use]
    pub fn open(store: Arc<Store>) -> BinaryService {
        BinaryService::new(store, None)
    }

    /// Serves database 0 of the store of `resp`, and heeds what guards that: with a password, no
    /// client is served; in protected mode, only clients on this host.
    #[must_use]
    pub fn guarded(resp: &RespService) -> BinaryService {
        BinaryService::new(resp.shared().store.clone(), Some(resp.clone()))
    }

    /// Answers as this log promises, to which the store commits.
    #[must_use]
    pub fn durable(self, log: Arc<KvLog>) -> BinaryService {
        self.recovered(log);
        self
    }

    /// The store is what `log` says, and commits to it: from now on it is answered as that promises. The first call counts.
    /// While a store [loads](Store::begin_loading), or there is no [proof](crate::durable::KvLog::may_serve) that it is this
    /// server's, requests wait.
    pub fn recovered(&self, log: Arc<KvLog>) {
        self.durable.get_or_init(|| Durable::new(log));
    }

    /// Reserves keys with this prefix for a log that [is shown](RespService::show_log): a READ of such a key is
    /// answered like one of a value that is no string, a WRITE ends the connection.
    #[must_use]
    pub fn reserving(self, prefix: &[u8]) -> BinaryService {
        BinaryService {
            reserved: Some(prefix.into()),
            ..self
        }
    }

    fn new(store: Arc<Store>, guard: Option<RespService>) -> BinaryService {
        let command = |name| commands::find(name).expect("one of the basic commands");
        BinaryService {
            store,
            durable: Arc::default(),
            guard,
            totals: Arc::default(),
            closings: Arc::new(Throttle::new(MINUTE)),
            reserved: None,
            get: command(b"get"),
            set: command(b"set"),
        }
    }

    /// The limits to give the builder: no request is longer than 515 bytes. Silence between two requests ends no connection, as
    /// on the Redis port; a request that has begun has [`Limits::request`] to come to its end.
    #[must_use]
    pub fn limits() -> Limits {
        Limits {
            carried: 128 << 10,
            output_hard: 1 << 20,
            idle: None,
            ..Limits::default()
        }
    }

    /// The counters at this moment.
    #[must_use]
    pub fn counters(&self) -> BinaryCounters {
        let totals = lock(&self.totals);
        let mut sum = totals.ended;
        for counts in &totals.running {
            counts.add_to(&mut sum);
        }
        sum
    }
}

fn lock(totals: &Mutex<Totals>) -> MutexGuard<'_, Totals> {
    totals.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for BinaryService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BinaryService({:?})", self.counters())
    }
}

impl Service for BinaryService {
    type Conn = BinaryConn;

    fn on_loop(&self, at: LoopHandle<()>) -> BinaryLocal {
        let counts = Arc::new(Counts::default());
        lock(&self.totals).running.push(counts.clone());
        BinaryLocal {
            store: self.store.clone(),
            durable: self.durable.clone(),
            waiting: self
                .durable
                .get()
                .map(|durable| durable.on_loop(at.clone())),
            at,
            guard: self.guard.clone(),
            counts,
            closings: self.closings.clone(),
            replies: Vec::new(),
            scratch: small_reply(),
            reserved: self.reserved.clone(),
            get: self.get,
            set: self.set,
        }
    }

    fn accept(&self, from: &Peer, local: &mut BinaryLocal) -> Result<BinaryConn, Refusal> {
        let denies = |guard: &RespService| guard.shared().denies(from);
        if local.is_shut() || self.guard.as_ref().is_some_and(denies) {
            return Err(Refusal::Protected);
        }
        let waits = self.store.is_loading();
        // In this order: where the store is, the log is.
        local.find_log();
        Ok(BinaryConn { waits })
    }

    fn woken(&self, local: &mut BinaryLocal, all: &mut Conns<'_, BinaryConn>) {
        if let Some(mut waiting) = local.waiting.take() {
            // LATENCY shows only commands of the Redis protocol.
            let _ = waiting.woken(local, all);
            local.waiting = Some(waiting);
        }
    }

    fn loop_ended(&self, local: BinaryLocal) {
        let mut totals = lock(&self.totals);
        let ended = &local.counts;
        totals.running.retain(|known| !Arc::ptr_eq(known, ended));
        ended.add_to(&mut totals.ended);
    }
}

/// Why a WRITE was answered with this error, for the log.
fn refusal(error: &[u8]) -> &'static str {
    match error.starts_with(b"-READONLY") {
        true => "a write to a store that is another server's",
        false => "no room for a write",
    }
}

/// For values that the protocol can carry: of others nothing is built.
fn small_reply() -> Reply {
    let mut reply = Reply::new(Proto::Resp2);
    reply.set_limit(1024);
    reply
}

/// State of one loop.
pub struct BinaryLocal {
    store: Arc<Store>,
    durable: Arc<OnceLock<Durable<()>>>,
    at: LoopHandle<()>,
    /// The loop's state for the log, if there is one.
    waiting: Option<Waiting<()>>,
    guard: Option<RespService>,
    counts: Arc<Counts>,
    closings: Arc<Throttle>,
    /// Where replies are put together; empty between calls.
    replies: Vec<u8>,
    /// The reply of the command that one request stands for.
    scratch: Reply,
    reserved: Option<Arc<[u8]>>,
    get: &'static Spec,
    set: &'static Spec,
}

impl BinaryLocal {
    /// Whether the store has a password, which no client can show here, or forbids anything to a
    /// client without one.
    fn is_shut(&self) -> bool {
        let guard = self.guard.as_ref();
        guard.is_some_and(|resp| !resp.shared().acl.is_open())
    }

    /// Whether received requests may be answered now. The protocol has no errors, so requests wait.
    fn may_serve(&self) -> bool {
        let durable = self.durable.get();
        durable.is_none_or(|durable| durable.log.may_serve())
    }

    /// Waits for the log from now on, if there is one: it comes when the store has been recovered.
    fn find_log(&mut self) {
        if self.waiting.is_none()
            && let Some(durable) = self.durable.get()
        {
            self.waiting = Some(durable.on_loop(self.at.clone()));
        }
    }
}

impl fmt::Debug for BinaryLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BinaryLocal").finish_non_exhaustive()
    }
}

/// One connection of a [`BinaryService`].
#[derive(Debug)]
pub struct BinaryConn {
    /// The connection was accepted while the store was being recovered, and has not been served
    /// since.
    waits: bool,
}

impl Protocol for BinaryConn {
    type Local = BinaryLocal;
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if cx.local.is_shut() {
            cx.link.finish_because("a password has been set");
            return Next::More;
        }
        if self.waits {
            if cx.local.store.is_loading() {
                cx.link.set_timer_after(LOADING_RETRY);
                return Next::Paused;
            }
            self.waits = false;
            cx.local.find_log();
        }
        if !cx.local.may_serve() {
            cx.link.set_timer_after(LOADING_RETRY);
            return Next::Paused;
        }
        let mut replies = std::mem::take(&mut cx.local.replies);
        let next = serve(input, &mut replies, cx);
        replies.clear();
        cx.local.replies = replies;
        next
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.resume();
    }

    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        // The client gets no reply, and that is not the client's fault.
        let is_held_up = (self.waits && cx.local.store.is_loading()) || !cx.local.may_serve();
        if !is_held_up {
            cx.link.finish();
        }
    }
}

/// How a run of requests ended.
enum End {
    Needs(usize),
    /// More commands may be in the input.
    Flush,
    /// The log is too busy for the next one.
    Later,
    Close(&'static str),
}

fn serve(input: &mut Input<'_>, replies: &mut Vec<u8>, cx: &mut Cx<'_, BinaryConn>) -> Next {
    loop {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let mut used = 0;
        if let Some(waiting) = &cx.local.waiting {
            waiting.arm();
        }
        let mut barrier = 0;
        let end = run(input.bytes(), replies, &mut used, &mut barrier, cx);
        input.consume(used);
        if let Some(waiting) = &mut cx.local.waiting
            && barrier > 0
            && !waiting.hold(barrier, &mut cx.link)
        {
            return Next::More;
        }
        if !replies.is_empty() {
            cx.link.write(replies);
            replies.clear();
        }
        match end {
            End::Later => {
                cx.link.set_timer_after(RETRY);
                return Next::Paused;
            }
            End::Flush => {}
            End::Needs(_) if input.is_empty() => return Next::More,
            End::Needs(n) => return Next::AtLeast(n),
            End::Close(why) => {
                // A client can have this said as often as it can connect.
                if let Some(held_back) = cx.local.closings.pass(cx.link.now()) {
                    let peer = cx.link.peer().client();
                    tracing::warn!(%peer, held_back, "{why}: closing the connection");
                }
                cx.link.finish_because(why);
                return Next::More;
            }
        }
    }
}

/// Runs the requests that `bytes` begin with; `used` of the bytes are dealt with, and `barrier` is
/// the ticket that has to settle before the client hears the replies.
fn run(
    bytes: &[u8],
    replies: &mut Vec<u8>,
    used: &mut usize,
    barrier: &mut u64,
    cx: &mut Cx<'_, BinaryConn>,
) -> End {
    let now_ms = cx.link.wall().as_millis() as u64;
    let seed = cx.link.random();
    let BinaryLocal {
        store,
        counts,
        scratch,
        reserved,
        get,
        set,
        ..
    } = &mut *cx.local;
    let mut runner = store.runner(now_ms, seed);
    let is_reserved = |key: &[u8]| {
        let prefix = reserved.as_deref();
        prefix.is_some_and(|prefix| key.starts_with(prefix))
    };
    // Nothing is answered with an error here, so a busy log holds the peer back.
    runner.patient = true;
    let end = loop {
        if replies.len() >= FLUSH {
            break End::Flush;
        }
        scratch.clear();
        match binary::parse(&bytes[*used..]) {
            Step::Request(Request::Read { key }, len) if is_reserved(key) => {
                counts.reads.add(1);
                counts.unreadable.add(1);
                binary::encode_response(b"", replies);
                *used += len;
            }
            Step::Request(Request::Write { key, .. }, _) if is_reserved(key) => {
                counts.refused.add(1);
                break End::Close("a write to a key that is a stream of the log");
            }
            Step::Request(Request::Read { key }, len) => {
                if let Ran::Kept = runner.run(get, DB, &[b"get", key], scratch) {
                    break End::Later;
                }
                let value = value(scratch.bytes()).filter(|_| !scratch.is_over());
                counts.reads.add(1);
                counts.unreadable.add(u64::from(value.is_none()));
                binary::encode_response(value.unwrap_or_default(), replies);
                *used += len;
            }
            Step::Request(Request::Write { key, value }, len) => {
                if let Ran::Later | Ran::Kept = runner.run(set, DB, &[b"set", key, value], scratch)
                {
                    break End::Later;
                }
                if scratch.bytes().starts_with(b"-") {
                    counts.refused.add(1);
                    break End::Close(refusal(scratch.bytes()));
                }
                counts.writes.add(1);
                binary::encode_response(value, replies);
                *used += len;
            }
            Step::Needs(n) => break End::Needs(n),
            Step::Bad(fault) => {
                counts.faults.add(1);
                break End::Close(fault.reason());
            }
        }
    };
    *barrier = runner.barrier();
    end
}

/// The value in the reply of GET, empty for a miss; `None` if the protocol cannot carry it.
fn value(reply: &[u8]) -> Option<&[u8]> {
    let end = reply.iter().position(|&b| b == b'\r')?;
    match (reply[0], parse_integer(&reply[1..end])?) {
        (b'$', -1) => Some(b""),
        (b'$', len @ 0..=255) => reply.get(end + 2..end + 2 + len as usize),
        _ => None,
    }
}
