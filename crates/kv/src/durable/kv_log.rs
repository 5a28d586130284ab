//! The hook that writes units to a log.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tidewire_log::disk::Disk;
use tidewire_log::{
    EmbeddedLog, Failure, Kind, Log, Policy, ProducerId, Progress, Refused, Run, Settings,
    StreamId, Ticket, Wake, Watch,
};

use super::snapshot::Snapshots;
use crate::store::{Effects, Mistakes, NoRoom, RECORD_MAX, Units};

/// Most bytes of a unit, all its records together.
const UNIT_MAX: usize = 64 << 20;
/// Bytes that a group takes at first.
const GROUP_FIRST: usize = 4 << 20;

/// Writes a store's commits to a log, and knows how far they are durable.
///
/// A `KvLog` that [follows](KvLog::following) another server's store has no log of its own, and takes no changes until
/// this server takes the store over.
pub struct KvLog {
    policy: Policy,
    /// Replies wait for the commit.
    holds_replies: bool,
    /// Whether a commit counts only when it is in the home.
    awaits_home: AtomicBool,
    /// Whether there is proof now that the store is this server's.
    proof: OnceLock<Proof>,
    /// Not there as long as another store is followed.
    behind: OnceLock<Behind>,
    /// Wake-ups that were asked for before there was a log.
    early: Mutex<Vec<Wake>>,
    /// As far as the log was last seen to be committed.
    committed: AtomicU64,
    /// No more changes are taken: the log has failed, or differs from the memory.
    failed: AtomicBool,
    stands: AtomicU8,
    /// Why this server is not the owner of the store any more.
    lost: OnceLock<Arc<str>>,
    refused_full: AtomicU64,
    /// The position of the next unit.
    position: AtomicU64,
    /// Units since the last snapshot; their bytes are in `snapshots`.
    units: AtomicU64,
    snapshots: Arc<Snapshots>,
    mistakes: Mistakes,
}

/// Says whether there is proof, at the moment of the call, that no other server owns the store.
pub type Proof = Box<dyn Fn() -> bool + Send + Sync>;

/// The log itself.
struct Behind {
    log: Arc<dyn Log>,
    stream: StreamId,
    segment_bytes: u64,
    unit_max: usize,
    /// Watches of early callers.
    _watches: Vec<Watch>,
}

/// The owner of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stands {
    Follows,
    Owns,
    Lost,
}

impl fmt::Debug for KvLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvLog")
            .field("policy", &self.policy)
            .field("committed", &self.committed)
            .finish_non_exhaustive()
    }
}

impl KvLog {
    /// A log of the store on a stream of `log`. The policy of the log says what replies wait for:
    /// with [`Policy::Sync`] for the commit, else for nothing.
    #[must_use]
    pub fn new(log: Arc<dyn Log>, stream: StreamId) -> KvLog {
        let kv_log = KvLog::following(log.policy());
        kv_log.stand(Stands::Owns);
        kv_log.behind.get_or_init(|| Behind {
            log,
            stream,
            segment_bytes: Settings::default().segment_bytes,
            unit_max: UNIT_MAX,
            _watches: Vec::new(),
        });
        kv_log
    }

    /// The log of a store that follows another server's, and will commit by this policy when it is
    /// taken over. Until then every change is refused.
    #[must_use]
    pub fn following(policy: Policy) -> KvLog {
        KvLog {
            policy,
            holds_replies: policy == Policy::Sync,
            awaits_home: AtomicBool::new(false),
            proof: OnceLock::new(),
            behind: OnceLock::new(),
            early: Mutex::default(),
            committed: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            stands: AtomicU8::new(Stands::Follows as u8),
            lost: OnceLock::new(),
            refused_full: AtomicU64::new(0),
            position: AtomicU64::new(0),
            units: AtomicU64::new(0),
            snapshots: Arc::default(),
            mistakes: Mistakes::default(),
        }
    }

