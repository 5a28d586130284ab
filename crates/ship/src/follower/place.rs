//! Where a file is, and whether it still is what was shipped of it.

use std::io::{self, ErrorKind};

use super::{Around, Follower};
use crate::file_system::{FileSystem, Seen};
use crate::fingerprint::{Fingerprint, HEAD};
use crate::network::{Lane, Network};
use crate::pattern::is_rotated;

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
        if self.file.is_none() {
            match self.find(around)? {
                Opened::There(file, seen) => {
                    self.len = seen.len;
                    self.entry.modified = seen.modified;
                    self.file = Some(file);
                    self.recognise(around)?;
                }
                Opened::Gone => self.gone(around),
            }
            return Ok(());
        }
        let file = self.file.as_ref().expect("opened above");
        let seen = around.files.stat(file)?;
        let before = (self.len.max(self.end()), self.entry.modified);
        if seen.len < before.0 {
            return self.truncated(around);
        }
        if !self.is_placed && read(around.files, file, 0, self.head.len())? != self.head {
            // As long as it was, or longer, but another content: nothing of that was read.
            self.len = self.entry.acked;
            return self.truncated(around);
        }
        self.len = seen.len;
        self.entry.modified = seen.modified;
        if self.is_placed && seen.len == self.buffer.end() && seen.modified != before.1 {
            // As long as before, but written to: perhaps truncated and written anew.
            let (at, kept) = self.buffer.kept();
            if read(around.files, file, at, kept.len())? != kept {
                self.overwritten(around);
                return Ok(());
            }
        }
        if !self.remember_head(around.files)? {
            self.displace();
        }
        Ok(())
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
                    match found {
                        Some(seen) => seen,
                        None => return Ok(Opened::Gone),
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
            // How long this one is says nothing about the other.
            self.len = self.entry.acked;
            return self.truncated(around);
        }
        if !fits(around.files, file, &self.entry.tail)? {
            self.changed(around, self.entry.tail.at);
            return Ok(());
        }
        self.head = read(around.files, file, 0, HEAD)?;
        Ok(())
    }

    /// The file has another content than what was shipped, and is not another one.
    fn changed<S: FileSystem, N: Network>(&mut self, around: &mut Around<'_, S, N>, at: u64) {
        let path = self.entry.path.display();
        let why = format!(
            "{path} is not what was shipped: it begins as it did, but before byte {at} it has been \
             changed. Nothing more of it is shipped; to ship it from its start as a new file, copy it \
             and give the copy its name"
        );
        self.fail(around, why);
    }

    /// The file is shorter than what was read, or begins otherwise: it was truncated. If it was copied
    /// before, as logrotate's `copytruncate` does, the copy has the rest.
    fn truncated<S, N>(&mut self, around: &mut Around<'_, S, N>) -> io::Result<()>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        self.left.get_or_insert(around.now);
        around.vacated = true;
        let path = self.entry.path.clone();
        let siblings = around.files.siblings(&path)?;
        let target = around.files.target(&self.entry.followed);
        let copies = siblings.into_iter().filter(|seen| {
            (is_rotated(&seen.path, &self.entry.followed) || is_rotated(&seen.path, &target))
                && seen.len >= self.end().max(self.len)
                && !(around.tracked)(seen.id)
        });
        for seen in copies {
            let file = match around.files.open(&seen.path) {
                // It is not ours to read, or has gone.
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                    continue;
                }
                file => file?,
            };
            if around.files.stat(&file)?.id == seen.id && self.is_of(around.files, &file)? {
                around.events.push(format!(
                    "{} was truncated; the rest of it is shipped from its copy {}",
                    path.display(),
                    seen.path.display()
                ));
                self.entry.id = seen.id;
                self.entry.path = seen.path;
                self.entry.modified = seen.modified;
                self.is_saved = false;
                self.len = seen.len;
                self.file = Some(file);
                return Ok(());
            }
        }
        around.counts.losses += 1;
        around.events.push(format!(
            "{} was truncated, and no copy of it is beside it: what was written to it after byte {} \
             is lost",
            path.display(),
            self.end()
        ));
        self.is_truncated = true;
        self.file = None;
        self.len = self.end();
        Ok(())
    }

    /// Whether this file has all that was read so far.
    pub(crate) fn is_of<S: FileSystem<File = F>>(&self, files: &S, file: &F) -> io::Result<bool> {
        let begins = match self.head.is_empty() {
            false => read(files, file, 0, self.head.len())? == self.head,
            true => self.entry.head.len > 0 && fits(files, file, &self.entry.head)?,
        };
        let goes_on = match self.is_placed {
            true => {
                let (at, kept) = self.buffer.kept();
                read(files, file, at, kept.len())? == kept
            }
            false => fits(files, file, &self.entry.tail)?,
        };
        Ok(begins && goes_on)
    }

    /// Bytes that were read before are others now.
    pub(super) fn overwritten<S, N>(&mut self, around: &mut Around<'_, S, N>)
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let file = self.file.as_ref().expect("it is open");
        let done = match read(around.files, file, 0, self.head.len()) {
            Err(e) => Err(e),
            Ok(head) if head == self.head && self.len >= self.buffer.end() => {
                let at = self.buffer.end();
                self.changed(around, at);
                Ok(())
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
            let head = read(files, file, 0, wanted)?;
            if !head.starts_with(&self.head) {
                return Ok(false);
            }
            self.head = head;
        }
        Ok(true)
    }
}

/// Up to `len` bytes.
pub(crate) fn read<S: FileSystem>(
    files: &S,
    file: &S::File,
    at: u64,
    len: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let n = files.read_at(file, at, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

pub(super) fn fits<S: FileSystem>(
    files: &S,
    file: &S::File,
    print: &Fingerprint,
) -> io::Result<bool> {
    if print.len == 0 {
        return Ok(true);
    }
    Ok(print.fits(&read(files, file, print.at, print.len)?))
}
