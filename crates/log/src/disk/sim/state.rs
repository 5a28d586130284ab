//! The disk behind its lock: every operation, with its fault.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;

use fastrand::Rng;

use super::faults::{Faults, PowerLost, Survival, strikes};
use super::inode::{Fate, Inode};
use super::names::Directory;

#[derive(Debug)]
pub(super) struct State {
    pub(super) random: Rng,
    pub(super) faults: Faults,
    pub(super) capacity: u64,
    /// The most that was ever in use at once.
    pub(super) most_used: u64,
    pub(super) operations: u64,
    pub(super) powered: bool,
    pub(super) names: Directory,
    inodes: BTreeMap<u64, Inode>,
    created: u64,
}

/// A test that runs one seed in two processes compares the printed line; `TIDEWIRE_TRACED` in the environment asks for the
/// line.
impl Drop for State {
    #[expect(clippy::print_stdout, reason = "a test reads it")]
    fn drop(&mut self) {
        if std::env::var_os("TIDEWIRE_TRACED").is_none() {
            return;
        }
        let mut hash = DefaultHasher::new();
        (self.operations, self.most_used).hash(&mut hash);
        for name in self.names.sorted() {
            (&name, self.contents(&name)).hash(&mut hash);
        }
        println!("disk: {:016x}", hash.finish());
    }
}

/// Whether power is lost with the operation that has just begun.
#[must_use]
struct Last(bool);

impl Last {
    fn end(self) -> io::Result<()> {
        if self.0 {
            Err(PowerLost.into())
        } else {
            Ok(())
        }
    }
}

impl State {
    pub(super) fn new(seed: u64) -> State {
        State {
            random: Rng::with_seed(seed),
            faults: Faults::default(),
            capacity: u64::MAX,
            most_used: 0,
            operations: 0,
            powered: true,
            names: Directory::default(),
            inodes: BTreeMap::new(),
            created: 0,
        }
    }

    /// A copy with power and without faults or open files.
    pub(super) fn successor(&mut self) -> State {
        let mut inodes = self.inodes.clone();
        inodes.values_mut().for_each(Inode::close);
        State {
            random: self.random.fork(),
            faults: Faults::default(),
            capacity: self.capacity,
            most_used: self.most_used,
            operations: self.operations,
            powered: true,
            names: self.names.clone(),
            inodes,
            created: self.created,
        }
    }

    pub(super) fn crash(&mut self, survival: Survival) -> State {
        let mut after = self.successor();
        self.powered = false;
        let moments = after
            .inodes
            .values()
            .flat_map(Inode::moments)
            .chain(after.names.moments());
        let mut moments = moments.collect::<Vec<u64>>();
        moments.sort_unstable();
        moments.dedup();
        let until = after.random.choice(&moments).copied().unwrap_or(u64::MAX);
        let at = (survival == Survival::Prefix).then_some(until);
        let dirty = after.inodes.iter();
        let dirty = dirty.flat_map(|(id, inode)| inode.dirty(at).map(|sector| (*id, sector)));
        let dirty = dirty.collect::<Vec<(u64, u64)>>();
        let victim = after.random.choice(&dirty).copied();
        for (id, inode) in &mut after.inodes {
            let victim = victim
                .filter(|victim| victim.0 == *id)
                .map(|victim| victim.1);
            inode.crash(
                &Fate {
                    survival,
                    until,
                    victim,
                },
                &mut after.random,
            );
        }
        after.names.crash(survival, until, &mut after.random);
        after.forget();
        after
    }

    pub(super) fn used(&self) -> u64 {
        let named = self.names.live();
        let held = self
            .inodes
            .iter()
            .filter(|(id, inode)| named.contains(id) || inode.is_open());
        held.map(|(_, inode)| Inode::room(inode.len() as u64)).sum()
    }

    pub(super) fn list(&mut self) -> io::Result<Vec<String>> {
        self.check()?;
        let mut names = self.names.sorted();
        self.random.shuffle(&mut names);
        Ok(names)
    }

