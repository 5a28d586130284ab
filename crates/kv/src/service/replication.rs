//! What the server says of the home of its store, and how it is told to take one over: INFO, ROLE, REPLICAOF.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::call::{Call, Flow};
use super::info::line;
use super::shared::Shared;
use super::table::{Entry, What};
use crate::commands::Error;
use crate::commands::parse::is;
use crate::number::parse_integer;
use crate::reply::Reply;

/// What this server is to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// This server's: it carries what is committed home.
    #[default]
    Owner,
    /// The store of another server, which is followed.
    Follower,
    /// The store of another server, which is being taken over.
    TakesOver,
}

/// Whether a server can prove that the store is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseShown {
    /// The server is not the owner, or has not been it for long enough.
    #[default]
    None,
    /// The server can prove it.
    Held,
    /// The server could prove it, but its lease has run out.
    Lapsed,
}

impl LeaseShown {
    fn name(self) -> &'static str {
        match self {
            LeaseShown::None => "none",
            LeaseShown::Held => "held",
            LeaseShown::Lapsed => "lapsed",
        }
    }
}

/// How it is with a store that has a home.
#[derive(Clone, Debug, Default)]
pub struct Replicated {
    /// What this server is to the store.
    pub role: Role,
    /// The home is reached, and what is asked of it is done.
    pub is_linked: bool,
    /// On an owner, the first position that is not at home; on a follower, the first that was not
    /// applied.
    pub position: u64,
    /// How much is missing: records of the log that are not at home, or offsets of the home that were not read.
    pub lag: u64,
    /// On an owner, the age of the oldest change that is not at home; on a follower, how old its
    /// data may be; in milliseconds: 0 if nothing is missing, by what was heard of the home a
    /// moment ago.
    pub behind_ms: u64,
    /// Whether this server can prove that the store is its own.
    pub lease: LeaseShown,
    /// What went wrong last, until it is right again.
    pub trouble: Option<Arc<str>>,
    asked: u64,
    ended: u64,
    /// How many clients wait for what becomes of it.
    waiting: usize,
    /// What became of the last that ended.
    refused: Option<Arc<str>>,
    /// Why nothing is taken over any more.
    over: Option<Arc<str>>,
}

/// The home of a store, as its server and its clients see it. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Replication(Arc<Inner>);

struct Inner {
    home: String,
    now: Mutex<Replicated>,
    /// Says how it is when a client asks.
    look: OnceLock<Look>,
}

type Look = Box<dyn Fn(&mut Replicated) + Send + Sync>;

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.home)
    }
}

impl Replication {
    /// The replication of a store whose home has this name.
    #[must_use]
    pub fn new(home: String, role: Role) -> Replication {
        let now = Mutex::new(Replicated {
            role,
            ..Replicated::default()
        });
        Replication(Arc::new(Inner {
            home,
            now,
            look: OnceLock::new(),
        }))
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> Replicated {
        let mut status = self.lock().clone();
        if let Some(look) = self.0.look.get() {
            look(&mut status);
        }
        status
    }

    /// From now on `look` says how it is. The first call counts.
    pub fn watch(&self, look: impl Fn(&mut Replicated) + Send + Sync + 'static) {
        self.0.look.get_or_init(|| Box::new(look));
    }

    /// Changes what is reported.
    pub fn change(&self, change: impl FnOnce(&mut Replicated)) {
        change(&mut self.lock());
    }

    /// Whether it was asked to take the store over and has not answered.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let now = self.lock();
        now.asked > now.ended
    }

