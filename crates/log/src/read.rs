//! Reading committed records: from any thread, by reads of the files alone, without the writer.
//!
//! The one idea: each run of records carries the checksum of its frames, so a reader verifies
//! exactly what it returns. Where a reader stopped is remembered, so one that goes on finds its
//! place, and a run that it has verified, without searching or summing again.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::catalog::Entry;
use crate::disk::{Disk, DiskFile};
use crate::format::{
    BATCH_HEADER, BatchHeader, FRAME_HEADER, Fault, RECORDS_HEADER, RUN_PREFIX, Records,
    segment_name, u32_at,
};
use crate::shared::Shared;
use crate::{Committed, Credit, Frames, Range, ReadError};

/// How much is read at once, at least and at most, unless a single run is longer.
const WINDOW: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 20;
/// Files kept open for readers.
const FILES_MAX: usize = 32;
/// Places remembered.
const HINTS_MAX: usize = 256;
/// Buffers kept for the next reader.
const BUFFERS_MAX: usize = 8;

/// What readers share.
#[derive(Debug)]
pub(crate) struct Readers<F> {
    files: Mutex<VecDeque<(u64, F)>>,
    hints: Mutex<VecDeque<Hint>>,
    buffers: Mutex<Vec<Vec<u8>>>,
}

/// Where the next read of a stream may go on.
#[derive(Clone, Copy, Debug)]
struct Hint {
    stream: u32,
    position: u64,
    place: Place,
}

/// A run of a segment, and a frame in it.
#[derive(Clone, Copy, Debug)]
struct Place {
    segment: u64,
    /// Of a run, or of a batch if it is `batch_end`.
    offset: u64,
    batch_end: u64,
    /// Bytes and frames of that run that were returned, and therefore verified, before.
    skip: (u64, u32),
}

impl Place {
    fn new((segment, entry): (u64, Entry)) -> Place {
        Place {
            segment,
            offset: entry.offset,
            batch_end: entry.batch_end,
            skip: (0, 0),
        }
    }
}

impl<F> Readers<F> {
    pub(crate) fn new() -> Readers<F> {
        Readers {
            files: Mutex::default(),
            hints: Mutex::default(),
            buffers: Mutex::default(),
        }
    }

    fn hint(&self, stream: u32, position: u64) -> Option<Place> {
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |hint: &Hint| hint.stream == stream && hint.position == position;
        let index = hints.iter().rposition(is_it)?;
        hints.remove(index).map(|hint| hint.place)
    }

    fn remember(&self, hint: Hint) {
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        if hints.len() == HINTS_MAX {
            hints.pop_front();
        }
        hints.push_back(hint);
    }
}

/// A piece of a segment in memory.
struct Window<'a, D: Disk> {
    shared: &'a Shared<D>,
    segment: u64,
    file: D::File,
    /// Where the committed part of the file ends.
    end: u64,
    base: u64,
    bytes: Vec<u8>,
    size: usize,
}

/// Why a window cannot be had.
enum Trouble {
    Gone,
    Damaged(Arc<str>),
}

