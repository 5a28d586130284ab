//! Commands about the home of the store, and for taking a store over: INFO, ROLE, REPLICAOF.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The role of this server for the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// This server owns the store: it replicates committed changes to the home.
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
    /// The server can prove that it owns the store.
    Held,
    /// The server could prove that it owns the store, but its lease has run out.
    Lapsed,
}

impl LeaseShown {
    pub(super) fn name(self) -> &'static str {
        match self {
            LeaseShown::None => "none",
            LeaseShown::Held => "held",
            LeaseShown::Lapsed => "lapsed",
        }
    }
}

/// The state of a store that has a home.
#[derive(Clone, Debug, Default)]
pub struct Replicated {
    /// The role of this server for the store.
    pub role: Role,
    /// The home is reachable, and answers requests.
    pub is_linked: bool,
    /// On an owner, the first position that is not in the home; on a follower, the first position
    /// that was not applied.
    pub position: u64,
    /// How much is missing: records of the log that are not at home, or offsets of the home that were not read.
    pub lag: u64,
    /// On an owner, the age of the oldest change that is not in the home; on a follower, how old
    /// its data may be; in milliseconds. 0 if no record is missing, according to the home's last
    /// answer.
    pub behind_ms: u64,
    /// Whether this server can prove that the store is its own.
    pub lease: LeaseShown,
    /// The latest error; `None` as soon as an attempt succeeds.
    pub trouble: Option<Arc<str>>,
    pub(super) asked: u64,
    pub(super) ended: u64,
    /// How many clients wait for the result of the takeover.
    waiting: usize,
    /// How the last attempt to take the store over ended.
    refused: Option<Arc<str>>,
    /// Why no store is taken over any more.
    over: Option<Arc<str>>,
}

/// The home of a store, as its server and its clients see it. Clones share one state.
#[derive(Clone, Debug)]
pub struct Replication(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) home: String,
    now: Mutex<Replicated>,
    /// The function that fills in the state when a client asks.
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

    /// The present state.
    #[must_use]
    pub fn status(&self) -> Replicated {
        let mut status = self.lock().clone();
        if let Some(look) = self.0.look.get() {
            look(&mut status);
        }
        status
    }

    /// From now on `look` fills in the state. The first call counts.
    pub fn watch(&self, look: impl Fn(&mut Replicated) + Send + Sync + 'static) {
        self.0.look.get_or_init(|| Box::new(look));
    }

    /// Changes the reported state.
    pub fn change(&self, change: impl FnOnce(&mut Replicated)) {
        change(&mut self.lock());
    }

    /// Whether a client has asked to take the store over and has no answer yet.
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

    /// Reports how the attempt to take the store over ended.
    pub fn answer(&self, result: Result<(), Arc<str>>) {
        let mut now = self.lock();
        now.ended = now.asked;
        now.role = match result {
            Ok(()) => Role::Owner,
            Err(_) => Role::Follower,
        };
        now.refused = result.err();
    }

    /// Ends following and taking over on this server.
    pub fn ends(&self, why: Arc<str>) {
        let mut now = self.lock();
        now.is_linked = false;
        now.trouble = Some(why.clone());
        now.over = Some(why);
    }

    /// Asks for the takeover, for as long as the returned value is kept.
    pub(super) fn ask(&self) -> Waits {
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

/// A client that waits for the promotion of this server. The client counts as waiting until this value is dropped: when the
/// client is answered, or disconnects.
#[derive(Debug)]
pub(crate) struct Waits {
    replication: Replication,
    asked: u64,
}

impl Waits {
    pub(super) fn outcome(&self) -> Option<Result<(), Arc<str>>> {
        self.replication.outcome(self.asked)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.replication.lock().waiting -= 1;
    }
}