    /// Whether a client waits for the result.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.lock().waiting > 0
    }

    /// Cancels a promotion that was asked for and whose requesters have all gone: true if there was
    /// one. A later request asks anew.
    pub fn call_off(&self) -> bool {
        let mut now = self.lock();
        let is_over = now.asked > now.ended && now.waiting == 0;
        if is_over {
            now.ended = now.asked;
            now.role = Role::Follower;
            now.refused = Some("no client waited for it any more".into());
        }
        is_over
    }

    /// What became of taking it over.
    pub fn answer(&self, result: Result<(), Arc<str>>) {
        let mut now = self.lock();
        now.ended = now.asked;
        now.role = match result {
            Ok(()) => Role::Owner,
            Err(_) => Role::Follower,
        };
        now.refused = result.err();
    }

    /// Nothing is followed or taken over here any more.
    pub fn ends(&self, why: Arc<str>) {
        let mut now = self.lock();
        now.is_linked = false;
        now.trouble = Some(why.clone());
        now.over = Some(why);
    }

    /// Asks for it, for as long as what is returned is kept.
    fn ask(&self) -> Waits {
        let mut now = self.lock();
        // A takeover that is under way serves all requesters.
        if now.asked == now.ended {
            now.asked += 1;
            now.refused = None;
        }
        now.waiting += 1;
        Waits {
            replication: self.clone(),
            asked: now.asked,
        }
    }

    fn outcome(&self, asked: u64) -> Option<Result<(), Arc<str>>> {
        let now = self.lock();
        if let Some(why) = now.over.clone().filter(|_| now.ended < asked) {
            return Some(Err(why));
        }
        (now.ended >= asked).then(|| now.refused.clone().map_or(Ok(()), Err))
    }

    fn lock(&self) -> MutexGuard<'_, Replicated> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that waits for the store to be taken over. It is counted until this is dropped, which is when it is answered, or
/// goes.
#[derive(Debug)]
pub(crate) struct Waits {
    replication: Replication,
    asked: u64,
}

impl Waits {
    fn outcome(&self) -> Option<Result<(), Arc<str>>> {
        self.replication.outcome(self.asked)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.replication.lock().waiting -= 1;
    }
}

/// Whether this server only shows what others write, or have written, or may have by now.
pub(super) fn is_slave(shared: &Shared) -> bool {
    let durable = shared.durable.get();
    durable.is_some_and(|durable| {
        let log = &durable.log;
        log.follows() || log.lost().is_some() || !log.may_serve()
    })
}

/// Whether this server has owned the store, and what its clients were told of it may be old by now.
pub(super) fn is_former_owner(shared: &Shared) -> bool {
    let durable = shared.durable.get();
    is_slave(shared) && durable.is_some_and(|durable| !durable.log.follows())
}

/// Why a command is not run by a server that cannot prove that the store is its own; `None` if it may be.
pub(super) fn unproven(shared: &Shared, entry: &Entry) -> Option<Error> {
    let log = &shared.durable.get()?.log;
    let is_write = matches!(entry.what, What::Data(spec) if spec.is_write());
    match log.lost() {
        // The store refuses it, in the words for a change.
        Some(_) if is_write => None,
        lost if needs_proof(entry) => Some(masterdown(lost.is_some())),
        _ => None,
    }
}

/// Why nothing can be said now of what is in the store; `None` if it can.
pub(super) fn stale(shared: &Shared) -> Option<Error> {
    let log = &shared.durable.get()?.log;
    (!log.may_serve()).then(|| masterdown(log.lost().is_some()))
}

/// The words that clients of Redis know for a replica that serves nothing old.
fn masterdown(is_lost: bool) -> Error {
    Error::new(match is_lost {
        true => {
            "MASTERDOWN another server has taken this store over, and what is here may be old: ask that one"
        }
        false => {
            "MASTERDOWN this server has not reached the home of its store for too long to prove that it is still the owner: \
             see home_lease in INFO replication"
        }
    })
}

fn needs_proof(entry: &Entry) -> bool {
    entry.needs_keys() || entry.name == "exec"
}

