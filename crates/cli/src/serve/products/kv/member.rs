//! A server that is one of several of a store, any of which may own it: what it knows of the others, and when it takes over.
//!
//! One idea: one thread is a member of Kafka's group, which says which servers live; another one reads the marks as they come, which
//! say which of them is the owner and for how long it has proved that. A [`Watchman`] decides by both; the thread that follows the
//! store claims it when it is told to.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidewire_admin::Snapshot;
use tidewire_admin::catalogue::kv_home as metrics;
use tidewire_kafka::{Members, Settings as Home, Target, Watch, Watched};
use tidewire_kv::service::{Address, RespService, Servers};
use tidewire_replicate::{
    Found, Held, Vacancy, Verdict, Watchman, Witness, address_word, monotonic, owners_address,
};

/// How long a mark is waited for at a time.
const POLL: Duration = Duration::from_millis(50);
/// How long a mark that was committed may take to come once a broker has said where the marks end.
const ON_ITS_WAY: Duration = Duration::from_millis(250);
/// How long a broker may take to say where the marks end.
const ANSWER: Duration = Duration::from_secs(1);
/// Between two looks at the members of the group.
const LOOK: Duration = Duration::from_millis(500);
/// Until what did not work is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The greatest age of the group's answer.
const OLD: Duration = Duration::from_secs(5);
/// A follower whose rank is not known waits up to so long, by chance.
const CHANCE_MS: u64 = 3000;
/// Pause before a claim that was fenced is made again, for each rank.
const FENCED: Duration = Duration::from_millis(1500);
/// How long a thread may take to end; one that waits for a broker is left.
const ENDS: Duration = Duration::from_secs(2);

/// The parts that a member needs.
pub(super) struct Needs {
    pub(super) target: Target,
    pub(super) home: Home,
    pub(super) at: Address,
    pub(super) session: Duration,
    pub(super) service: RespService,
}

/// A member, until this is dropped.
pub(super) struct Member {
    post: Arc<Post>,
    threads: Vec<JoinHandle<()>>,
}

/// The state that the threads of a member share.
pub(super) struct Post {
    needs: Needs,
    stops: AtomicBool,
    witness: Witness,
    seen: Mutex<Seen>,
    claims: AtomicU64,
    refused: AtomicU64,
}

struct Seen {
    watchman: Watchman,
    /// The follower has read and applied all there is; an owner is none.
    is_current: bool,
    /// The claim that is to be made.
    claim: Option<Claim>,
    /// The members of the group, and when it said so.
    places: Option<(BTreeSet<Address>, Instant)>,
    servers: Servers,
    /// Where the server is that the home names as its owner now.
    owner_at: Option<Address>,
    chance: Duration,
}

/// A claim that is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// The log of the owner that the member follows.
    pub(super) from: Option<u64>,
    /// The pause before a fenced client is made again.
    pub(super) retry: Duration,
}

impl Member {
    pub(super) fn start(needs: Needs) -> io::Result<Member> {
        let witness = Witness::default();
        let post = Arc::new(Post {
            seen: Mutex::new(Seen {
                watchman: Watchman::new(witness.clone()),
                is_current: false,
                claim: None,
                places: None,
                servers: Servers::default(),
                owner_at: None,
                chance: Duration::from_millis(fastrand::u64(..CHANCE_MS)),
            }),
            needs,
            stops: AtomicBool::new(false),
            witness,
            claims: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        let mut member = Member {
            post: post.clone(),
            threads: Vec::new(),
        };
        let (group, marks) = (post.clone(), post);
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.into()).spawn(run)
        };
        member.threads.push(spawn(
            "tidewire-group",
            Box::new(move || group.stay_in_group()),
        )?);
        member.threads.push(spawn(
            "tidewire-marks",
            Box::new(move || marks.read_marks()),
        )?);
        Ok(member)
    }

