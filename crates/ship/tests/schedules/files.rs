//! A file system in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tidewire_ship::{FileId, FileSystem, Pattern, Seen};

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
    /// Which content of the model it is.
    pub(crate) content: usize,
}

#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) inodes: Vec<Inode>,
    pub(crate) names: BTreeMap<PathBuf, usize>,
    time: i128,
}

impl Tree {
    pub(crate) fn create(&mut self, path: &Path, content: usize) -> usize {
        self.time += 1;
        // Inodes are used again as soon as they can be.
        let is_used = |tree: &Tree, number: u64| {
            let mut linked = tree.names.values();
            linked.any(|at| tree.inodes[*at].id.inode == number)
        };
        let inode = (1..).find(|&number| !is_used(self, number)).unwrap();
        self.inodes.push(Inode {
            id: FileId {
                device: 1,
                inode,
                born: Some(self.time),
            },
            bytes: Vec::new(),
            modified: self.time,
            content,
        });
        self.names.insert(path.to_owned(), self.inodes.len() - 1);
        self.inodes.len() - 1
    }

    pub(crate) fn write(&mut self, inode: usize, bytes: &[u8]) {
        self.time += 1;
        self.inodes[inode].bytes.extend_from_slice(bytes);
        self.inodes[inode].modified = self.time;
    }

    pub(crate) fn truncate(&mut self, inode: usize, content: usize) {
        self.time += 1;
        self.inodes[inode].bytes.clear();
        self.inodes[inode].modified = self.time;
        self.inodes[inode].content = content;
    }

    fn seen(&self, path: &Path, inode: usize) -> Seen {
        let inode = &self.inodes[inode];
        Seen {
            path: path.to_owned(),
            id: inode.id,
            len: inode.bytes.len() as u64,
            modified: inode.modified,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Files {
    pub(crate) tree: Rc<RefCell<Tree>>,
    pub(crate) life: Life,
}

impl Files {
    fn alive(&self) -> io::Result<()> {
        match self.life.acts() {
            true => Ok(()),
            false => Err(io::Error::other("killed")),
        }
    }
}

impl FileSystem for Files {
    type File = usize;

    fn look(&self, path: &Path) -> io::Result<Option<Seen>> {
        self.alive()?;
        let tree = self.tree.borrow();
        Ok(tree.names.get(path).map(|inode| tree.seen(path, *inode)))
    }

    fn find(&self, pattern: &Pattern) -> io::Result<Vec<Seen>> {
        self.alive()?;
        let tree = self.tree.borrow();
        let named = tree.names.iter().filter(|(path, _)| pattern.names(path));
        Ok(named.map(|(path, inode)| tree.seen(path, *inode)).collect())
    }

    fn siblings(&self, path: &Path) -> io::Result<Vec<Seen>> {
        self.alive()?;
        let tree = self.tree.borrow();
        let all = tree.names.iter();
        let near = all.filter(|(other, _)| other.parent() == path.parent());
        Ok(near.map(|(path, inode)| tree.seen(path, *inode)).collect())
    }

    fn open(&self, path: &Path) -> io::Result<usize> {
        self.alive()?;
        let tree = self.tree.borrow();
        tree.names
            .get(path)
            .copied()
            .ok_or(io::ErrorKind::NotFound.into())
    }

    fn stat(&self, file: &usize) -> io::Result<Seen> {
        self.alive()?;
        Ok(self.tree.borrow().seen(Path::new(""), *file))
    }

    fn read_at(&self, file: &usize, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.alive()?;
        let tree = self.tree.borrow();
        let rest = tree.inodes[*file]
            .bytes
            .get(offset as usize..)
            .unwrap_or_default();
        let n = rest.len().min(into.len());
        into[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}
