//! A file system in memory; what is done there may be done in a real directory as well, which is followed then.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use fastrand::Rng;
use tidewire_ship::{Disk, FileId, FileSystem, Found, Opened, Pattern, Seen, is_packed};

use crate::mirror::Mirror;

/// Counts down to the moment at which the process is killed.
#[derive(Clone, Default)]
pub(crate) struct Life(Rc<RefCell<Option<u32>>>);

impl Life {
    pub(crate) fn ends_in(&self, acts: u32) {
        *self.0.borrow_mut() = Some(acts);
    }

    pub(crate) fn goes_on(&self) {
        *self.0.borrow_mut() = None;
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.0.borrow() == Some(0)
    }

    /// One more act; whether the process still lives to do it.
    pub(crate) fn acts(&self) -> bool {
        let mut left = self.0.borrow_mut();
        match &mut *left {
            None => true,
            Some(0) => false,
            Some(n) => {
                *n -= 1;
                *n > 0
            }
        }
    }
}

pub(crate) struct Inode {
    pub(crate) id: FileId,
    pub(crate) bytes: Vec<u8>,
    modified: i128,
    /// When it was last written or renamed.
    changed: i128,
    /// Which content of the model it is.
    pub(crate) content: usize,
    /// The file is still being compressed.
    pub(crate) is_partial: bool,
    /// From where to where it has holes, in order.
    pub(crate) holes: Vec<(u64, u64)>,
}

#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) inodes: Vec<Inode>,
    pub(crate) names: BTreeMap<PathBuf, usize>,
    /// Directories whose file system is not mounted.
    absent: BTreeSet<PathBuf>,
    /// How often each was mounted anew, with another device, so that older handles are stale.
    mounts: BTreeMap<PathBuf, u64>,
    /// What may not be opened.
    pub(crate) forbidden: BTreeSet<PathBuf>,
    time: i128,
    /// Most files that may be open at once; none: any number.
    pub(crate) most_open: Option<usize>,
    /// One more than there are open files.
    open: Rc<()>,
    /// Moments that share one time: a file system's clock shows only ticks.
    pub(crate) tick: i128,
    /// Where the system tells of names that change, they have.
    pub(crate) has_news: bool,
    /// Everything is done in this real directory too.
    pub(crate) mirror: Option<Mirror>,
}

impl Tree {
    /// What the clock says at the next moment.
    fn moment(&mut self) -> i128 {
        self.time += 1;
        self.time - self.time % self.tick.max(1)
    }

    /// A moment that none before has the time of.
    pub(crate) fn next_tick(&mut self) {
        self.time += self.tick;
    }

