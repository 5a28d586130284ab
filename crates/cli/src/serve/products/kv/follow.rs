//! The thread of a server that follows another one's key-value store, and takes it over when it is asked to.

use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidewire_kafka::{AtHome, Reader, SNAPSHOT, Settings as Home, Target, Unavailable};
use tidewire_kv::durable::snapshot::{self, Keeper, Running as Snapshots};
use tidewire_kv::durable::{
    Applier, FollowError, FollowSettings, Follower, KvLog, Standing, go_on_at,
};
use tidewire_kv::service::{Replication, Role};
use tidewire_kv::store::Store;
use tidewire_log::disk::real::RealDisk;
use tidewire_log::{Log, Range, Refused, Step};
use tidewire_replicate::{ADDRESS, Ask, Bell, Home as HomeOf, Owner, Share, is_whole};

use super::begun::{begin, clean, finish, probe};
use super::failover::Why;
use super::home::{Carrier, Terms, client};
use super::log::{kv_directory, take_over};
use super::source::{AGAIN, KafkaSource};
use crate::exit::Failure;
use crate::serve::logs::open::OpenLog;
use crate::serve::logs::options::LogOptions;
use crate::serve::running::now::now_ms;

/// Where a snapshot from home is kept for a moment, in the directory of the data.
const FETCHED: &str = "kv-fetched";

/// The pause while the home is away.
const AWAY: Duration = Duration::from_millis(50);
/// The longest pause before a snapshot at home is tried to be read again.
const AGAIN_LAST: Duration = Duration::from_secs(30);
/// The pause between two checks of an awaited condition.
const PAUSE: Duration = Duration::from_millis(2);

/// The parts that a follower needs.
pub(super) struct Needs {
    pub(super) store: Arc<Store>,
    pub(super) kv_log: Arc<KvLog>,
    pub(super) replication: Replication,
    pub(super) target: Target,
    pub(super) options: LogOptions,
    /// Growth after which an owner makes a snapshot, here and at home.
    pub(super) growth: u64,
    pub(super) terms: Terms,
}

/// The result of a promotion: the parts with which the follower has become the owner.
pub(super) struct TakenOver {
    pub(super) log: OpenLog,
    pub(super) keeper: Snapshots,
    pub(super) carrier: Carrier,
}

/// A thread that follows, until it is stopped or dropped.
pub(super) struct Following {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stops: AtomicBool,
    /// Whether the follower has read all records that the home had when the follower began.
    is_current: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    /// Why the follower cannot go on.
    failure: Option<String>,
    taken: Option<TakenOver>,
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stops(&self) -> bool {
        self.stops.load(SeqCst)
    }
}

impl Following {
    /// Begins to fill the store, which loads until all is read that is there now.
    pub(super) fn start(needs: Needs) -> Result<Following, Failure> {
        clean(&kv_directory(&needs.options))?;
        let home = client(&needs.options)?;
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = thread::Builder::new().name("tidewire-follow".into());
        let thread = thread.spawn(move || {
            let mut thread = Thread::new(needs, home, theirs);
            if let Err(why) = thread.run() {
                tracing::error!(
                    why,
                    "the key-value store of another server is not followed any more"
                );
                thread.needs.replication.ends(why.clone().into());
                thread.shared.told().failure = Some(why);
                if let Some((_, anew)) = &thread.needs.terms.member {
                    anew.ask(Why::Failed);
                }
            }
        });
        let thread = thread
            .map_err(|e| Failure::failed(format!("cannot start the thread that follows: {e}")))?;
        Ok(Following {
            shared,
            thread: Some(thread),
        })
    }

    /// Whether all was read that was there when it began.
    pub(super) fn is_current(&self) -> bool {
        self.shared.is_current.load(SeqCst)
    }

    /// Why the follower does not go on, if it has stopped.
    pub(super) fn failure(&self) -> Option<String> {
        self.shared.told().failure.clone()
    }

    /// The parts that an owner of the store needs, once this server has taken the store over.
    pub(super) fn taken(&self) -> Option<TakenOver> {
        self.shared.told().taken.take()
    }