    /// Gives a following store the log in which it goes on. The store takes changes only when it
    /// [owns](KvLog::own) them. The first call counts.
    pub(super) fn take_over<D: Disk>(&self, log: &Arc<EmbeddedLog<D>>, stream: StreamId, at: u64) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        self.position.store(at, Relaxed);
        self.behind.get_or_init(|| Behind {
            log: log.clone(),
            stream,
            segment_bytes: log.segment_bytes(),
            unit_max: log.group_bytes(),
            _watches: early.drain(..).map(|wake| log.watch(wake)).collect(),
        });
    }

    /// From now on the store takes changes.
    pub fn own(&self) {
        self.stand(Stands::Owns);
    }

    /// The store has another owner: no change is taken any more, and where commits count at home,
    /// no reply that waits for one will ever be true. Waiting threads are to be woken afterwards.
    pub fn lose(&self, why: Arc<str>) {
        self.lost.get_or_init(|| why);
        self.stand(Stands::Lost);
    }

    /// Why the store is not this server's any more, if it is not.
    #[must_use]
    pub fn lost(&self) -> Option<&Arc<str>> {
        self.lost.get()
    }

    /// Whether the store only follows its home.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.stands.load(SeqCst) == Stands::Follows as u8
    }

    fn stand(&self, stands: Stands) {
        // A server that has lost the store stays so.
        self.stands.fetch_max(stands as u8, SeqCst);
    }

    /// From now on committed changes count when they are in the home. To be called before any
    /// client is served.
    pub fn await_home(&self) {
        self.awaits_home.store(true, SeqCst);
    }

    /// Whether commits count at home.
    #[must_use]
    pub fn awaits_home(&self) -> bool {
        self.awaits_home.load(Relaxed)
    }

    /// From now on an owner serves keys only with this proof, if commits count at home. The first call counts.
    pub fn prove_by(&self, proof: Proof) {
        self.proof.get_or_init(|| proof);
    }

    /// Whether clients may read the store now, and change it. An owner whose commits count in the home needs
    /// [proof](KvLog::prove_by): without it another server may own the store, and have changed it. Ask after all requests that
    /// this answer is for have been received: then each reply is true of a moment after its request.
    #[must_use]
    pub fn may_serve(&self) -> bool {
        !self.awaits_home()
            || self.follows()
            || self.is_proven()
            || self.mistakes.makes(|mistakes| mistakes.serve_unproven)
    }

    /// Whether there is [proof](KvLog::prove_by) now that the store is this server's, or none is asked for.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.proof.get().is_none_or(|proof| proof())
    }

    /// With a stream whose next record has this position, and with so many units, with so many bytes, since the
    /// last snapshot.
    pub(super) fn at(self, position: u64, units: u64, logged: u64) -> KvLog {
        self.snapshots.logged.store(logged, Relaxed);
        KvLog {
            position: AtomicU64::new(position),
            units: AtomicU64::new(units),
            ..self
        }
    }

    /// With segments of this size, which have to have room beside a snapshot.
    pub(super) fn with_segments(mut self, segment_bytes: u64) -> KvLog {
        if let Some(behind) = self.behind.get_mut() {
            behind.segment_bytes = segment_bytes;
        }
        self
    }

    /// With units of this size at most.
    pub(super) fn with_units(mut self, unit_max: usize) -> KvLog {
        if let Some(behind) = self.behind.get_mut() {
            behind.unit_max = unit_max;
        }
        self
    }

    fn progress(&self) -> Progress {
        let behind = self.behind.get();
        behind.map_or_else(Progress::default, |behind| behind.log.progress())
    }

    /// The handle for asking for snapshots, and their figures.
    #[must_use]
    pub fn snapshots(&self) -> &Arc<Snapshots> {
        &self.snapshots
    }

    /// Bytes of units that are not in a snapshot yet.
    #[must_use]
    pub fn logged(&self) -> u64 {
        self.snapshots.logged.load(Relaxed)
    }

    /// Units that are not in a snapshot yet.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units.load(Relaxed)
    }

    /// The position that the next record has.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position.load(Relaxed)
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        self.behind.get().map_or(0, |behind| behind.segment_bytes)
    }

    /// The stream of the store's log, if the log has one.
    pub(super) fn stream(&self) -> Option<StreamId> {
        self.behind.get().map(|behind| behind.stream)
    }

    /// Notes that `units` units, with `logged` bytes, are in a snapshot that counts.
    pub(super) fn cut(&self, units: u64, logged: u64) {
        self.units.fetch_sub(units, Relaxed);
        self.snapshots.cut(logged);
    }

    /// Whether what was appended up to a ticket is on the disk, whatever the policy.
    #[must_use]
    pub fn is_synced(&self, ticket: u64) -> bool {
        let progress = self.progress();
        if progress.failure.is_some() {
            self.failed.store(true, SeqCst);
        }
        progress.durable.0 >= ticket
    }

    /// [`is_synced`](KvLog::is_synced); if not, the log is asked to see to that.
    pub fn sync(&self, ticket: u64) -> bool {
        let is_synced = self.is_synced(ticket);
        if !is_synced && let Some(behind) = self.behind.get() {
            behind.log.sync();
        }
        is_synced
    }

    /// Makes the planted mistakes.
    #[doc(hidden)]
    #[must_use]
    pub fn with_mistakes(self, mistakes: Mistakes) -> KvLog {
        KvLog { mistakes, ..self }
    }

    /// Settings of a log for the store: groups that hold the largest unit, and that are large at first,
    /// because a burst of commands must not be held up.
    #[must_use]
    pub fn settings(policy: Policy) -> Settings {
        Settings {
            policy,
            group_bytes: UNIT_MAX,
            group_first: GROUP_FIRST,
            holds_reserve: true,
            payload_max: RECORD_MAX as u32,
            kind: Some(Kind::Keys),
            ..Settings::default()
        }
    }

    /// When the store's log commits.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether no client hears of a change before it is durable.
    #[must_use]
    pub fn holds_replies(&self) -> bool {
        self.holds_replies
    }

    /// Has `wake` called whenever the log has moved; [`update`](KvLog::update) sees then how far.
    pub fn watch(&self, wake: Wake) -> Watch {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        match self.behind.get() {
            Some(behind) => behind.log.watch(wake),
            None => {
                // The wake-up is kept for as long as the store is there: its services are.
                early.push(wake);
                Watch::new(())
            }
        }
    }

    /// Looks how far the log is committed: the ticket up to which it is.
    pub fn update(&self) -> u64 {
        let progress = self.progress();
        if progress.failure.is_some() {
            self.failed.store(true, SeqCst);
        }
        let mut committed = progress.committed.0;
        if self.awaits_home() && !self.mistakes.makes(|mistakes| mistakes.reply_before_home) {
            committed = committed.min(progress.replicated.map_or(0, |Ticket(ticket)| ticket));
        }
        self.committed.fetch_max(committed, SeqCst).max(committed)
    }

    /// The ticket up to which the log is committed, as it was last seen.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed.load(Relaxed)
    }

    /// Whether the log has failed: it takes no change any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Why the log has stopped for good, if the log itself has.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.progress().failure
    }

    /// Whether replies that wait for a commit will wait for ever.
    #[must_use]
    pub fn never_settles(&self) -> bool {
        self.has_failed() || (self.awaits_home() && self.lost().is_some())
    }

    /// Whether changes are refused now because the disk is full: asks for a byte, and gives it back.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let Some(behind) = self.behind.get() else {
            return false;
        };
        match behind.log.reserve(1) {
            Ok(()) => {
                behind.log.give_back(1);
                false
            }
            Err(refused) => matches!(refused, Refused::DiskFull { .. }),
        }
    }

    /// Changes that were refused so far because the disk is full.
    #[must_use]
    pub fn refused_full(&self) -> u64 {
        self.refused_full.load(Relaxed)
    }
}

