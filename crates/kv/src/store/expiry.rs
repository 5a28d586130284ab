//! Removal of keys whose time has come, before anybody asks for them.
//!
//! There is no index of keys that expire: it would cost memory for each. Instead every tick walks on
//! through the buckets. Whether an entry has a deadline is a bit of its pointer, so that a bucket
//! without such keys costs one read of one cache line, and those lines lie in a row.

use super::Store;
use super::effect::Gone;
use super::shard::Shard;

/// Buckets of a shard that a tick looks at under one lock.
const BUCKETS: usize = 256;
/// Entries with a deadline that a tick looks at in one shard: each may be a cache miss.
const LOOKS: usize = 512;
/// More buckets for a shard where a tick found a quarter of its looks due.
const ROUNDS: usize = 4;

impl Store {
    /// Removes keys that are past their time; how many. To be called some ten times a second by
    /// one loop. A call does bounded work, however many keys there are.
    pub fn expire(&self, now_ms: u64) -> usize {
        if !self
            .active_expire
            .load(std::sync::atomic::Ordering::Relaxed)
        {
            return 0;
        }
        let mut removed = 0;
        for at in 0..self.shards.len() {
            for _ in 0..ROUNDS {
                // Let go between rounds: others want in.
                let mut shard = self.lock(at);
                let (looks, due) = self.expire_some(&mut shard, now_ms);
                self.tell(&mut shard);
                removed += due;
                if due * 4 < looks || due == 0 {
                    break;
                }
            }
        }
        removed
    }

    /// Looks at some buckets; how many deadlines it saw and how many keys it removed.
    fn expire_some(&self, shard: &mut Shard, now_ms: u64) -> (usize, usize) {
        let (mut looks, mut due) = (0, Vec::new());
        let databases = shard.tables.len() as u16;
        let (mut db, mut bucket) = shard.expiry_at;
        // Databases left to go into: each at most once more than it began in.
        let mut databases_left = databases;
        for _ in 0..BUCKETS {
            while shard.expiring[usize::from(db)] == 0 || bucket >= shard.table(db).buckets() {
                if databases_left == 0 {
                    shard.expiry_at = (db, bucket);
                    return (looks, self.drop_all(shard, due));
                }
                databases_left -= 1;
                (db, bucket) = ((db + 1) % databases, 0);
            }
            shard.table(db).visit(bucket, &mut |entry| {
                if entry.expires() {
                    looks += 1;
                    if entry.deadline_ms().is_some_and(|at| at <= now_ms) {
                        due.push((db, entry.key().to_vec()));
                    }
                }
            });
            bucket += 1;
            if looks >= LOOKS {
                break;
            }
        }
        shard.expiry_at = (db, bucket);
        (looks, self.drop_all(shard, due))
    }

    fn drop_all(&self, shard: &mut Shard, due: Vec<(u16, Vec<u8>)>) -> usize {
        for (db, key) in &due {
            self.drop_key(shard, *db, self.hash(key), key, Gone::Expired);
        }
        due.len()
    }
}
