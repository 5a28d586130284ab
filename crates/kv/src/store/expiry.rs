//! Removal of keys whose time has come, before a client asks for them; and of the memory of changes
//! that have settled, in shards without changes, and of notes of readers, where there are too many.
//!
//! There is no index of keys that expire: it would cost memory for each key. Instead, every tick
//! walks on through the buckets. A bit of an entry's pointer says whether the entry has a deadline.
//! So a bucket without such keys costs one read of one cache line, and these lines lie in a row.

//!
//! A call holds one lock at a time, and only briefly. The result says how soon to call again: at
//! once where many keys were due, seldom where nothing expires. The lock is not fair, so other
//! threads need time between two calls on one shard to take it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Store;
use super::effect::{Effects, Gone};
use super::shard::Shard;

/// Buckets of a shard that a call looks at under one lock.
const BUCKETS: usize = 256;
/// Entries with a deadline that a call looks at in one shard: each may be a cache miss.
const LOOKS: usize = 512;
/// Bytes of keys that expire as one unit, which a log must take; one key at least.
const UNIT: usize = 16 << 10;
/// Shards that a call looks at, where it finds as much to do in each as it may.
const SHARDS: usize = 4;
/// Calls in which all shards are looked at where there is little in each, however many there are.
const CALLS: usize = 16;

/// Changes that have settled, of which a call forgets so many in one shard.
const SETTLED: usize = 1024;

/// The result of a call of [`Store::expire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Keys removed.
    pub removed: usize,
    /// When to call the function again.
    pub pause: Duration,
}

impl Swept {
    /// After a call that found a quarter of its looks due.
    const SOON: Duration = Duration::from_millis(1);
    /// The pause after a sweep that found little.
    const LATER: Duration = Duration::from_millis(5);
    /// The pause where no key has a deadline.
    const IDLE: Duration = Duration::from_millis(100);
}

/// The work that a call has done so far.
#[derive(Clone, Copy, Default)]
struct Work {
    buckets: usize,
    /// Deadlines.
    looks: usize,
}

impl Work {
    /// Whether as much as there can be in one more shard is not too much.
    fn has_room(self) -> bool {
        self.buckets <= (SHARDS - 1) * BUCKETS && self.looks <= (SHARDS - 1) * LOOKS
    }
}

impl Store {
    /// Removes keys whose deadline has passed. To be called by one thread, as often as it says. A
    /// call does bounded work, however many keys there are: it looks at up to 1,024 buckets and
    /// 2,048 keys, from where the last one ended.
    pub fn expire(&self, now_ms: u64) -> Swept {
        let mut swept = Swept {
            removed: 0,
            pause: Swept::IDLE,
        };
        let expires = self.active_expire.load(Relaxed);
        let settled = self.effects().map(Effects::settled);
        let shards = self.shards.len();
        let first = self.expiry_next.load(Relaxed);
        let most = SHARDS.max(shards / CALLS).min(shards);
        let (mut seen, mut work) = (0, Work::default());
        while seen < most && work.has_room() {
            let mut shard = self.lock((first + seen) % shards);
            seen += 1;
            if let Some(settled) = settled
                && !shard.dirty.is_empty()
            {
                work.buckets += BUCKETS;
                if shard.dirty.purge(settled, SETTLED) {
                    swept.pause = swept.pause.min(Swept::LATER);
                }
            }
            if self.tracking.is_too_much() {
                work.buckets += BUCKETS;
                shard.evict_tracked_some(&self.tracking);
                swept.pause = swept.pause.min(Swept::LATER);
            }
            if shard.is_kept {
                // A script that takes long keeps its keys locked.
                swept.pause = swept.pause.min(Swept::LATER);
                continue;
            }
            if !expires || shard.expiring.iter().all(|&keys| keys == 0) {
                continue;
            }
            let (here, due) = self.expire_some(&mut shard, now_ms);
            self.tell(&mut shard);
            swept.removed += due;
            work.buckets += here.buckets;
            work.looks += here.looks;
            let pause = if due > 0 && due * 4 >= here.looks {
                Swept::SOON
            } else {
                Swept::LATER
            };
            swept.pause = swept.pause.min(pause);
        }
        self.expiry_next.store((first + seen) % shards, Relaxed);
        swept
    }

    /// Looks at some buckets; how many, with how many deadlines, and how many keys it removed.
    fn expire_some(&self, shard: &mut Shard, now_ms: u64) -> (Work, usize) {
        let (mut work, mut due) = (Work::default(), Vec::new());
        let databases = shard.tables.len() as u16;
        let (mut db, mut bucket) = shard.expiry_at;
        // Databases left to go into: each at most once more than it began in.
        let mut databases_left = databases;
        for _ in 0..BUCKETS {
            while shard.expiring[usize::from(db)] == 0 || bucket >= shard.table(db).buckets() {
                if databases_left == 0 {
                    shard.expiry_at = (db, bucket);
                    return (work, self.drop_all(shard, &due, now_ms));
                }
                databases_left -= 1;
                (db, bucket) = ((db + 1) % databases, 0);
            }
            shard.table(db).visit(bucket, &mut |entry| {
                if entry.expires() {
                    work.looks += 1;
                    if entry.deadline_ms().is_some_and(|at| at <= now_ms) {
                        due.push((db, entry.key().to_vec()));
                    }
                }
            });
            bucket += 1;
            work.buckets += 1;
            if work.looks >= LOOKS {
                break;
            }
        }
        shard.expiry_at = (db, bucket);
        (work, self.drop_all(shard, &due, now_ms))
    }

    /// Returns how many keys were removed: all, or fewer if there is no room to log the removals. The
    /// remaining keys stay hidden from clients then.
    fn drop_all(&self, shard: &mut Shard, due: &[(u16, Vec<u8>)], now_ms: u64) -> usize {
        let mut removed = 0;
        while removed < due.len() {
            let rest = &due[removed..];
            let mut bytes = 0;
            let fits = rest.iter().take_while(|(_, key)| {
                bytes += key.len();
                bytes <= UNIT
            });
            let these = &rest[..fits.count().max(1)];
            if self.drop_keys(shard, these, Gone::Expired, now_ms).is_err() {
                break;
            }
            removed += these.len();
        }
        removed
    }
}
