//! Which file is which segment, where names have been mixed up.
//!
//! The one idea: the contents of a file count more than its name. A segment's header contains its number, and so does
//! its first batch. A file without a number is taken for the segment of its name, unless another file proves to be
//! that segment.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;

use crate::OpenError;
use crate::claims::Claimed;
use crate::disk::{Disk, DiskFile};
use crate::format::{
    BATCH_HEADER, BatchHeader, SEGMENT_HEADER, SegmentHeader, number_of, segment_name, u64_at,
};
use crate::recovery::{FOUND, MOVED, Window, free_name};

/// Which segment is in which file.
#[derive(Debug, Default)]
pub(super) struct Naming {
    /// The file of each segment.
    files: BTreeMap<u64, String>,
    /// Files under the names of segments that are in others.
    displaced: Vec<String>,
}

/// A file that may be a segment.
#[derive(Debug)]
struct Candidate {
    file: String,
    /// The number in its name.
    named: u64,
    /// The log that it says it is of, and its number.
    said: Option<(u64, u64)>,
}

impl Candidate {
    fn has_name_of(&self, number: u64) -> bool {
        self.file == segment_name(number)
    }
}

impl Naming {
    /// The files of all segments in a directory, without segments that the file of claims calls
    /// removed.
    ///
    /// # Errors
    /// [`OpenError::Io`]: what the system says, or that two files say that they are one segment, and neither has its name.
    pub(super) fn of<D: Disk>(disk: &D, claimed: &Claimed) -> Result<Naming, OpenError> {
        let listed = disk.list();
        let mut files =
            listed.map_err(|error| OpenError::io("listing the log's directory", error))?;
        files.sort_unstable();
        let mut candidates = Vec::new();
        for file in files {
            let extensions = ["seg", MOVED, FOUND].into_iter();
            let mut numbers = extensions.filter_map(|extension| number_of(&file, extension));
            if let Some(named) = numbers.next() {
                let said = said(disk, &file);
                let said = said.map_err(|error| unreadable(&file, error))?;
                candidates.push(Candidate { file, named, said });
            }
        }
        let log = claimed.said.map(|said| said.log);
        let oldest = claimed.said.map_or(0, |said| said.oldest);
        Naming::among(&candidates, log.or_else(|| log_of(&candidates)), oldest)
    }

    fn among(candidates: &[Candidate], log: Option<u64>, oldest: u64) -> Result<Naming, OpenError> {
        let mut naming = Naming::default();
        // A copy beside the file with the right name proves nothing.
        let is_right = |it: &Candidate, number| it.has_name_of(number);
        let saying = |it: &Candidate| {
            let said = it.said.filter(|&(of, _)| Some(of) == log);
            said.map(|(_, number)| number)
                .filter(|&number| number >= oldest)
        };
        for it in candidates {
            if let Some(number) = saying(it).filter(|&number| is_right(it, number)) {
                naming.files.insert(number, it.file.clone());
            }
        }
        let right = naming.files.clone();
        for it in candidates {
            if let Some(number) = saying(it).filter(|number| !right.contains_key(number)) {
                match naming.files.entry(number) {
                    Entry::Vacant(place) => drop(place.insert(it.file.clone())),
                    Entry::Occupied(other) => return Err(ambiguous(number, other.get(), &it.file)),
                }
            }
        }
        let is_taken = |naming: &Naming, it: &Candidate| {
            let number = saying(it).filter(|number| naming.files.get(number) == Some(&it.file));
            number.is_some()
        };
        for it in candidates.iter().filter(|it| it.has_name_of(it.named)) {
            if it.named < oldest || is_taken(&naming, it) {
                continue;
            }
            match naming.files.entry(it.named) {
                Entry::Vacant(place) => drop(place.insert(it.file.clone())),
                Entry::Occupied(_) => naming.displaced.push(it.file.clone()),
            }
        }
        Ok(naming)
    }

    /// The numbers of all segments, in order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.files.keys().copied()
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.files.contains_key(&number)
    }

    pub(super) fn open<D: Disk>(&self, disk: &D, number: u64) -> io::Result<Window<D::File>> {
        match self.files.get(&number) {
            Some(file) => Window::open(disk, file),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Files that do not have their names, and these.
    pub(super) fn renamed(&self) -> impl Iterator<Item = (String, String)> {
        let named = self.files.iter();
        let named = named.map(|(&number, file)| (file.clone(), segment_name(number)));
        named.filter(|(file, name)| file != name)
    }

    /// Files that stand under another segment's name, and the names under which they would be kept,
    /// given these names.
    pub(super) fn displaced(&self, names: &mut Vec<String>) -> Vec<(String, String)> {
        let mut kept = Vec::new();
        for file in &self.displaced {
            let name = free_name(names, &format!("{file}.cut"));
            names.push(name.clone());
            kept.push((file.clone(), name));
        }
        kept
    }

    /// Gives all files their names. If this is interrupted, no file is lost, and the contents still tell which
    /// segment each one is.
    pub(super) fn settle<D: Disk>(&self, disk: &D) -> io::Result<()> {
        let mut names = disk.list()?;
        for (file, kept) in self.displaced(&mut names) {
            disk.rename(&file, &kept)?;
        }
        let renamed = || {
            self.renamed()
                .map(|(file, name)| (file, found(&name), name))
        };
        // Two files may have each other's names.
        for (file, found, _) in renamed().filter(|(file, found, _)| file != found) {
            disk.rename(&file, &found)?;
        }
        disk.sync_directory()?;
        for (_, found, name) in renamed() {
            disk.rename(&found, &name)?;
        }
        disk.sync_directory()
    }
}

/// The temporary name of a segment until its own name is free.
fn found(name: &str) -> String {
    format!("{}.{FOUND}", name.trim_end_matches(".seg"))
}

/// The log and the number of the segment in a file, as its header says, or its first batch.
fn said<D: Disk>(disk: &D, file: &str) -> io::Result<Option<(u64, u64)>> {
    let mut bytes = [0; SEGMENT_HEADER + BATCH_HEADER];
    let count = disk.open(file)?.read_at(&mut bytes, 0)?;
    let header = &bytes[..count.min(SEGMENT_HEADER)];
    let batch = bytes[..count].get(SEGMENT_HEADER..).unwrap_or_default();
    let number = |bytes: &[u8], at: usize| match bytes.len() >= at + 8 {
        true => u64_at(bytes, at),
        false => 0,
    };
    if let Ok(header) = SegmentHeader::decode(header, number(header, 24)) {
        return Ok(Some((header.log, header.number)));
    }
    let batch = BatchHeader::decode(batch, SEGMENT_HEADER as u64, number(batch, 16));
    Ok(batch.ok().map(|batch| (batch.log, batch.segment)))
}

/// The log, if the file of claims does not say: that of the first segment that has its own name, or else of any.
fn log_of(candidates: &[Candidate]) -> Option<u64> {
    let said = |it: &Candidate| it.said.map(|(log, number)| (log, it.has_name_of(number)));
    let mut first = None;
    for (log, is_right) in candidates.iter().filter_map(said) {
        if is_right {
            return Some(log);
        }
        first = first.or(Some(log));
    }
    first
}

fn unreadable(file: &str, error: io::Error) -> OpenError {
    OpenError::io(format!("reading {file}"), error)
}

fn ambiguous(number: u64, one: &str, other: &str) -> OpenError {
    let text = format!(
        "{one} and {other} both say that they are segment {number}, and neither is called {}: move the wrong one out of \
         the directory",
        segment_name(number)
    );
    OpenError::io(
        "telling which file is which segment",
        io::Error::other(text),
    )
}
