//! Reading committed records: from any thread, by reads of the files alone, without the writer.
//!
//! The one idea: each run of records carries a checksum of its own, so a reader verifies exactly
//! what it returns. The log remembers where each reader stopped. So a reader that goes on finds its
//! place, and the rest of a verified run, without searching or computing a checksum again.

mod readers;
mod walk;
mod window;

use crate::catalog::Passage;
use crate::disk::Disk;
use crate::shared::Shared;
use crate::{Begin, Committed, Credit, Frames, Range, ReadError};
pub(crate) use readers::Readers;
use readers::{Hint, Place};
use walk::Walk;
use window::{Trouble, WINDOW};

/// How much to read at once for so much credit: with room for headers.
fn window_for(credit: usize) -> usize {
    credit
        .saturating_add(4 << 10)
        .clamp(*WINDOW.start(), *WINDOW.end())
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
        let found = self
            .catalog()
            .find(stream)
            .map(|(id, stream)| (id, stream.range(), stream.passage(from)));
        let Some((stream, range, passage)) = found else {
            return match from {
                0 => Ok(nothing),
                asked => Err(ReadError::Beyond { asked, next: 0 }),
            };
        };
        if from < range.first {
            return Err(ReadError::Gone {
                asked: from,
                first: range.first,
            });
        }
        if from > range.next {
            let next = range.next;
            return Err(ReadError::Beyond { asked: from, next });
        }
        if from == range.next {
            return Ok(nothing);
        }
        let end = match passage {
            Passage::Until(end) => end,
            Passage::Missing { next } => return Err(ReadError::Missing { asked: from, next }),
        };
        let mut hint = self.readers.hint(stream, from);
        loop {
            let was_hinted = hint.is_some();
            match self.collect(stream, from, end, credit.0, hint.take()) {
                Ok(read) => return Ok(read),
                Err(Trouble::Damaged(why)) => return Err(ReadError::Damaged(why)),
                Err(Trouble::Failed(why)) => return Err(ReadError::Failed(why)),
                // The place where a reader stopped is gone; where it wants to go on may not be.
                Err(Trouble::Gone) if was_hinted => {}
                Err(Trouble::Gone) => {
                    let first = self.first_of(stream);
                    return Err(ReadError::Gone { asked: from, first });
                }
            }
        }
    }

    fn collect(
        &self,
        stream: u32,
        from: u64,
        end: u64,
        credit: usize,
        hint: Option<Hint>,
    ) -> Result<Committed, Trouble> {
        let (place, held) = match hint {
            Some(hint) => (hint.place, hint.held),
            None => {
                let entry = self.catalog().entry(stream, from).ok_or(Trouble::Gone)?;
                (Place::new(entry), None)
            }
        };
        let mut walk = Walk::new(self, stream, place, window_for(credit))?;
        walk.held = held;
        let mut read = Committed {
            runs: Vec::new(),
            next: from,
        };
        let mut left = credit;
        while read.next < end && (left > 0 || read.runs.is_empty()) {
            let is_more = match self.next_frames(&mut walk, &mut read, left) {
                // The records before are whole; the next read reports the error.
                Err(_) if !read.runs.is_empty() => return Ok(read),
                found => found?,
            };
            if !is_more {
                break;
            }
            let taken = read.runs.last().map_or(0, |run| run.bytes.len());
            left = left.saturating_sub(taken);
            walk.look_ahead(window_for(left));
        }
        let (position, place, held) = (read.next, walk.place, walk.held);
        self.readers.remember(Hint {
            stream,
            position,
            place,
            held,
        });
        Ok(read)
    }

    /// Adds the frames of the next run, up to `left` bytes and at least one; whether there is room for more.
    fn next_frames(
        &self,
        walk: &mut Walk<'_, D>,
        read: &mut Committed,
        left: usize,
    ) -> Result<bool, Trouble> {
        let mut run = walk.find()?;
        while run.end() <= read.next {
            walk.verify(&run)?;
            walk.pass(&run);
            run = walk.find()?;
        }
        if run.first > read.next {
            let expected = format!("the run with position {}", read.next);
            return Err(walk.damaged(expected, format!("one that begins at {}", run.first)));
        }
        if !read.runs.is_empty() && walk.least(&run)? > left {
            // A length that was not written would end every read here.
            walk.verify(&run)?;
            return Ok(false);
        }
        let (bytes, count) = walk.take(&run, read.next, left)?;
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
        Ok(true)
    }

    pub(crate) fn locate(&self, stream: &str, begin: Begin) -> Result<u64, ReadError> {
        let range = self
            .catalog()
            .find(stream)
            .map_or(Range { first: 0, next: 0 }, |(_, stream)| stream.range());
        match begin {
            Begin::Position(asked) if asked > range.next => {
                let next = range.next;
                Err(ReadError::Beyond { asked, next })
            }
            Begin::Position(position) => Ok(position.max(range.first)),
            Begin::Tail => Ok(range.next),
            Begin::Timestamp(time_us) => self.locate_time(stream, time_us),
        }
    }

    /// The first position with a timestamp at or after this one.
    fn locate_time(&self, stream: &str, time_us: u64) -> Result<u64, ReadError> {
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
            Ok(position) => Ok(position.max(range.first)),
            Err(Trouble::Damaged(why)) => Err(ReadError::Damaged(why)),
            Err(Trouble::Failed(why)) => Err(ReadError::Failed(why)),
            Err(Trouble::Gone) => Ok(self.first_of(stream)),
        }
    }

    /// The oldest position of a stream; for a deleted stream, the maximum.
    fn first_of(&self, stream: u32) -> u64 {
        let catalog = self.catalog();
        let stream = catalog.streams.get(stream);
        stream.map_or(u64::MAX, |stream| stream.range().first)
    }

    fn search(&self, id: u32, range: Range, from: Place, time_us: u64) -> Result<u64, Trouble> {
        let mut walk = Walk::new(self, id, from, *WINDOW.start())?;
        loop {
            let run = walk.find()?;
            walk.verify(&run)?;
            if run.timestamp_us >= time_us {
                return Ok(run.first);
            }
            if run.end() >= range.next {
                return Ok(range.next);
            }
            walk.pass(&run);
        }
    }
}
