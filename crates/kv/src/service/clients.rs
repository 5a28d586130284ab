//! The connected clients: what CLIENT LIST shows, and how CLIENT KILL and CLIENT UNBLOCK reach
//! others.
//!
//! A connection keeps its own card up to date with plain stores; other threads only read the card.
//! The list is in parts, each with a lock of its own, taken when a connection comes or goes.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tidewire::{Endpoint, Handle};

use super::acl::Account;
use super::holdings::{BASE, Holding, Holdings, Total};
use super::message::Message;
use super::pubsub::Listening;
use crate::store::Tracker;

const PARTS: usize = 16;

/// Facts about one connection that every thread may read.
pub(crate) struct Card {
    pub(crate) id: u64,
    pub(crate) addr: Endpoint,
    pub(crate) handle: Handle<Message>,
    /// Milliseconds of the loops' clock.
    pub(crate) opened_ms: u64,
    pub(crate) active_ms: AtomicU64,
    pub(crate) db: AtomicU32,
    /// The last command's number in the table; `u32::MAX` before the first.
    pub(crate) command: AtomicU32,
    pub(crate) channels: AtomicU32,
    pub(crate) patterns: AtomicU32,
    pub(crate) shard_channels: AtomicU32,
    /// Commands queued by MULTI, plus one; 0 outside.
    pub(crate) queued: AtomicU32,
    pub(crate) watching: AtomicU32,
    /// Bytes of memory that stay in use because of the client.
    pub(crate) holdings: Holdings,
    pub(crate) resp3: AtomicBool,
    pub(crate) no_evict: AtomicBool,
    pub(crate) no_touch: AtomicBool,
    /// The mode of CLIENT TRACKING, and the client that is notified instead, 0 for none.
    pub(crate) tracks: AtomicBool,
    pub(crate) monitors: AtomicBool,
    pub(crate) broadcast: AtomicBool,
    pub(crate) redirect: AtomicU64,
    pub(crate) redirect_broken: AtomicBool,
    /// The connection is closed, or about to be.
    pub(crate) gone: AtomicBool,
    /// Whether another client has asked to be notified through this one.
    pub(crate) hears_for_others: AtomicBool,
    /// The number of the client's present wait in a blocking command; 0 for none.
    pub(crate) wait: AtomicU64,
    /// The client's next command waits for the end of CLIENT PAUSE.
    pub(crate) held_back: AtomicBool,
    /// Unconsumed input, the parsed part of it, and queued output; bytes. Brought up to date when the connection runs, and
    /// some times a second while they are large.
    pub(crate) input_len: AtomicU32,
    pub(crate) parsed_len: AtomicU64,
    pub(crate) output_len: AtomicU64,
    /// Bytes of lines that MONITOR has for it and its loop has not taken yet.
    pub(crate) unseen_len: AtomicU64,
    names: Mutex<Names>,
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Card({})", self.id)
    }
}

/// The names that a client has given itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) name: Box<[u8]>,
    pub(crate) lib_name: Box<[u8]>,
    pub(crate) lib_ver: Box<[u8]>,
    /// The user; only read once the user is known.
    pub(crate) user: Option<Arc<Account>>,
    /// Notes for the client's CLIENT TRACKING.
    pub(crate) tracker: Weak<Tracker>,
    /// The client's subscriptions.
    pub(crate) listening: Weak<Listening<Message>>,
}

/// Bytes that a client's name, and each name of its library, may have. Redis has no limit, and libraries use some dozens.
pub(crate) const NAME_MAX: usize = 1024;
/// Bytes of a name that logs keep.
const NAME_LOGGED: usize = 128;

impl Names {
    fn bytes(&self) -> usize {
        self.name.len() + self.lib_name.len() + self.lib_ver.len()
    }