    pub(super) fn post(&self) -> &Arc<Post> {
        &self.post
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.post.stops.store(true, SeqCst);
        let until = Instant::now() + ENDS;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Post {
    /// The observations of the owners' proofs.
    pub(super) fn witness(&self) -> &Witness {
        &self.witness
    }

    /// The word that says where this server is, for an owner with this log.
    pub(super) fn word(&self, log: u64) -> Vec<u8> {
        address_word(log, &self.needs.at.to_string())
    }

    /// Whether the follower has read and applied all that is at home.
    pub(super) fn stands(&self, is_current: bool) {
        self.seen().is_current = is_current;
    }

    /// The claim that is to be made now; once.
    pub(super) fn take_claim(&self) -> Option<Claim> {
        self.seen().claim.take()
    }

    /// The claim was not made, or was refused.
    pub(super) fn failed(&self) {
        self.refused.fetch_add(1, SeqCst);
        let mut seen = self.seen();
        let rank = self.rank(&seen);
        seen.watchman.failed(rank, monotonic());
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stops(&self) -> bool {
        self.stops.load(SeqCst)
    }

    fn pause(&self, most: Duration) {
        let until = Instant::now() + most;
        while !self.stops() && Instant::now() < until {
            thread::sleep(POLL.min(most));
        }
    }

    /// The members, if the group knows this one and has said so a moment ago.
    fn places<'a>(&self, seen: &'a Seen) -> Option<&'a BTreeSet<Address>> {
        let (places, at) = seen.places.as_ref()?;
        (at.elapsed() < OLD && places.contains(&self.needs.at)).then_some(places)
    }

    /// Whether the owner, or the server that has claimed the home last, is in the group, if both are known. This server is not it as
    /// long as it follows: a claim of its own did not come to anything.
    fn owner_is_member(&self, seen: &Seen) -> Option<bool> {
        let at = seen.owner_at.as_ref()?;
        if *at == self.needs.at {
            return Some(false);
        }
        Some(self.places(seen)?.contains(at))
    }

    fn rank(&self, seen: &Seen) -> Option<u32> {
        let owner = seen.servers.owner.as_ref();
        let followers = self.places(seen)?.iter().filter(|at| Some(*at) != owner);
        let rank = followers.take_while(|at| **at != self.needs.at).count();
        u32::try_from(rank).ok()
    }

    fn stay_in_group(&self) {
        let mut is_told = false;
        while !self.stops() {
            let Needs {
                target,
                home,
                at,
                session,
                ..
            } = &self.needs;
            let members = match Members::join(target, home, &at.to_string(), *session) {
                Ok(members) => members,
                Err(why) => {
                    if !is_told {
                        tracing::warn!(%why, "the group of the store's servers is not joined for now");
                    }
                    is_told = true;
                    self.pause(AGAIN);
                    continue;
                }
            };
            is_told = false;
            while !self.stops() {
                members.stay(LOOK);
                match members.places() {
                    Ok(places) => {
                        let places = places.iter().filter_map(|at| at.parse().ok()).collect();
                        self.seen().places = Some((places, Instant::now()));
                    }
                    Err(why) => tracing::debug!(%why, "the group names no members"),
                }
            }
        }
    }

    fn read_marks(&self) {
        let mut is_told = false;
        while !self.stops() {
            let read = Watch::open(&self.needs.target, &self.needs.home);
            let read = read.and_then(|watch| self.read(watch));
            if let Err(why) = read {
                if !is_told {
                    tracing::warn!(%why, "the marks of the home are not read for now");
                }
                is_told = true;
                self.show(None);
                self.pause(AGAIN);
            }
        }
    }

    /// Reads until the member is stopped, or the client cannot go on.
    fn read(&self, mut watch: Watch) -> Result<(), tidewire_kafka::Unavailable> {
        let mut has_ended = false;
        while !self.stops() {
            let watched = watch.poll(POLL)?;
            if watched == Watched::Mark {
                self.seen().watchman.reads(watch.held(), monotonic());
                continue;
            }
            has_ended |= watched == Watched::End;
            if !has_ended {
                continue;
            }
            self.seen().watchman.reads(watch.held(), monotonic());
            self.show(Some(watch.held()));
            let asked = monotonic();
            match self.decide(asked) {
                Verdict::Confirm => {
                    if watch.is_answered(ANSWER) && self.is_quiet(&mut watch)? {
                        self.seen().watchman.answers(asked);
                    }
                }
                Verdict::Claim(why) => self.claim(why),
                Verdict::Wait(_) => {}
            }
        }
        Ok(())
    }

    /// Whether no mark comes that was committed before; what comes is read.
    fn is_quiet(&self, watch: &mut Watch) -> Result<bool, tidewire_kafka::Unavailable> {
        let until = Instant::now() + ON_ITS_WAY;
        while Instant::now() < until {
            if watch.poll(POLL)? == Watched::Mark {
                self.seen().watchman.reads(watch.held(), monotonic());
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn decide(&self, now: Duration) -> Verdict {
        let mut seen = self.seen();
        let found = Found {
            is_current: seen.is_current,
            rank: self.rank(&seen),
            owner_is_member: self.owner_is_member(&seen),
            chance: seen.chance,
        };
        seen.watchman.decide(&found, now)
    }

    fn claim(&self, why: Vacancy) {
        let mut seen = self.seen();
        if seen.claim.is_some() {
            return;
        }
        let rank = self.rank(&seen);
        let now = monotonic();
        // The attempt counts as failed until its result is known.
        seen.watchman.failed(rank, now);
        let from = seen.watchman.owner().map(|owner| owner.log);
        let retry = Duration::from_millis(200) + FENCED * rank.unwrap_or(1);
        seen.claim = Some(Claim { from, retry });
        self.claims.fetch_add(1, SeqCst);
        tracing::info!(%why, rank, "this server is to take the key-value store over");
    }

    /// Shows clients the known servers.
    fn show(&self, held: Option<&Held>) {
        let mut seen = self.seen();
        let own = &self.needs.at;
        let mut next = seen.servers.clone();
        if let Some(held) = held {
            seen.owner_at = owners_address(held).and_then(|at| at.parse().ok());
        }
        if seen.owner_at.is_some() && next.owner != seen.owner_at {
            next.owner.clone_from(&seen.owner_at);
            next.epoch += 1;
        }
        next.is_owner_down = seen.watchman.is_down(monotonic());
        if let Some(places) = self.places(&seen) {
            next.others = places.iter().filter(|at| *at != own).cloned().collect();
        }
        let session = self.needs.session;
        next.down_after_ms = u64::try_from(session.as_millis()).unwrap_or(u64::MAX);
        if next != seen.servers {
            seen.servers = next.clone();
            drop(seen);
            self.needs.service.servers(next);
        }
    }

    pub(super) fn collect(&self, to: &mut Snapshot) {
        let seen = self.seen();
        let members = self.places(&seen).map_or(0, BTreeSet::len);
        to.add(&metrics::MEMBERS, &[], members);
        to.add(&metrics::OWNER_DOWN, &[], seen.servers.is_owner_down);
        to.add(&metrics::CLAIMS, &[], self.claims.load(SeqCst));
        to.add(&metrics::CLAIMS_REFUSED, &[], self.refused.load(SeqCst));
    }
}