impl<'a, D: Disk> Window<'a, D> {
    fn open(shared: &'a Shared<D>, segment: u64, size: usize) -> Result<Window<'a, D>, Trouble> {
        let end = match shared.catalog().segments.get(&segment) {
            Some(segment) => segment.used,
            None => return Err(Trouble::Gone),
        };
        let mut files = shared
            .readers
            .files
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let file = match files.iter().position(|(number, _)| *number == segment) {
            Some(index) => files[index].1.clone(),
            None => {
                let name = segment_name(segment);
                let file = shared
                    .disk
                    .open(&name)
                    .map_err(|error| match error.kind() {
                        io::ErrorKind::NotFound => Trouble::Gone,
                        _ => Trouble::Damaged(format!("{name}: cannot be opened: {error}").into()),
                    })?;
                if files.len() == FILES_MAX {
                    files.pop_front();
                }
                files.push_back((segment, file.clone()));
                file
            }
        };
        drop(files);
        let mut buffers = shared
            .readers
            .buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut bytes = buffers.pop().unwrap_or_default();
        bytes.clear();
        Ok(Window {
            shared,
            segment,
            file,
            end,
            base: 0,
            bytes,
            size,
        })
    }

    /// `length` bytes at `offset`.
    fn at(&mut self, offset: u64, length: usize) -> Result<&[u8], Trouble> {
        let have = self.base + self.bytes.len() as u64;
        if offset < self.base || offset + length as u64 > have {
            let left = self.end.saturating_sub(offset);
            let want = length
                .max(self.size)
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            if want < length {
                let found = format!("the end of what was written, at {}", self.end);
                return Err(self.damaged(Fault::new(offset, format!("{length} bytes"), found)));
            }
            self.bytes.resize(want, 0);
            self.base = offset;
            let count = self
                .file
                .read_at(&mut self.bytes, offset)
                .map_err(|error| {
                    let found = format!("an error of the system: {error}");
                    self.damaged(Fault::new(offset, format!("{length} bytes"), found))
                })?;
            self.bytes.truncate(count);
            if count < length {
                let found = format!("the end of the file after {count}");
                return Err(self.damaged(Fault::new(offset, format!("{length} bytes"), found)));
            }
        }
        let from = (offset - self.base) as usize;
        Ok(&self.bytes[from..from + length])
    }

    fn damaged(&self, fault: Fault) -> Trouble {
        let name = segment_name(self.segment);
        let Fault {
            offset,
            expected,
            found,
        } = fault;
        let text = format!("{name}: at byte {offset}: expected {expected}, found {found}");
        Trouble::Damaged(text.into())
    }
}

impl<D: Disk> Drop for Window<'_, D> {
    fn drop(&mut self) {
        let readers = &self.shared.readers;
        let mut buffers = readers
            .buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if buffers.len() < BUFFERS_MAX && self.bytes.capacity() <= 2 * WINDOW.end() {
            buffers.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// A header of a run of records, without its frames.
struct Found {
    producer: u32,
    timestamp_us: u64,
    first: u64,
    count: u32,
    frames_crc: u32,
    /// Where the frames begin, and their length.
    frames: (u64, usize),
}

/// Goes over the runs of a stream from a place on.
struct Walk<'a, D: Disk> {
    window: Window<'a, D>,
    stream: u32,
    place: Place,
}

impl<'a, D: Disk> Walk<'a, D> {
    fn new(shared: &'a Shared<D>, stream: u32, place: Place, size: usize) -> Result<Self, Trouble> {
        Ok(Walk {
            window: Window::open(shared, place.segment, size)?,
            stream,
            place,
        })
    }

    /// The run at the place, or the first one of the stream after it; the place moves there.
    fn find(&mut self) -> Result<Found, Trouble> {
        loop {
            let Place {
                offset, batch_end, ..
            } = self.place;
            if offset + RUN_PREFIX as u64 > batch_end {
                self.next_batch()?;
                continue;
            }
            let prefix = self.window.at(offset, RUN_PREFIX)?;
            let (kind, length) = (prefix[0], RUN_PREFIX as u64 + u64::from(u32_at(prefix, 4)));
            if offset + length > batch_end {
                let found = format!("a run of {length} bytes");
                let fault = Fault::new(offset, format!("a run up to {batch_end} at most"), found);
                return Err(self.window.damaged(fault));
            }
            if kind == 1 && length >= RECORDS_HEADER as u64 {
                let header = self.window.at(offset, RECORDS_HEADER)?;
                if let Some((run, frames)) = Records::decode(header)
                    && run.stream == self.stream
                {
                    return Ok(Found {
                        producer: run.producer,
                        timestamp_us: run.timestamp_us,
                        first: run.first,
                        count: run.count,
                        frames_crc: run.frames_crc,
                        frames: (offset + RECORDS_HEADER as u64, frames),
                    });
                }
            }
            self.place.offset += length;
            self.place.skip = (0, 0);
        }
    }

    /// Moves past the run of [`Walk::find`].
    fn pass(&mut self, run: &Found) {
        self.place.offset = run.frames.0 + run.frames.1 as u64;
        self.place.skip = (0, 0);
    }

    fn next_batch(&mut self) -> Result<(), Trouble> {
        let offset = self.place.batch_end;
        self.place.skip = (0, 0);
        if offset < self.window.end {
            let segment = self.window.segment;
            let header = self.window.at(offset, BATCH_HEADER)?;
            let header = BatchHeader::decode(header, offset, segment);
            let header = header.map_err(|fault| self.window.damaged(fault))?;
            self.place.batch_end = offset + u64::from(header.length);
            self.place.offset = offset + BATCH_HEADER as u64;
            return Ok(());
        }
        let shared = self.window.shared;
        let next = shared
            .catalog()
            .entry_after(self.stream, self.place.segment);
        let Some(next) = next else {
            let fault = Fault::new(offset, "more records of the stream", "the end of the log");
            return Err(self.window.damaged(fault));
        };
        self.place = Place::new(next);
        self.window = Window::open(shared, self.place.segment, self.window.size)?;
        Ok(())
    }

    /// Frames of a run, after what the place says to skip: those from `position` on, up to
    /// `credit`, at least one.
    fn take(
        &mut self,
        run: &Found,
        position: u64,
        credit: usize,
    ) -> Result<(Vec<u8>, u32), Trouble> {
        let (start, length) = run.frames;
        if self.place.skip.1 == 0 {
            let frames = self.window.at(start, length)?;
            let computed = crc32c::crc32c(frames);
            if computed != run.frames_crc {
                let expected = format!("a run of records with checksum {:08x}", run.frames_crc);
                let found = format!("checksum {computed:08x}");
                return Err(self
                    .window
                    .damaged(Fault::new(self.place.offset, expected, found)));
            }
            if position == run.first && length <= credit {
                let bytes = frames.to_vec();
                return Ok((bytes, run.count));
            }
            let before = (position - run.first) as u32;
            let Some((bytes, _)) = cut(frames, before, usize::MAX) else {
                return Err(self.no_frames(run));
            };
            self.place.skip = (bytes as u64, before);
        }
        let (skipped, frames_skipped) = self.place.skip;
        let left = run.count - frames_skipped;
        let rest = length - skipped as usize;
        let mut want = rest.min(credit.max(*WINDOW.start()));
        loop {
            let frames = self.window.at(start + skipped, want)?;
            match cut(frames, left, credit) {
                Some((bytes, count)) if count > 0 => {
                    let taken = frames[..bytes].to_vec();
                    self.place.skip = (skipped + bytes as u64, frames_skipped + count);
                    return Ok((taken, count));
                }
                // The first frame is longer than what is in sight.
                _ if want < rest => want = rest,
                _ => return Err(self.no_frames(run)),
            }
        }
    }

    fn no_frames(&self, run: &Found) -> Trouble {
        let expected = format!("{} whole frames in the run", run.count);
        let fault = Fault::new(self.place.offset, expected, "lengths that do not fit");
        self.window.damaged(fault)
    }
}

/// The length of the first `count` whole frames, fewer if they exceed `credit` bytes or `frames`,
/// but at least one if it is whole. `None` if `credit` is no limit and they are not all there.
fn cut(frames: &[u8], count: u32, credit: usize) -> Option<(usize, u32)> {
    let mut end = 0;
    for taken in 0..count {
        let next = frames
            .get(end..)
            .filter(|rest| rest.len() >= FRAME_HEADER)
            .and_then(|rest| end.checked_add(FRAME_HEADER + u32_at(rest, 8) as usize))
            .filter(|&next| next <= frames.len());
        match next {
            Some(next) if next <= credit || taken == 0 => end = next,
            None if credit == usize::MAX => return None,
            _ => return Some((end, taken)),
        }
    }
    Some((end, count))
}

impl<D: Disk> Shared<D> {
    pub(crate) fn read(
        &self,
        stream: &str,
        from: u64,
        credit: Credit,
    ) -> Result<Committed, ReadError> {
        let nothing = Committed {
            runs: Vec::new(),
            next: from,
        };
        let (stream, range) = match self.catalog().find(stream) {
            Some((id, stream)) => (id, stream.range()),
            None => return Ok(nothing),
        };
        if from < range.first {
            return Err(ReadError::Gone {
                asked: from,
                first: range.first,
            });
        }
        if from >= range.next {
            return Ok(nothing);
        }
        match self.collect(stream, from, range.next, credit.0) {
            Ok(read) => Ok(read),
            Err(Trouble::Damaged(why)) => Err(ReadError::Damaged(why)),
            Err(Trouble::Gone) => {
                let first = self.catalog().streams[stream as usize].range().first;
                Err(ReadError::Gone { asked: from, first })
            }
        }
    }

    fn collect(
        &self,
        stream: u32,
        from: u64,
        end: u64,
        credit: usize,
    ) -> Result<Committed, Trouble> {
        let hint = self.readers.hint(stream, from);
        let place = match hint {
            Some(place) => place,
            None => Place::new(self.catalog().entry(stream, from).ok_or(Trouble::Gone)?),
        };
        let size = credit
            .saturating_add(4 << 10)
            .clamp(*WINDOW.start(), *WINDOW.end());
        let mut walk = Walk::new(self, stream, place, size)?;
        let mut read = Committed {
            runs: Vec::new(),
            next: from,
        };
        let mut left = credit;
        while read.next < end && (left > 0 || read.runs.is_empty()) {
            let run = walk.find()?;
            let run_end = run.first + u64::from(run.count);
            if run_end <= read.next {
                walk.pass(&run);
                continue;
            }
            let at = run.first + u64::from(walk.place.skip.1);
            if at > read.next {
                let expected = format!("the run with position {}", read.next);
                let found = format!("one that begins at {}", run.first);
                return Err(walk
                    .window
                    .damaged(Fault::new(walk.place.offset, expected, found)));
            }
            let (bytes, count) = walk.take(&run, read.next, left)?;
            if bytes.len() > left && !read.runs.is_empty() {
                // One more record would be more than asked for; the next read begins with it.
                let skip = walk.place.skip;
                walk.place.skip = (skip.0 - bytes.len() as u64, skip.1 - count);
                break;
            }
            left = left.saturating_sub(bytes.len());
            let producer = self.producer_name(run.producer);
            let first = read.next;
            let timestamp_us = run.timestamp_us;
            read.next += u64::from(count);
            read.runs.push(Frames {
                first,
                count,
                timestamp_us,
                producer,
                bytes,
            });
            if read.next == run_end {
                walk.pass(&run);
            }
        }
        self.readers.remember(Hint {
            stream,
            position: read.next,
            place: walk.place,
        });
        Ok(read)
    }

    /// The first position with a timestamp at or after this one.
    pub(crate) fn locate_time(&self, stream: &str, time_us: u64) -> Result<u64, ReadError> {
        let (stream, range, entry) = {
            let catalog = self.catalog();
            let Some((id, stream)) = catalog.find(stream) else {
                return Ok(0);
            };
            (id, stream.range(), catalog.before_time(id, time_us))
        };
        let Some(entry) = entry else {
            return Ok(range.next);
        };
        match self.search(stream, range, Place::new(entry), time_us) {
            Ok(position) => Ok(position),
            Err(Trouble::Damaged(why)) => Err(ReadError::Damaged(why)),
            Err(Trouble::Gone) => Ok(self.catalog().streams[stream as usize].range().first),
        }
    }

    fn search(&self, id: u32, range: Range, from: Place, time_us: u64) -> Result<u64, Trouble> {
        let mut walk = Walk::new(self, id, from, *WINDOW.start())?;
        loop {
            let run = walk.find()?;
            if run.timestamp_us >= time_us {
                return Ok(run.first);
            }
            if run.first + u64::from(run.count) >= range.next {
                return Ok(range.next);
            }
            walk.pass(&run);
        }
    }
}