impl KvLog {
    /// The log's answer, or the reason why the log is not asked.
    fn promise(&self, ask: impl FnOnce(&dyn Log) -> Result<(), Refused>) -> Result<(), NoRoom> {
        if self.has_failed() {
            return Err(NoRoom::Failed);
        }
        let stands = self.stands.load(Relaxed);
        let behind = match self.behind.get() {
            Some(behind) if stands == Stands::Owns as u8 => behind,
            _ if stands == Stands::Lost as u8 => return Err(NoRoom::Lost),
            _ => return Err(NoRoom::Follows),
        };
        ask(&*behind.log).map_err(|refused| match refused {
            Refused::Busy => NoRoom::Busy,
            Refused::DiskFull { .. } if self.snapshots.relieves() => NoRoom::Busy,
            Refused::DiskFull { .. } => {
                self.refused_full.fetch_add(1, Relaxed);
                NoRoom::DiskFull
            }
            Refused::TooLarge => NoRoom::TooLarge,
            // The log is not used in a way that could cause these refusals.
            Refused::TooMany
            | Refused::Forgotten
            | Refused::Beyond
            | Refused::NoStream
            | Refused::StreamFull { .. }
            | Refused::Failed => NoRoom::Failed,
        })
    }
}

impl Effects for KvLog {
    fn reserve(&self, bytes: usize) -> Result<(), NoRoom> {
        self.promise(|log| log.reserve(bytes))
    }