    pub(super) fn create(&mut self, name: &str) -> io::Result<(u64, Arc<()>)> {
        let last = self.begin()?;
        if self.names.find(name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.take_room(0, Inode::room(0))?;
        self.created += 1;
        let inode = self.created;
        self.names.create(self.operations, name, inode);
        let open = self.inodes.entry(inode).or_default().handle();
        last.end()?;
        Ok((inode, open))
    }

    pub(super) fn open(&mut self, name: &str) -> io::Result<(u64, Arc<()>)> {
        self.check()?;
        let inode = self.find(name)?;
        Ok((inode, self.inode(inode).handle()))
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let last = self.begin()?;
        if strikes(&mut self.faults.rename) {
            return Err(io::Error::other("simulated: the rename failed"));
        }
        let inode = self.find(from)?;
        self.names.rename(self.operations, from, to, inode);
        last.end()
    }

    pub(super) fn remove(&mut self, name: &str) -> io::Result<()> {
        let last = self.begin()?;
        let inode = self.find(name)?;
        self.names.remove(self.operations, name, inode);
        last.end()
    }

    pub(super) fn sync_directory(&mut self) -> io::Result<()> {
        self.begin()?.end()?;
        if strikes(&mut self.faults.sync_directory) {
            self.names.fail();
            return Err(io::Error::other(
                "simulated: the directory could not be synced",
            ));
        }
        self.names.sync();
        self.forget();
        Ok(())
    }

    pub(super) fn read(&mut self, inode: u64, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check()?;
        Ok(self.inode(inode).read(into, offset))
    }

    pub(super) fn write(&mut self, inode: u64, bytes: &[u8], offset: u64) -> io::Result<()> {
        let last = self.begin()?;
        let at = self.operations;
        let from = in_memory(offset)?;
        let part = self.random.usize(0..=bytes.len());
        if strikes(&mut self.faults.write) {
            self.inode(inode).write(at, &bytes[..part], from);
            return Err(io::Error::other("simulated: the write failed"));
        }
        let len = self.inode(inode).len() as u64;
        if let Err(full) = self.grow(inode, offset + bytes.len() as u64) {
            // Bytes that fit into the file's blocks may be written.
            let room = (Inode::room(len)).saturating_sub(offset);
            let part = part.min(usize::try_from(room).unwrap_or(usize::MAX));
            self.inode(inode).write(at, &bytes[..part], from);
            return Err(full);
        }
        self.inode(inode).write(at, bytes, from);
        last.end()
    }

    pub(super) fn sync(&mut self, inode: u64) -> io::Result<()> {
        self.begin()?.end()?;
        let file = self
            .inodes
            .get_mut(&inode)
            .expect("open files have an inode");
        if strikes(&mut self.faults.sync) {
            file.fail(&mut self.random);
            return Err(io::Error::other("simulated: the sync failed"));
        }
        file.sync();
        Ok(())
    }

    pub(super) fn reserve(&mut self, inode: u64, len: u64) -> io::Result<()> {
        let last = self.begin()?;
        let at = self.operations;
        let bytes = in_memory(len)?;
        self.grow(inode, len)?;
        self.inode(inode).extend(at, bytes);
        last.end()
    }

    pub(super) fn truncate(&mut self, inode: u64, len: u64) -> io::Result<()> {
        let last = self.begin()?;
        let at = self.operations;
        let bytes = in_memory(len)?;
        self.grow(inode, len)?;
        self.inode(inode).truncate(at, bytes);
        last.end()
    }

    pub(super) fn len(&mut self, inode: u64) -> io::Result<u64> {
        self.check()?;
        Ok(self.inode(inode).len() as u64)
    }

    pub(super) fn flip(&mut self, name: &str, offset: u64, bit: u8) -> bool {
        let Some(inode) = self.names.find(name) else {
            return false;
        };
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        self.inode(inode).flip(offset, 1 << (bit % 8))
    }

    pub(super) fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let inode = self.names.find(name)?;
        self.inodes.get(&inode).map(Inode::bytes)
    }

    fn check(&self) -> io::Result<()> {
        if self.powered {
            Ok(())
        } else {
            Err(PowerLost.into())
        }
    }

    fn begin(&mut self) -> io::Result<Last> {
        self.check()?;
        self.operations += 1;
        let last = strikes(&mut self.faults.power);
        self.powered = !last;
        Ok(Last(last))
    }

    fn find(&self, name: &str) -> io::Result<u64> {
        self.names
            .find(name)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn inode(&mut self, inode: u64) -> &mut Inode {
        self.inodes
            .get_mut(&inode)
            .expect("open files have an inode")
    }

    fn grow(&mut self, inode: u64, len: u64) -> io::Result<()> {
        let has = Inode::room(self.inode(inode).len() as u64);
        self.take_room(has, Inode::room(len))
    }

    fn take_room(&mut self, has: u64, wants: u64) -> io::Result<()> {
        if wants > has {
            let used = self.used().saturating_add(wants - has);
            if used > self.capacity {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.most_used = self.most_used.max(used);
        }
        Ok(())
    }

    /// Drops the files that cannot be reached any more.
    fn forget(&mut self) {
        let reachable = self.names.reachable();
        self.inodes
            .retain(|id, inode| inode.is_open() || reachable.contains(id));
    }
}

/// Files live in memory: offsets are addresses.
fn in_memory(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge.into())
}
