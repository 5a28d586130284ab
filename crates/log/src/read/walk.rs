//! Going over the runs of one stream, from a place in the log on.

use super::readers::{Found, Held, Place};
use super::window::{Trouble, Window};
use crate::Compression;
use crate::disk::Disk;
use crate::format::{
    BATCH_HEADER, BatchHeader, FRAME_HEADER, Fault, RECORDS_HEADER, RUN_PREFIX, Records, u32_at,
};
use crate::pack::{UNPACKED_MAX, unpack};
use crate::shared::Shared;

/// Goes over the runs of a stream.
pub(super) struct Walk<'a, D: Disk> {
    window: Window<'a, D>,
    stream: u32,
    pub(super) place: Place,
    /// The run at the place, if it was returned in part.
    pub(super) held: Option<Held>,
}

impl<'a, D: Disk> Walk<'a, D> {
    pub(super) fn new(
        shared: &'a Shared<D>,
        stream: u32,
        place: Place,
        window: usize,
    ) -> Result<Self, Trouble> {
        let window = Window::open(shared, place.segment, window)?;
        Ok(Walk {
            window,
            stream,
            place,
            held: None,
        })
    }

    /// Reads this much at once from here on.
    pub(super) fn look_ahead(&mut self, window: usize) {
        self.window.size = window;
    }

    /// The run at the place, or the first one of the stream after it; the place moves there.
    pub(super) fn find(&mut self) -> Result<Found, Trouble> {
        if let Some(held) = &self.held {
            return Ok(held.run);
        }
        loop {
            let Place {
                offset, batch_end, ..
            } = self.place;
            if offset + RUN_PREFIX as u64 > batch_end {
                self.next_batch()?;
                continue;
            }
            let prefix = self.window.at(offset, RUN_PREFIX)?;
            let length = RUN_PREFIX as u64 + u64::from(u32_at(prefix, 4));
            if offset + length > batch_end {
                let found = format!("a run of {length} bytes");
                let fault = Fault::new(offset, format!("a run up to {batch_end} at most"), found);
                return Err(self.window.damaged(fault));
            }
            if Records::is(prefix) && length >= RECORDS_HEADER as u64 {
                let header = self.window.at(offset, RECORDS_HEADER)?;
                if let Some((run, frames)) = Records::decode(header)
                    && run.stream == self.stream
                {
                    return Ok(Found {
                        producer: run.producer,
                        timestamp_us: run.timestamp_us,
                        first: run.first,
                        count: run.count,
                        compression: run.compression,
                        header: header.try_into().expect("a whole header"),
                        frames: (offset + RECORDS_HEADER as u64, frames),
                    });
                }
            }
            self.place.offset += length;
        }
    }

    /// Moves past the run of [`Walk::find`].
    pub(super) fn pass(&mut self, run: &Found) {
        self.place.offset = run.frames.0 + run.frames.1 as u64;
        self.held = None;
    }