    /// The names, shortened for logs.
    fn shortened(self) -> Names {
        let short = |name: Box<[u8]>| match name.len() {
            ..=NAME_LOGGED => name,
            _ => name[..NAME_LOGGED].into(),
        };
        Names {
            name: short(self.name),
            lib_name: short(self.lib_name),
            lib_ver: short(self.lib_ver),
            ..self
        }
    }
}

impl Card {
    pub(crate) fn new(
        id: u64,
        addr: Endpoint,
        handle: Handle<Message>,
        user: Arc<Account>,
        now_ms: u64,
    ) -> Card {
        Card {
            id,
            addr,
            handle,
            opened_ms: now_ms,
            active_ms: AtomicU64::new(now_ms),
            db: AtomicU32::new(0),
            command: AtomicU32::new(u32::MAX),
            channels: AtomicU32::new(0),
            patterns: AtomicU32::new(0),
            shard_channels: AtomicU32::new(0),
            queued: AtomicU32::new(0),
            watching: AtomicU32::new(0),
            holdings: Holdings::default(),
            resp3: AtomicBool::new(false),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            tracks: AtomicBool::new(false),
            monitors: AtomicBool::new(false),
            broadcast: AtomicBool::new(false),
            redirect: AtomicU64::new(0),
            redirect_broken: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            hears_for_others: AtomicBool::new(false),
            wait: AtomicU64::new(0),
            held_back: AtomicBool::new(false),
            input_len: AtomicU32::new(0),
            parsed_len: AtomicU64::new(0),
            output_len: AtomicU64::new(0),
            unseen_len: AtomicU64::new(0),
            names: Mutex::new(Names {
                user: Some(user),
                ..Names::default()
            }),
        }
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what the client calls itself. Only its own loop does.
    pub(crate) fn rename(&self, change: impl FnOnce(&mut Names)) {
        let mut names = self.names();
        change(&mut names);
        self.holdings.set(Holding::Names, names.bytes());
    }

    /// The client's name in the form that logs keep.
    pub(crate) fn logged_name(&self) -> Vec<u8> {
        let names = self.names();
        names.name[..names.name.len().min(NAME_LOGGED)].to_vec()
    }

    /// Bytes of memory that the client's CLIENT TRACKING takes: notes of keys, and notifications that
    /// were not sent yet.
    pub(crate) fn tracked_bytes(&self) -> u64 {
        let tracker = self.names().tracker.upgrade();
        tracker.map_or(0, |tracker| tracker.bytes() as u64)
    }

    /// Bytes of memory of all that the server holds because of this client.
    pub(crate) fn memory(&self) -> u64 {
        BASE + self.holdings.sum()
            + self.tracked_bytes()
            + u64::from(self.input_len.load(Relaxed))
            + self.parsed_len.load(Relaxed)
            + self.output_len.load(Relaxed)
            + self.unseen_len.load(Relaxed)
    }

    pub(crate) fn subscriptions(&self) -> u32 {
        self.channels.load(Relaxed)
            + self.patterns.load(Relaxed)
            + self.shard_channels.load(Relaxed)
    }

    /// Whether the client waits for a key, or for the end of a pause.
    pub(crate) fn is_blocked(&self) -> bool {
        self.wait.load(Relaxed) > 0 || self.held_back.load(Relaxed)
    }

    /// Whether the client is of type `pubsub` in lists and filters of clients.
    pub(crate) fn is_subscriber(&self) -> bool {
        self.subscriptions() > 0
    }

    /// The line of CLIENT LIST and CLIENT INFO.
    /// When it was opened, by the clock of the loops; milliseconds.
    pub(crate) fn opened_ms(&self) -> u64 {
        self.opened_ms
    }

    pub(crate) fn line(&self, local: &str, now_ms: u64, command: &str) -> String {
        let names = self.names().clone();
        self.line_with(&names, local, now_ms, command)
    }

    /// As [`line`](Card::line), with shortened names: for a log.
    pub(crate) fn logged_line(&self, local: &str, now_ms: u64, command: &str) -> String {
        let names = self.names().clone().shortened();
        self.line_with(&names, local, now_ms, command)
    }

    fn line_with(&self, names: &Names, local: &str, now_ms: u64, command: &str) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let queued = self.queued.load(Relaxed);
        let mut line = String::with_capacity(320);
        let _ = write!(
            line,
            "id={} addr={} laddr={local} fd=-1 name={} age={} idle={} flags={} db={} sub={} psub={} \
             ssub={} multi={} qbuf={} qbuf-free=0 argv-mem={} multi-mem={} rbs=0 rbp=0 obl=0 oll=0 \
             omem={} tot-mem={} events=r cmd={command} user={} redir={} resp={} lib-name={} \
             lib-ver={}",
            self.id,
            self.addr,
            text(&names.name),
            now_ms.saturating_sub(self.opened_ms) / 1000,
            now_ms.saturating_sub(self.active_ms.load(Relaxed)) / 1000,
            self.flags(),
            self.db.load(Relaxed),
            self.channels.load(Relaxed),
            self.patterns.load(Relaxed),
            self.shard_channels.load(Relaxed),
            i64::from(queued) - 1,
            self.input_len.load(Relaxed),
            self.holdings.get(Holding::Wait) + self.parsed_len.load(Relaxed),
            self.holdings.get(Holding::Transaction),
            self.output_len.load(Relaxed),
            self.memory(),
            names
                .user
                .as_ref()
                .map_or_else(String::new, |user| text(&user.name)),
            match self.tracks.load(Relaxed) {
                true => self.redirect.load(Relaxed) as i64,
                false => -1,
            },
            if self.resp3.load(Relaxed) { 3 } else { 2 },
            text(&names.lib_name),
            text(&names.lib_ver),
        );
        line
    }