    /// Ends the follower.
    pub(super) fn stop(&mut self) {
        self.shared.stops.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            // The thread has reported its panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Why a store is not filled yet.
enum NotBegun {
    /// The step is to be tried again.
    Now(String),
    /// Another attempt could not succeed.
    Ever(String),
}

impl From<Unavailable> for NotBegun {
    fn from(why: Unavailable) -> NotBegun {
        match why {
            Unavailable::Client(why) => NotBegun::Now(why),
            why => NotBegun::Ever(why.to_string()),
        }
    }
}

struct Thread {
    needs: Needs,
    home: Home,
    shared: Arc<Shared>,
    start: Instant,
    source: KafkaSource,
}

impl Thread {
    fn new(needs: Needs, home: Home, shared: Arc<Shared>) -> Thread {
        Thread {
            source: KafkaSource::new(needs.target.clone(), home.clone()),
            needs,
            home,
            shared,
            start: Instant::now(),
        }
    }

    /// Follows until the follower is stopped, or owns the store.
    fn run(&mut self) -> Result<(), String> {
        let bell = Bell::default();
        let home = tidewire_kafka::home(&self.needs.target, &self.home, bell);
        let mut home = home.map_err(|e| e.to_string())?;
        if self.needs.terms.member.is_some() {
            // The client finds its way, and looks at the topics, before there is any hurry. The answer is for no one.
            home.ask(0, Ask::Look);
        }
        while let Some(begin) = self.begin()? {
            match self.follow(begin, &mut *home) {
                // The home had nothing yet, and has begun behind that since, with a snapshot.
                Err(FollowError::Gap { due: 0, .. }) => {
                    // No client may see a part of that.
                    self.needs.store.begin_loading();
                    self.shared.is_current.store(false, SeqCst);
                    self.source = KafkaSource::new(self.needs.target.clone(), self.home.clone());
                }
                Err(why) => return Err(why.to_string()),
                Ok(None) => break,
                Ok(Some((position, owner))) => return self.own(position, owner),
            }
        }
        Ok(())
    }

    /// Follows from this position on, until it is stopped, or until the store is to be owned: from
    /// which position on, and as which owner.
    fn follow(
        &mut self,
        begin: u64,
        home: &mut dyn HomeOf,
    ) -> Result<Option<(u64, Owner)>, FollowError> {
        let applier = Applier::new(self.needs.store.clone(), begin);
        let mut follower = Follower::new(applier, FollowSettings::default());
        let mut owner = None;
        let member = self.needs.terms.member.clone().map(|(post, _)| post);
        // Whether this server takes over by itself.
        let mut by_itself = false;
        while !self.shared.stops() {
            let claim = member.as_ref().and_then(|post| post.take_claim());
            let is_asked = self.needs.replication.is_asked();
            if (is_asked || claim.is_some())
                && follower.standing() == Standing::Follows
                && !(is_asked && self.needs.replication.call_off())
                && self.may_take_over()
            {
                // Made anew for each try: what an earlier one has left at home is another log's.
                let as_owner = Owner {
                    log: fastrand::u64(..),
                    session: fastrand::u64(..),
                };
                tracing::info!(home = %self.needs.target, "taking the key-value store over");
                self.needs
                    .replication
                    .change(|now| now.role = Role::TakesOver);
                by_itself = claim.is_some();
                match (claim, &member) {
                    (Some(claim), Some(post)) => {
                        let words = [(ADDRESS.into(), post.word(as_owner.log).into())];
                        follower.take_over_from(as_owner, claim.from, words.into(), claim.retry);
                    }
                    _ => follower.take_over(as_owner),
                }
                owner = Some(as_owner);
            }
            let shared = self.shared.clone();
            let mut pause = || {
                thread::sleep(PAUSE);
                !shared.stops()
            };
            follower.want(by_itself || self.needs.replication.is_awaited());
            let now = self.start.elapsed();
            let step = follower.step(now, now_ms(), &mut self.source, home, &mut pause)?;
            if let Some(why) = follower.take_refusal() {
                tracing::warn!(why = &*why, "the key-value store was not taken over");
                self.needs.replication.answer(Err(why));
                if let Some(post) = member.as_ref().filter(|_| by_itself) {
                    post.failed();
                }
                by_itself = false;
            }
            if follower.take_called_off() {
                tracing::warn!(
                    "promotion cancelled: the requester disconnected; the current owner keeps the store"
                );
                // A request that arrives at this moment begins a new promotion.
                self.needs.replication.call_off();
            }
            self.show(&follower);
            if follower.is_at_end() && !self.shared.is_current.swap(true, SeqCst) {
                self.needs.store.end_loading();
                tracing::info!(
                    home = %self.needs.target,
                    position = follower.applier().next(),
                    units = follower.applier().units(),
                    seconds = self.start.elapsed().as_secs_f64(),
                    "the key-value store of another server is followed"
                );
            }
            if let Some(post) = &member {
                let follows = follower.standing() == Standing::Follows;
                post.stands(follows && follower.is_at_end() && !self.source.is_away());
            }
            if let (Standing::Owns(position), Some(owner)) = (follower.standing(), owner) {
                return Ok(Some((position, owner)));
            }
            if step != Step::Worked && self.source.is_away() {
                thread::sleep(AWAY);
            }
        }
        Ok(None)
    }

    /// Reads the newest snapshot in the home, if there is one; returns the position to go on from, or `None` if it was
    /// stopped before. A failure that may pass is tried again.
    fn begin(&mut self) -> Result<Option<u64>, String> {
        let mut pause = AGAIN;
        while !self.shared.stops() {
            match self.begin_once() {
                Ok(position) => return Ok(Some(position)),
                Err(_) if self.shared.stops() => break,
                Err(NotBegun::Ever(why)) => return Err(why),
                Err(NotBegun::Now(why)) => {
                    self.source.fails(why);
                    self.tell(0);
                    self.pause(pause);
                    pause = (2 * pause).min(AGAIN_LAST);
                }
            }
        }
        Ok(None)
    }

    /// Waits for a while, unless the follower is stopped.
    fn pause(&self, most: Duration) {
        let since = Instant::now();
        while since.elapsed() < most && !self.shared.stops() {
            thread::sleep(AWAY.min(most));
        }
    }

    fn newest(&self) -> Result<Option<AtHome>, NotBegun> {
        let held = tidewire_kafka::held(&self.needs.target, Share::Whole, &self.home)?;
        if !is_whole(&held.notes) {
            return Err(NotBegun::Now(
                "the home does not have the whole store yet: the store is older than its home, and the owner sends a snapshot first".into(),
            ));
        }
        let word = held.notes.get(SNAPSHOT);
        Ok(word.and_then(|word| AtHome::decode(word)))
    }

    /// The position to go on from.
    fn begin_once(&mut self) -> Result<u64, NotBegun> {
        let Some(at) = self.newest()? else {
            return Ok(0);
        };
        let directory = self.needs.options.dir.join(FETCHED);
        let named = |why: String| {
            format!(
                "cannot load the snapshot of position {} from the home: {why}",
                at.position
            )
        };
        let loaded = match self.fetch(&at, &directory) {
            // A store that was filled in part is of no use: what fails from here on is not tried again.
            Ok(()) => self.load(&at, &directory).map_err(NotBegun::Ever),
            // The owner may have replaced the snapshot meanwhile, and removed this one.
            Err(NotBegun::Ever(why)) => match self.newest() {
                Ok(now) if now == Some(at) => Err(NotBegun::Ever(why)),
                _ => Err(NotBegun::Now(why)),
            },
            Err(why) => Err(why),
        };
        // The snapshot is at home, and never read here again.
        let _ = fs::remove_dir_all(&directory);
        let keys = loaded.map_err(|why| match why {
            NotBegun::Now(why) => NotBegun::Now(named(why)),
            NotBegun::Ever(why) => NotBegun::Ever(named(why)),
        })?;
        let offset = self.first_behind(at.position)?;
        self.source.begin_at(offset);
        tracing::info!(
            position = at.position,
            bytes = at.bytes,
            keys,
            offset,
            "the newest snapshot at home was read"
        );
        Ok(at.position)
    }

    /// Loads the fetched snapshot into the store; returns the number of keys.
    fn load(&self, at: &AtHome, directory: &Path) -> Result<u64, String> {
        let disk = RealDisk::open(directory).map_err(|e| e.to_string())?;
        let range = Range {
            first: at.position,
            next: at.position,
        };
        let shared = self.shared.clone();
        let mut goes_on = |_, _| match shared.stops() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let (log, store) = (at.log, &self.needs.store);
        let loaded = snapshot::load(&disk, log, range, store, now_ms(), &mut goes_on);
        let loaded = loaded.map_err(|e| e.to_string())?;
        loaded
            .map(|loaded| loaded.keys)
            .ok_or_else(|| "it is not there".into())
    }

    /// The offset at which the records behind a position begin.
    fn first_behind(&mut self, position: u64) -> Result<u64, NotBegun> {
        // The store is filled: from here on only this is tried again.
        let mut pause = AGAIN;
        loop {
            match Reader::find(&self.needs.target, &self.home, position) {
                Ok(offset) => return Ok(offset),
                Err(why @ Unavailable::Client(_)) if !self.shared.stops() => {
                    self.source.fails(why.to_string());
                    self.tell(position);
                    self.pause(pause);
                    pause = (2 * pause).min(AGAIN_LAST);
                }
                Err(why) => return Err(NotBegun::Ever(why.to_string())),
            }
        }
    }

    /// Whether there is a usable directory for the log of an owner. Once the home is claimed the
    /// former owner cannot go on, so everything that can be checked is checked before. The
    /// requester gets the reason of a failed check.
    fn may_take_over(&self) -> bool {
        let directory = kv_directory(&self.needs.options);
        let room = snapshot_room(&self.needs.store);
        let told = match probe(&directory, room) {
            Ok(()) => return true,
            Err(e) => format!(
                "{}: {e}; the takeover had no effect, and the present owner goes on",
                directory.display()
            ),
        };
        tracing::warn!(why = &*told, "the key-value store is not taken over");
        self.needs.replication.answer(Err(told.as_str().into()));
        false
    }

    /// Fetches the snapshot into a directory of its own.
    fn fetch(&self, at: &AtHome, directory: &Path) -> Result<(), NotBegun> {
        let told = |e: io::Error| NotBegun::Ever(format!("{}: {e}", directory.display()));
        if directory.exists() {
            fs::remove_dir_all(directory).map_err(told)?;
        }
        fs::create_dir_all(directory).map_err(told)?;
        let file = fs::File::create(directory.join(snapshot::name(at.position)));
        let mut file = io::BufWriter::new(file.map_err(told)?);
        let mut goes_on = || !self.shared.stops();
        let target = &self.needs.target;
        tidewire_kafka::fetch_snapshot(target, &self.home, at, &mut file, &mut goes_on)?;
        file.flush().map_err(told)
    }

    fn show(&mut self, follower: &Follower) {
        // A promotion waits for the home anyway, and must not wait for this again and again.
        if follower.standing() == Standing::Follows || !self.source.is_silent() {
            self.source.look();
        }
        self.tell(follower.applier().next());
    }

    fn tell(&mut self, position: u64) {
        let line = self.source.line();
        self.needs.replication.change(|now| {
            now.is_linked = line.trouble.is_none();
            now.trouble = line.trouble;
            now.position = position;
            now.lag = line.missing;
            now.behind_ms = line.behind.as_millis() as u64;
        });
    }

    /// Goes on as an owner with a log of its own.
    fn own(&mut self, position: u64, owner: Owner) -> Result<(), String> {
        let Needs {
            store,
            kv_log,
            replication,
            target,
            options,
            growth,
            terms,
        } = &self.needs;
        let failed = |what: &str, why: &dyn std::fmt::Display| {
            format!("taking the store over: {what}: {why}; start this server again to follow it")
        };
        let directory = kv_directory(options);
        begin(&directory).map_err(|e| failed(&directory.display().to_string(), &e))?;
        let log = take_over(options, kv_log.policy(), owner.log, position);
        let log = log.map_err(|e| failed("its log", &e.message))?;
        let embedded = log.embedded();
        loop {
            match go_on_at(kv_log, &embedded, position, now_ms()) {
                Ok(()) => break,
                Err(Refused::Busy) if !self.shared.stops() => thread::sleep(PAUSE),
                Err(why) => return Err(failed("its log", &why)),
            }
        }
        kv_log.snapshots().set_growth(*growth);
        let keeper = Keeper::new(embedded.clone(), kv_log.clone(), store.clone(), None);
        let keeper = Snapshots::start(keeper).map_err(|e| failed("its snapshots", &e))?;
        let asked = kv_log.snapshots().ask();
        loop {
            match kv_log.snapshots().status().outcome(asked) {
                Some(true) => break,
                Some(false) => {
                    let why = kv_log.snapshots().status().failure.unwrap_or_default();
                    return Err(failed("its snapshot", &why));
                }
                None if self.shared.stops() => return Ok(()),
                None => thread::sleep(PAUSE),
            }
        }
        let carrier = Carrier::start(&log, kv_log, target, options, terms);
        let carrier = carrier.map_err(|e| failed("its home", &e.message))?;
        // A success is reported only to a proven owner, by what the home said a moment ago.
        while !(embedded.progress().replicates && kv_log.is_proven()) {
            if let Some(why) = kv_log.lost() {
                return Err(failed("its home", why));
            }
            if self.shared.stops() {
                return Ok(());
            }
            let trouble = carrier.trouble();
            replication.change(|now| {
                now.is_linked = trouble.is_none();
                now.trouble = trouble;
            });
            thread::sleep(PAUSE);
        }
        finish(&directory).map_err(|e| failed(&directory.display().to_string(), &e))?;
        let carried = carrier.watched();
        replication.watch(move |to| carried.tell(to));
        kv_log.own();
        store.end_loading();
        self.shared.is_current.store(true, SeqCst);
        self.shared.told().taken = Some(TakenOver {
            log,
            keeper,
            carrier,
        });
        replication.answer(Ok(()));
        tracing::info!(home = %target, position, "the key-value store was taken over");
        Ok(())
    }
}

/// Bytes that the snapshot of an owner's beginning takes at most, with room for its log to begin.
fn snapshot_room(store: &Store) -> u64 {
    store.used_memory() + (64 << 20)
}