    fn reserve_to_remove(&self, wanted: usize, least: usize) -> Result<usize, NoRoom> {
        let mut promised = wanted;
        self.promise(|log| match log.reserve(wanted) {
            Err(Refused::DiskFull { .. } | Refused::Busy) => {
                let reserved = log.reserve_to_make_room(wanted).or_else(|_| {
                    promised = least;
                    log.reserve_to_make_room(least)
                });
                if reserved.is_ok() {
                    // The command may make so much that a snapshot does the rest.
                    self.snapshots.nudge();
                }
                reserved
            }
            reserved => reserved,
        })?;
        Ok(promised)
    }

    fn unit_max(&self) -> usize {
        self.behind.get().map_or(UNIT_MAX, |behind| behind.unit_max)
    }

    fn begin_growing(&self, promised: usize, removes: bool) -> Result<(), NoRoom> {
        let mut is_full = false;
        let begun = self.promise(|log| match log.begin_growing(promised) {
            Err(Refused::DiskFull { .. }) if removes && !self.snapshots.relieves() => {
                is_full = true;
                Ok(())
            }
            begun => begun,
        });
        if is_full {
            Err(NoRoom::DiskFull)
        } else {
            begun
        }
    }

    fn grow(&self, bytes: usize) -> Result<(), NoRoom> {
        self.promise(|log| log.grow(bytes))
    }

    fn end_growing(&self) {
        if let Some(behind) = self.behind.get() {
            behind.log.end_growing();
        }
    }

    fn give_back(&self, bytes: usize) {
        if let Some(behind) = self.behind.get() {
            behind.log.give_back(bytes);
        }
    }

    fn commit(&self, units: &Units, reserved: usize) -> u64 {
        let Some(behind) = self.behind.get() else {
            debug_assert!(false, "nothing was promised");
            return u64::MAX;
        };
        let run = Run {
            stream: behind.stream,
            producer: ProducerId::ANONYMOUS,
            frames: units.frames(),
            count: units.records(),
            last_id: units.stamp(),
            timestamp_us: units.stamp().saturating_mul(1000),
        };
        match behind.log.append_reserved(run, reserved) {
            Ok(placed) => {
                let next = placed.first + u64::from(units.records());
                self.position.fetch_max(next, Relaxed);
                let bytes = units.frames().len() as u64;
                self.snapshots.logged.fetch_add(bytes, Relaxed);
                self.units.fetch_add(units.closed().into(), Relaxed);
                placed.ticket.0
            }
            Err(_) => {
                // The log has failed since it promised room for this unit. The change in memory
                // will never be in the log, so no client may learn of it.
                self.failed.store(true, SeqCst);
                u64::MAX
            }
        }
    }

    #[inline]
    fn settled(&self) -> u64 {
        if self.holds_replies && !self.mistakes.makes(|mistakes| mistakes.reply_early) {
            self.committed.load(Relaxed)
        } else {
            u64::MAX
        }
    }

    fn mistakes(&self) -> Mistakes {
        self.mistakes
    }

    fn diverged(&self) {
        tracing::error!(
            "a command panicked half way, so the memory may differ from the log: the server \
             writes no more changes; start the server again"
        );
        self.failed.store(true, SeqCst);
    }
}