    fn next_batch(&mut self) -> Result<(), Trouble> {
        let offset = self.place.batch_end;
        if offset < self.window.end {
            let segment = self.window.segment;
            // The last one may be as short as its header, which was shorter in version 1.
            let left = usize::try_from(self.window.end - offset).unwrap_or(usize::MAX);
            let header = self.window.at(offset, BATCH_HEADER.min(left))?;
            let header = BatchHeader::decode(header, offset, segment);
            let header = header.map_err(|fault| self.window.damaged(fault))?;
            self.place.batch_end = offset + u64::from(header.length);
            self.place.offset = offset + header.header as u64;
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

    /// The frames of the run of [`Walk::find`], verified.
    fn frames(&mut self, run: &Found) -> Result<&[u8], Trouble> {
        let (start, length) = run.frames;
        let (records, _) = Records::decode(&run.header).expect("it was decoded before");
        if let Err(fault) = records.verify(self.window.at(start, length)?, self.place.offset) {
            return Err(self.window.damaged(fault));
        }
        self.window.at(start, length)
    }

    /// Verifies the run of [`Walk::find`].
    pub(super) fn verify(&mut self, run: &Found) -> Result<(), Trouble> {
        self.frames(run).map(|_| ())
    }

    /// Frames of the run of [`Walk::find`], from `position` on, up to `credit` bytes and at least
    /// one, with their number. When the last one was taken the walk moves past the run.
    pub(super) fn take(
        &mut self,
        run: &Found,
        position: u64,
        credit: usize,
    ) -> Result<(Vec<u8>, u32), Trouble> {
        let held = match self.held.take() {
            Some(held) => held,
            None => {
                let before = (position - run.first) as u32;
                if run.compression != Compression::None {
                    let frames = self.unpacked(run)?;
                    if before == 0 && frames.len() <= credit {
                        self.pass(run);
                        return Ok((frames, run.count));
                    }
                    return self.take_from(self.held_from(run, frames, before)?, credit);
                }
                let frames = self.frames(run)?;
                if before == 0 && frames.len() <= credit {
                    let bytes = frames.to_vec();
                    self.pass(run);
                    return Ok((bytes, run.count));
                }
                let frames = frames.to_vec();
                self.held_from(run, frames, before)?
            }
        };
        self.take_from(held, credit)
    }

    /// A run that was read, without its first frames.
    fn held_from(&self, run: &Found, frames: Vec<u8>, before: u32) -> Result<Held, Trouble> {
        let passed = cut(&frames, before, usize::MAX);
        let (passed, _) = passed.ok_or_else(|| self.no_frames(run))?;
        Ok(Held {
            run: *run,
            frames,
            done: (passed, before),
        })
    }

    /// The frames of a compressed run, verified, as they came.
    fn unpacked(&mut self, run: &Found) -> Result<Vec<u8>, Trouble> {
        let by = run.compression;
        let frames = unpack(by, self.frames(run)?, UNPACKED_MAX);
        frames.ok_or_else(|| {
            let expected = format!("records compressed by {}", by.name());
            self.damaged(expected, "something else".into())
        })
    }

    fn take_from(&mut self, mut held: Held, credit: usize) -> Result<(Vec<u8>, u32), Trouble> {
        let run = held.run;
        let (bytes_done, frames_done) = held.done;
        let rest = &held.frames[bytes_done..];
        let taken = cut(rest, run.count - frames_done, credit);
        let (bytes, count) = taken.ok_or_else(|| self.no_frames(&run))?;
        let taken = rest[..bytes].to_vec();
        held.done = (bytes_done + bytes, frames_done + count);
        if held.done.1 == run.count {
            self.pass(&run);
        } else {
            self.held = Some(held);
        }
        Ok((taken, count))
    }

    /// The length of the first frame of the run of [`Walk::find`], whose first record is the next
    /// one to be taken.
    pub(super) fn least(&mut self, run: &Found) -> Result<usize, Trouble> {
        if self.held.is_none() && run.compression != Compression::None {
            let frames = self.unpacked(run)?;
            self.held = Some(self.held_from(run, frames, 0)?);
        }
        if let Some(held) = &self.held {
            let first = cut(&held.frames[held.done.0..], 1, 0);
            return first
                .map(|(bytes, _)| bytes)
                .ok_or_else(|| self.no_frames(run));
        }
        let (start, length) = run.frames;
        if length < FRAME_HEADER {
            return Err(self.no_frames(run));
        }
        let size = u32_at(self.window.at(start, FRAME_HEADER)?, 8);
        Ok(FRAME_HEADER + size as usize)
    }

    pub(super) fn damaged(&self, expected: String, found: String) -> Trouble {
        self.window
            .damaged(Fault::new(self.place.offset, expected, found))
    }

    fn no_frames(&self, run: &Found) -> Trouble {
        let expected = format!("{} whole frames in the run", run.count);
        self.damaged(expected, "lengths that do not fit".into())
    }
}

/// The length of the first `count` whole frames and how many these are: fewer if they exceed
/// `credit` bytes, but at least one. `None` if the frames are not complete.
fn cut(frames: &[u8], count: u32, credit: usize) -> Option<(usize, u32)> {
    let mut end = 0;
    for taken in 0..count {
        let size = frames.get(end + 8..end + FRAME_HEADER)?;
        let next = end.checked_add(FRAME_HEADER + u32_at(size, 0) as usize)?;
        if next > frames.len() {
            return None;
        }
        if next > credit && taken > 0 {
            return Some((end, taken));
        }
        end = next;
    }
    Some((end, count))
}