/// The section of INFO.
pub(super) fn info(call: &mut Call<'_, '_>, text: &mut String) {
    let shared = call.shared.clone();
    let is_slave = is_slave(&shared);
    line(text, "role", if is_slave { "slave" } else { "master" });
    let Some(replication) = shared.replication.get() else {
        line(text, "connected_slaves", 0);
        line(text, "master_repl_offset", 0);
        return;
    };
    let status = replication.status();
    let (home, lost) = (&replication.0.home, shared.durable.get());
    let lost = lost.and_then(|durable| durable.log.lost());
    if is_slave {
        let is_up = status.is_linked && lost.is_none() && status.lease != LeaseShown::Lapsed;
        line(text, "master_host", home);
        line(text, "master_port", 0);
        line(
            text,
            "master_link_status",
            if is_up { "up" } else { "down" },
        );
        line(
            text,
            "master_sync_in_progress",
            u8::from(shared.store.is_loading()),
        );
        line(text, "slave_read_only", 1);
        line(text, "slave_repl_offset", status.position);
    }
    line(text, "connected_slaves", 0);
    line(text, "master_repl_offset", status.position);
    line(text, "home", home);
    let is_unproven = lost.is_none() && is_slave && status.role == Role::Owner;
    let role = match is_unproven {
        true => "unproven",
        false => name(status.role, lost.is_some()),
    };
    line(text, "home_role", role);
    let lease = match lost {
        Some(_) => LeaseShown::None,
        None => status.lease,
    };
    line(text, "home_lease", lease.name());
    line(
        text,
        "home_link",
        if status.is_linked { "up" } else { "down" },
    );
    line(text, "home_lag", status.lag);
    line(
        text,
        "home_lag_seconds",
        format!("{:.3}", status.behind_ms as f64 / 1e3),
    );
    if let Some(why) = lost.or(status.trouble.as_ref()) {
        line(text, "home_trouble", why.replace(['\r', '\n'], " "));
    }
}

/// What a role is called where it is shown.
fn name(role: Role, is_lost: bool) -> &'static str {
    match role {
        _ if is_lost => "former",
        Role::Owner => "owner",
        Role::Follower => "follower",
        Role::TakesOver => "takes-over",
    }
}

pub(super) fn role(call: &mut Call<'_, '_>) -> Flow {
    tell_role(&call.shared, call.reply);
    Flow::Done
}

/// Answers ROLE.
pub(super) fn tell_role(shared: &Shared, reply: &mut Reply) {
    let replication = shared.replication.get();
    let position = replication.map_or(0, |replication| replication.status().position) as i64;
    if !is_slave(shared) {
        reply.array(3);
        reply.bulk(b"master");
        reply.integer(position);
        reply.array(0);
        return;
    }
    let home = replication.map_or("", |replication| &replication.0.home);
    let is_linked = replication.is_some_and(|replication| {
        let status = replication.status();
        status.is_linked && status.lease != LeaseShown::Lapsed
    });
    reply.array(5);
    reply.bulk(b"slave");
    reply.bulk(home.as_bytes());
    reply.integer(0);
    reply.bulk(match is_linked {
        _ if shared.store.is_loading() => b"sync",
        true => b"connected",
        false => b"connect",
    });
    reply.integer(position);
}

/// REPLICAOF and SLAVEOF. Which server it follows is said when it starts; that it takes the store
/// over is said here, and answered when it has, or cannot.
pub(super) fn replicaof(call: &mut Call<'_, '_>) -> Flow {
    let (host, port) = (call.args[1], call.args[2]);
    if !(is(host, "no") && is(port, "one")) {
        let is_port = parse_integer(port).is_some_and(|port| (0..=65535).contains(&port));
        call.reply.error(match is_port {
            false => "ERR Invalid master port",
            true => {
                "ERR the server to follow is set at the start, with --follow: see the documentation of replication"
            }
        });
        return Flow::Done;
    }
    let shared = call.shared.clone();
    if let Some(why) = shared.durable.get().and_then(|durable| durable.log.lost()) {
        let why = why.replace(['\r', '\n'], " ");
        call.reply.error(format!(
            "ERR another server has taken this store over, and this one does not take it back: start it anew as a follower ({why})"
        ));
        return Flow::Done;
    }
    let follows = |shared: &Shared| {
        let durable = shared.durable.get();
        durable.is_some_and(|durable| durable.log.follows())
    };
    let replication = shared.replication.get();
    let Some(replication) =
        replication.filter(|_| call.session.waits_for_takeover.is_some() || follows(&shared))
    else {
        call.reply.ok();
        return Flow::Done;
    };
    if call.in_transaction {
        call.reply
            .error("ERR a store is not taken over within a transaction");
        return Flow::Done;
    }
    let waits = &mut call.session.waits_for_takeover;
    let waits = waits.get_or_insert_with(|| replication.ask());
    let Some(outcome) = waits.outcome() else {
        return Flow::Later;
    };
    call.session.waits_for_takeover = None;
    match outcome {
        Ok(()) => call.reply.ok(),
        Err(why) => {
            let why = why.replace(['\r', '\n'], " ");
            call.reply
                .error(format!("ERR the store was not taken over: {why}"));
        }
    }
    Flow::Done
}