    fn flags(&self) -> String {
        let mut flags = String::new();
        let all = [
            ('O', self.monitors.load(Relaxed)),
            ('P', self.is_subscriber()),
            ('x', self.queued.load(Relaxed) > 0),
            ('b', self.is_blocked()),
            ('t', self.tracks.load(Relaxed)),
            ('R', self.redirect_broken.load(Relaxed)),
            ('B', self.broadcast.load(Relaxed)),
            ('e', self.no_evict.load(Relaxed)),
            ('T', self.no_touch.load(Relaxed)),
        ];
        flags.extend(all.iter().filter(|(_, set)| *set).map(|(flag, _)| flag));
        if flags.is_empty() {
            flags.push('N');
        }
        flags
    }
}

/// All connections of the service.
#[derive(Default)]
pub(crate) struct Clients {
    last_id: AtomicU64,
    count: AtomicUsize,
    pub(super) total: Total,
    parts: [Mutex<BTreeMap<u64, Arc<Card>>>; PARTS],
}

impl Clients {
    /// A number that no other connection had or will have.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn add(&self, card: Arc<Card>) {
        if self.part(card.id).insert(card.id, card).is_none() {
            self.count.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn remove(&self, id: u64) {
        if self.part(id).remove(&id).is_some() {
            self.count.fetch_sub(1, Relaxed);
        }
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Card>> {
        self.part(id).get(&id).cloned()
    }

    /// All clients, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Card>> {
        let mut all: Vec<Arc<Card>> = Vec::new();
        self.each(|card| all.push(card.clone()));
        all.sort_by_key(|card| card.id);
        all
    }

    /// Shows each client, in no order.
    pub(super) fn each(&self, mut show: impl FnMut(&Arc<Card>)) {
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            part.values().for_each(&mut show);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Bytes of memory that the server holds because of all clients, and the part of them that
    /// CLIENT TRACKING takes.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let (mut all, mut tracked) = (0, 0);
        self.each(|card| {
            all += card.memory();
            tracked += card.tracked_bytes();
        });
        (all, tracked)
    }

    fn part(&self, id: u64) -> MutexGuard<'_, BTreeMap<u64, Arc<Card>>> {
        let part = &self.parts[id as usize % PARTS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