    /// Whether there was such a file to rename.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> bool {
        let Some(inode) = self.names.remove(from) else {
            return false;
        };
        self.names.insert(to.to_owned(), inode);
        self.inodes[inode].changed = self.moment();
        if let Some(mirror) = &self.mirror {
            mirror.rename(from, to);
        }
        true
    }

    pub(crate) fn remove(&mut self, path: &Path) {
        self.names.remove(path);
        if let Some(mirror) = &self.mirror {
            mirror.remove(path);
        }
    }

    fn name_of(&self, inode: usize) -> Option<&Path> {
        let mut named = self.names.iter().filter(|(_, at)| **at == inode);
        named.next().map(|(path, _)| &**path)
    }

    pub(crate) fn create(&mut self, path: &Path, content: usize) -> usize {
        let now = self.moment();
        // Inodes are used again as soon as they can be.
        let is_used = |tree: &Tree, number: u64| {
            let mut linked = tree.names.values();
            linked.any(|at| tree.inodes[*at].id.inode == number)
        };
        let inode = (1..).find(|&number| !is_used(self, number)).unwrap();
        let device = self.device(path);
        self.inodes.push(Inode {
            id: FileId {
                device,
                inode,
                born: Some(now),
            },
            bytes: Vec::new(),
            modified: now,
            changed: now,
            content,
            is_partial: false,
            holes: Vec::new(),
        });
        self.names.insert(path.to_owned(), self.inodes.len() - 1);
        if let Some(mirror) = &self.mirror {
            mirror.create(path);
        }
        self.inodes.len() - 1
    }

    pub(crate) fn write(&mut self, inode: usize, bytes: &[u8]) {
        let now = self.moment();
        self.inodes[inode].bytes.extend_from_slice(bytes);
        (self.inodes[inode].modified, self.inodes[inode].changed) = (now, now);
        if let (Some(mirror), Some(path)) = (&self.mirror, self.name_of(inode)) {
            mirror.append(path, bytes);
        }
    }

    /// Writes at an offset. Blocks of 4 KiB to which nothing was written are holes.
    pub(crate) fn write_at(&mut self, inode: usize, offset: u64, bytes: &[u8]) {
        const BLOCK: u64 = 4096;
        let now = self.moment();
        let file = &mut self.inodes[inode];
        (file.modified, file.changed) = (now, now);
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        let had = file.bytes.len() as u64;
        file.bytes.resize(to.max(file.bytes.len()), 0);
        file.bytes[from..to].copy_from_slice(bytes);
        let hole = (had.next_multiple_of(BLOCK), file.bytes.len() as u64);
        file.holes.push(hole);
        let written = match bytes.is_empty() {
            true => (offset, offset),
            false => (offset / BLOCK * BLOCK, (to as u64).next_multiple_of(BLOCK)),
        };
        let parts = file
            .holes
            .iter()
            .flat_map(|&(from, to)| [(from, to.min(written.0)), (from.max(written.1), to)]);
        file.holes = parts.filter(|(from, to)| from < to).collect();
        file.holes.sort_unstable();
        file.holes.dedup();
    }

    pub(crate) fn truncate(&mut self, inode: usize, content: usize) {
        let now = self.moment();
        self.inodes[inode].bytes.clear();
        self.inodes[inode].holes.clear();
        (self.inodes[inode].modified, self.inodes[inode].changed) = (now, now);
        self.inodes[inode].content = content;
        if let (Some(mirror), Some(path)) = (&self.mirror, self.name_of(inode)) {
            mirror.truncate(path);
        }
    }

    /// A directory's file system is unmounted, or mounted again; whether it is there now.
    pub(crate) fn unmount_or_mount(&mut self, directory: &Path) -> bool {
        if self.absent.remove(directory) {
            return true;
        }
        self.absent.insert(directory.to_owned());
        false
    }

    /// What is in the directory has another device from now on, and all handles are stale.
    pub(crate) fn number_anew(&mut self, directory: &Path) {
        *self.mounts.entry(directory.to_owned()).or_default() += 1;
        for (path, inode) in &self.names {
            if path.parent() == Some(directory) {
                self.inodes[*inode].id.device += 1;
            }
        }
    }

    pub(crate) fn is_absent(&self, path: &Path) -> bool {
        path.parent()
            .is_some_and(|directory| self.absent.contains(directory))
    }

    fn device(&self, path: &Path) -> u64 {
        let mounts = path
            .parent()
            .and_then(|directory| self.mounts.get(directory));
        1 + mounts.copied().unwrap_or(0)
    }

    /// The files that are to be seen.
    fn visible(&self) -> impl Iterator<Item = (&PathBuf, &usize)> {
        self.names.iter().filter(|(path, _)| !self.is_absent(path))
    }

    /// Compresses a file: another one with what it holds and the time of its last writing takes its place.
    pub(crate) fn pack(&mut self, path: &Path) -> PathBuf {
        let packed = self.begin_to_pack(path);
        self.end_packing(path, &packed);
        packed
    }

    /// The compressed file is there, and not whole.
    pub(crate) fn begin_to_pack(&mut self, path: &Path) -> PathBuf {
        let packed = PathBuf::from(format!("{}.gz", path.display()));
        let new = self.create(&packed, self.inodes[self.names[path]].content);
        self.inodes[new].is_partial = true;
        packed
    }

    /// Ends a compression: the packed file is whole, has the time of the last writing, and the
    /// plain file has gone.
    pub(crate) fn end_packing(&mut self, path: &Path, packed: &Path) {
        let (old, new) = (self.names[path], self.names[packed]);
        self.inodes[new].bytes = self.inodes[old].bytes.clone();
        self.inodes[new].modified = self.inodes[old].modified;
        self.inodes[new].is_partial = false;
        if let Some(mirror) = &self.mirror {
            mirror.pack(path, packed);
        }
        self.remove(path);
    }

    fn seen(&self, path: &Path, at: usize) -> Seen {
        let inode = &self.inodes[at];
        let len = inode.bytes.len() as u64;
        Seen {
            path: path.to_owned(),
            id: inode.id,
            // As with real ones, its length says nothing.
            len: if is_packed(path) { len / 3 } else { len },
            modified: inode.modified,
            changed: inode.changed,
            removed: !self.names.values().any(|named| *named == at),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Files {
    pub(crate) tree: Rc<RefCell<Tree>>,
    pub(crate) life: Life,
    /// How often something is not to be had for a moment.
    pub(crate) errors: Rc<RefCell<(Rng, f64)>>,
}

/// An open file.
#[derive(Debug)]
pub(crate) enum Handle {
    Simulated {
        inode: usize,
        /// The device as it was when this was opened.
        device: u64,
        _open: Rc<()>,
    },
    Real(Opened),
}

impl Files {
    fn alive(&self) -> io::Result<()> {
        if !self.life.acts() {
            return Err(io::Error::other("killed"));
        }
        let (rng, rate) = &mut *self.errors.borrow_mut();
        match *rate > 0.0 && rng.f64() < *rate {
            // Out of descriptors.
            true => Err(io::Error::from_raw_os_error(24)),
            false => Ok(()),
        }
    }

    fn inode(&self, inode: usize, device: u64) -> io::Result<usize> {
        match self.tree.borrow().inodes[inode].id.device == device {
            true => Ok(inode),
            false => Err(io::Error::from_raw_os_error(116)),
        }
    }

    /// Takes a descriptor, until what is returned is dropped.
    fn descriptor(&self) -> io::Result<Rc<()>> {
        let tree = self.tree.borrow();
        match tree.most_open {
            Some(most) if Rc::strong_count(&tree.open) > most => {
                Err(io::Error::from_raw_os_error(24))
            }
            _ => Ok(Rc::clone(&tree.open)),
        }
    }

    fn is_real(&self) -> bool {
        self.tree.borrow().mirror.is_some()
    }
}

impl FileSystem for Files {
    type File = Handle;

    fn look(&self, path: &Path) -> io::Result<Option<Seen>> {
        self.alive()?;
        if self.is_real() {
            return Disk.look(path);
        }
        let tree = self.tree.borrow();
        let mut named = tree.visible().filter(|(name, _)| *name == path);
        Ok(named.next().map(|(path, inode)| tree.seen(path, *inode)))
    }

    fn find(&self, pattern: &Pattern) -> io::Result<Found> {
        self.alive()?;
        if self.is_real() {
            return Disk.find(pattern);
        }
        let _read = self.descriptor()?;
        let tree = self.tree.borrow();
        let named = tree.visible().filter(|(path, _)| pattern.names(path));
        Ok(Found {
            files: named.map(|(path, inode)| tree.seen(path, *inode)).collect(),
            hidden: Vec::new(),
        })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Seen>> {
        self.alive()?;
        if self.is_real() {
            return Disk.list(directory);
        }
        let _read = self.descriptor()?;
        let tree = self.tree.borrow();
        let near = tree
            .visible()
            .filter(|(other, _)| other.parent() == Some(directory));
        Ok(near.map(|(path, inode)| tree.seen(path, *inode)).collect())
    }

    fn open(&self, path: &Path) -> io::Result<Handle> {
        self.alive()?;
        if self.is_real() {
            return Disk.open(path).map(Handle::Real);
        }
        let _open = self.descriptor()?;
        let tree = self.tree.borrow();
        if tree.forbidden.contains(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut named = tree.visible().filter(|(name, _)| *name == path);
        let (_, &inode) = named.next().ok_or(io::ErrorKind::NotFound)?;
        let device = tree.inodes[inode].id.device;
        if tree.inodes[inode].is_partial {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Handle::Simulated {
            inode,
            device,
            _open,
        })
    }

    fn stat(&self, file: &Handle) -> io::Result<Seen> {
        self.alive()?;
        let inode = match file {
            Handle::Simulated { inode, device, .. } => self.inode(*inode, *device)?,
            Handle::Real(file) => return Disk.stat(file),
        };
        Ok(self.tree.borrow().seen(Path::new(""), inode))
    }

    fn hole_from(&self, file: &Handle, offset: u64) -> u64 {
        let inode = match file {
            Handle::Simulated { inode, .. } => *inode,
            Handle::Real(file) => return Disk.hole_from(file, offset),
        };
        let tree = self.tree.borrow();
        let mut holes = tree.inodes[inode].holes.iter();
        let hole = holes.find(|(_, to)| *to > offset);
        hole.map_or(u64::MAX, |(from, _)| offset.max(*from))
    }

    fn data_from(&self, file: &Handle, offset: u64) -> u64 {
        let inode = match file {
            Handle::Simulated { inode, .. } => *inode,
            Handle::Real(file) => return Disk.data_from(file, offset),
        };
        let tree = self.tree.borrow();
        let mut at = offset;
        for (from, to) in &tree.inodes[inode].holes {
            if (*from..*to).contains(&at) {
                at = *to;
            }
        }
        at
    }

    fn wall(&self) -> i128 {
        self.tree.borrow().time
    }

    fn has_news(&self) -> bool {
        std::mem::take(&mut self.tree.borrow_mut().has_news)
    }

    fn read_at(&self, file: &Handle, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.alive()?;
        let inode = match file {
            Handle::Simulated { inode, device, .. } => self.inode(*inode, *device)?,
            Handle::Real(file) => return Disk.read_at(file, offset, into),
        };
        let tree = self.tree.borrow();
        let rest = tree.inodes[inode]
            .bytes
            .get(offset as usize..)
            .unwrap_or_default();
        let n = rest.len().min(into.len());
        into[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}
