//! Standard output, and how much of it the reader has taken: a pipe holds bytes that its reader has
//! not read, and a cursor may not move past them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The output to which records go. Remembers which records end where, until they are taken.
pub(super) struct Output {
    out: BufWriter<Counted>,
    /// Bytes of all records so far.
    written: u64,
    /// For records that may not be taken yet: the number of bytes written up to each one's end, and
    /// the position after it.
    ends: VecDeque<(u64, u64)>,
    /// The position after the last record that was taken.
    taken: Option<u64>,
    /// Whether ends are remembered.
    tracks: bool,
    /// How many records were missing.
    pub(super) lost: u64,
}

/// Counts the bytes that the operating system has taken.
struct Counted {
    file: File,
    written: u64,
    is_pipe: bool,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Counted {
    /// Bytes that were taken, as far as can be known.
    fn taken(&self) -> u64 {
        self.written.saturating_sub(self.unread())
    }

    /// Bytes that a pipe still holds; 0 for a file, which has everything that was written.
    fn unread(&self) -> u64 {
        match self.is_pipe {
            true => rustix::io::ioctl_fionread(&self.file).unwrap_or(self.written),
            false => 0,
        }
    }

    /// Waits a moment until more was taken; returns whether the reader is still there.
    fn is_read(&self) -> bool {
        let mut fds = [PollFd::new(&self.file, PollFlags::empty())];
        let moment = Timespec::try_from(MOMENT).ok();
        let _ = poll(&mut fds, moment.as_ref());
        !fds[0].revents().contains(PollFlags::ERR)
    }
}

/// How often the thread checks whether stdout has taken the rest.
const MOMENT: Duration = Duration::from_millis(5);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Output {
    /// Standard output; if `tracks` is set, notes how much of it is taken.
    pub(super) fn stdout(tracks: bool) -> io::Result<Output> {
        // Past the standard library's own buffer, which would hold the last line back.
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let is_pipe = file.metadata()?.file_type().is_fifo();
        Ok(Output {
            out: BufWriter::with_capacity(
                64 << 10,
                Counted {
                    file,
                    written: 0,
                    is_pipe,
                },
            ),
            written: 0,
            ends: VecDeque::new(),
            taken: None,
            tracks,
            lost: 0,
        })
    }

    /// The record before position `next` is written whole.
    pub(super) fn ended(&mut self, next: u64) {
        if self.tracks {
            // A pipe holds a bounded number of bytes, and a record has at least one; of a file all
            // was taken.
            if self.ends.len() >= ENDS_MAX {
                self.look();
            }
            self.ends.push_back((self.written, next));
        }
    }

    /// The position after the last record that was taken; `None` if none was.
    pub(super) fn taken(&mut self) -> Option<u64> {
        self.look();
        self.taken
    }

    fn look(&mut self) {
        let taken = self.out.get_ref().taken();
        while let Some((end, next)) = self.ends.front().copied()
            && end <= taken
        {
            self.taken = Some(next);
            self.ends.pop_front();
        }
    }

    /// Waits until the reader has taken all output, or has gone.
    pub(super) fn drained(&mut self) {
        let out = |output: &Output| output.out.get_ref().unread() > 0;
        while out(self) && self.out.get_ref().is_read() {}
        self.look();
    }
}

/// Records that may be remembered before it is looked which were taken.
const ENDS_MAX: usize = 1 << 16;
