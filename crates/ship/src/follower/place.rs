//! Where a file is, and whether it still is what was shipped of it.

use std::io::{self, ErrorKind};

use super::hole::{beginning, without_hole_at_end};
use super::reading::{fits, read};
use super::{Around, Follower};
use crate::buffer::Buffer;
use crate::file_system::{FileSystem, Seen};
use crate::fingerprint::HEAD;
use crate::network::{Lane, Network};

enum Opened<F> {
    There(F, Seen),
    Gone,
}

impl<F, L: Lane> Follower<F, L> {
    /// Opens the file if it is not, and sees how long it is.
    pub(super) fn look<S, N>(&mut self, around: &mut Around<'_, S, N>) -> io::Result<()>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        if self.is_truncated {
            return Ok(());
        }
        if self.seeking.is_some() {
            return self.seek_copy(around);
        }
        if self.file.is_none() {
            match self.find(around)? {
                Opened::There(file, seen) => {
                    self.len = seen.len;
                    self.is_removed = seen.removed;
                    self.file = Some(file);
                    self.recognise(around)?;
                    if self.has_file() && self.entry.id == seen.id {
                        self.entry.modified = seen.modified;
                    }
                    self.remember_end(around.files)?;
                }
                Opened::Gone => self.gone(around),
            }
            return Ok(());
        }
        let file = self.file.as_ref().expect("opened above");
        let seen = around.files.stat(file)?;
        let before = (self.len.max(self.end()), self.entry.modified);
        self.is_removed = seen.removed;
        if seen.len < before.0 {
            return self.truncated(around);
        }
        let is_touched = (seen.len, seen.modified) != before;
        if is_touched && !self.is_as_seen(around.files, file)? {
            // As long as it was, or longer, but another content.
            if self.is_placed {
                self.overwritten(around);
                return Ok(());
            }
            return self.truncated(around);
        }
        self.len = seen.len;
        self.entry.modified = seen.modified;
        self.look_at_hole(around.files, is_touched)?;
        if !self.remember_head(around.files)? {
            self.displace();
        }
        self.remember_end(around.files)
    }

    /// Whether the seen bytes of the file are still there.
    fn is_as_seen<S: FileSystem<File = F>>(&self, files: &S, file: &F) -> io::Result<bool> {
        let (at, end) = match self.is_placed && !self.has_read_zeros() {
            true => self.buffer.kept(),
            false => (self.seen_end.0, &*self.seen_end.1),
        };
        Ok(read(files, file, 0, self.head.len())? == self.head
            && read(files, file, at, end.len())? == end)
    }

    /// Notes how the file ends at present, by which a copy of it is known should it be truncated before it has its turn.
    fn remember_end<S: FileSystem<File = F>>(&mut self, files: &S) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.has_file()) else {
            return Ok(());
        };
        let len = Buffer::wants_before(self.len);
        if (self.is_placed && !self.has_read_zeros()) || self.seen_to() == self.len {
            return Ok(());
        }
        let at = self.len - len as u64;
        let mut end = read(files, file, at, len)?;
        // What has just been truncated is found by the next look.
        if end.len() == len {
            // What is written into a hole makes no other file of it.
            without_hole_at_end(files, file, at, &mut end)?;
            self.seen_end = (at, end);
        }
        Ok(())
    }

    /// Up to where it was seen while it waited.
    pub(super) fn seen_to(&self) -> u64 {
        self.seen_end.0 + self.seen_end.1.len() as u64
    }

    /// Opens the file, wherever it is in its directory.
    fn find<S, N>(&mut self, around: &mut Around<'_, S, N>) -> io::Result<Opened<F>>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        // A name may change between looking and opening.
        for _ in 0..8 {
            let here = around.files.look(&self.entry.path)?;
            let here = here.filter(|seen| seen.id == self.entry.id);
            let seen = match here {
                Some(seen) => seen,
                None => {
                    let all = around.files.siblings(&self.entry.path)?;
                    let found = all.iter().find(|seen| seen.id == self.entry.id);
                    let found = match found {
                        Some(seen) => Some(seen.clone()),
                        None => self.on_another_device(&all, around)?,
                    };
                    match (found, self.has_head()) {
                        (Some(seen), _) => seen,
                        (None, false) => return Ok(Opened::Gone),
                        // Compressed, say, and removed.
                        (None, true) => match self.copy(around)? {
                            Some((file, seen)) => {
                                self.takes(&seen, around);
                                return Ok(Opened::There(file, seen));
                            }
                            None => return Ok(Opened::Gone),
                        },
                    }
                }
            };
            let file = match around.files.open(&seen.path) {
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                file => file?,
            };
            let opened = around.files.stat(&file)?;
            if opened.id == seen.id {
                if opened.id != self.entry.id {
                    self.is_moved(opened.id, around);
                }
                self.entry.path = seen.path;
                return Ok(Opened::There(file, opened));
            }
        }
        Err(io::Error::other("its name changes all the time"))
    }

    /// Whether the file that was opened is the one of which a part was shipped.
    fn recognise<S, N>(&mut self, around: &mut Around<'_, S, N>) -> io::Result<()>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let file = self.file.as_ref().expect("was opened");
        if self.len < self.entry.acked || !fits(around.files, file, &self.entry.head)? {
            // The length of this file says nothing about the other file.
            self.len = self.entry.acked;
            return self.truncated(around);
        }
        if !fits(around.files, file, &self.entry.tail)? {
            self.len = self.entry.acked;
            return self.rewritten(around, self.entry.tail.at);
        }
        self.head = beginning(around.files, file, HEAD)?;
        Ok(())
    }

    /// The file has another content than what was shipped, and is not another one.
    pub(super) fn changed<S: FileSystem, N: Network>(
        &mut self,
        around: &mut Around<'_, S, N>,
        at: u64,
    ) {
        let path = self.entry.path.display();
        let why = format!(
            "{path} is not what was shipped: it begins as it did, but before byte {at} it has been \
             changed. Nothing more of it is shipped; to ship it from its start as a new file, copy it \
             and give the copy its name"
        );
        self.fail(around, why);
    }

    /// The bytes that were read before have changed.
    pub(super) fn overwritten<S, N>(&mut self, around: &mut Around<'_, S, N>)
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let file = self.file.as_ref().expect("it is open");
        let done = match read(around.files, file, 0, self.head.len()) {
            Err(e) => Err(e),
            Ok(head) if head == self.head && self.len >= self.buffer.end() => {
                self.rewritten(around, self.buffer.end())
            }
            Ok(_) => self.truncated(around),
        };
        if let Err(e) = done {
            self.stumble(around, &e);
        }
    }

    /// Reads the beginning as far as it is there; false if it is another than it was.
    pub(super) fn remember_head<S: FileSystem<File = F>>(&mut self, files: &S) -> io::Result<bool> {
        let wanted = (self.len as usize).min(HEAD);
        if self.head.len() < wanted
            && let Some(file) = &self.file
        {
            let head = beginning(files, file, wanted)?;
            if !head.starts_with(&self.head) {
                return Ok(false);
            }
            self.head = head;
        }
        Ok(true)
    }
}
