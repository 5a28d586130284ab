//! The queue between logging threads and stderr. The queue is bounded: lines that do not fit
//! because stderr is not read (a full pipe, a disk that stalls) are dropped and counted, and a line
//! says so once there is room.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines that may wait.
const QUEUED_MAX: usize = 1 << 20;
/// Time for which lines are gathered after a write: a flood of lines becomes a few large writes, each with one
/// wake-up. The first line of a warning or error is written at once, because it may be the last that the process
/// writes.
const GATHER: Duration = Duration::from_millis(50);
/// Bytes of gathered lines that are written without further waiting: a part of the queue's limit, so that
/// gathering never causes a drop.
const GATHERED_MAX: usize = QUEUED_MAX / 4;
/// Between two lines about lines that were dropped.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long the end waits until the queued lines are taken.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The numbers of written and of dropped lines so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Lines taken into the queue.
    pub(crate) lines: u64,
    /// Lines dropped because the queue was full.
    pub(crate) dropped: u64,
    /// Failed writes; the lines of these writes are lost.
    pub(crate) failed: u64,
}

/// The queue's end for logging threads. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Queue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Signalled when there is something to write, or a thread waits for the end of it.
    work: Condvar,
    /// All is written.
    done: Condvar,
    lines: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Whether the thread sleeps until it is woken.
    parked: bool,
    /// The thread has taken bytes that are not written yet.
    writing: bool,
    /// A thread waits: do not gather.
    hurry: bool,
    /// Among the bytes are a warning or an error.
    urgent: bool,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Starts the thread that writes. The thread ends with the process.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Queue> {
        Queue::gathering_for(GATHER, out)
    }

    fn gathering_for(time: Duration, out: impl Write + Send + 'static) -> io::Result<Queue> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        std::thread::Builder::new()
            .name("tidewire-stderr".into())
            .spawn(move || write_out(&theirs, time, out))?;
        Ok(Queue(shared))
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            lines: self.0.lines.load(Relaxed),
            dropped: self.0.dropped.load(Relaxed),
            failed: self.0.failed.load(Relaxed),
        }
    }

    /// Waits until all is written, but no longer than this.
    pub(super) fn flush(&self, most: Duration) {
        let until = Instant::now() + most;
        let mut waiting = self.0.waiting();
        while !waiting.bytes.is_empty() || waiting.writing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            waiting.hurry = true;
            self.0.work.notify_one();
            let woken = self.0.done.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn push(&self, line: &[u8], urgent: bool) {
        let mut waiting = self.0.waiting();
        if waiting.bytes.len() + line.len() > QUEUED_MAX {
            self.0.dropped.fetch_add(1, Relaxed);
            return;
        }
        waiting.bytes.extend_from_slice(line);
        let first = urgent && !waiting.urgent;
        waiting.urgent |= urgent;
        let (after, before) = (waiting.bytes.len(), waiting.bytes.len() - line.len());
        let is_much = before < GATHERED_MAX && after >= GATHERED_MAX;
        let wake = std::mem::take(&mut waiting.parked) || first || is_much;
        drop(waiting);
        self.0.lines.fetch_add(1, Relaxed);
        if wake {
            self.0.work.notify_one();
        }
    }
}

/// The writer of one line; a line comes in one call.
pub(crate) struct Line<'a> {
    queue: &'a Queue,
    urgent: bool,
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.push(line, self.urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        let (queue, urgent) = (self, false);
        Line { queue, urgent }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line<'a> {
        let (queue, urgent) = (self, *meta.level() <= Level::WARN);
        Line { queue, urgent }
    }
}

fn write_out(shared: &Shared, gather: Duration, mut out: impl Write) {
    let mut batch = Vec::new();
    let mut told = 0;
    let mut told_at: Option<Instant> = None;
    loop {
        let urgent = take(shared, &mut batch);
        let written = out.write_all(&batch).and_then(|()| out.flush());
        if written.is_err() {
            // The error cannot be reported anywhere.
            shared.failed.fetch_add(1, Relaxed);
        }
        batch.clear();
        if batch.capacity() > QUEUED_MAX / 4 {
            batch = Vec::new();
        }
        let dropped = shared.dropped.load(Relaxed);
        if dropped > told && told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            tracing::warn!(
                dropped = dropped - told,
                "lines were not logged: stderr takes them too slowly"
            );
            (told, told_at) = (dropped, Some(Instant::now()));
        }
        let mut waiting = shared.waiting();
        waiting.writing = false;
        if waiting.bytes.is_empty() {
            waiting.hurry = false;
            shared.done.notify_all();
        }
        // A flood of warnings is gathered, too.
        let go_on = |waiting: &mut Waiting| {
            let is_much = waiting.bytes.len() >= GATHERED_MAX;
            !waiting.hurry && !is_much && (urgent || !waiting.urgent)
        };
        let woken = shared.work.wait_timeout_while(waiting, gather, go_on);
        drop(woken.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Waits for lines and takes all there are; whether a warning or an error is among them.
fn take(shared: &Shared, batch: &mut Vec<u8>) -> bool {
    let mut waiting = shared.waiting();
    while waiting.bytes.is_empty() {
        waiting.parked = true;
        let woken = shared.work.wait(waiting);
        waiting = woken.unwrap_or_else(PoisonError::into_inner);
    }
    waiting.parked = false;
    waiting.writing = true;
    std::mem::swap(&mut waiting.bytes, batch);
    std::mem::take(&mut waiting.urgent)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A writer that blocks until it is released, and then passes on everything that was written to
    /// it.
    struct Gate {
        open: Receiver<()>,
        taken: Sender<Vec<u8>>,
        is_open: bool,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.is_open {
                self.is_open = true;
                let _ = self.open.recv();
            }
            let _ = self.taken.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gated() -> (Queue, Sender<()>, Receiver<Vec<u8>>) {
        let (opener, open) = channel();
        let (taken, lines) = channel();
        let is_open = false;
        let queue = Queue::start(Gate {
            open,
            taken,
            is_open,
        });
        (queue.unwrap(), opener, lines)
    }

    #[test]
    fn logging_does_not_wait_and_lost_lines_are_counted() {
        let (queue, opener, lines) = gated();
        let line = [b'x'; 1023];
        // No byte is taken, and this ends all the same.
        for _ in 0..4096 {
            queue.push(&line, false);
        }
        let counts = queue.counts();
        assert_eq!(counts.lines + counts.dropped, 4096);
        // At most what the queue holds, and once more what the thread has taken.
        let most = 2 * (QUEUED_MAX / line.len()) as u64;
        assert!(counts.lines <= most, "{counts:?}");
        assert!(counts.dropped > 0, "{counts:?}");
        queue.flush(Duration::from_millis(1));
        opener.send(()).unwrap();
        queue.flush(Duration::from_secs(60));
        let taken: usize = lines.try_iter().map(|bytes| bytes.len()).sum();
        assert_eq!(taken, counts.lines as usize * line.len());
    }

    #[test]
    fn all_that_was_logged_is_written_in_order_at_the_end() {
        let (queue, opener, lines) = gated();
        opener.send(()).unwrap();
        let mut expected = Vec::new();
        for i in 0..10_000 {
            let line = format!("{i}\n");
            queue.push(line.as_bytes(), false);
            expected.extend_from_slice(line.as_bytes());
        }
        queue.flush(Duration::from_secs(60));
        let taken: Vec<u8> = lines.try_iter().flatten().collect();
        assert!(taken == expected);
    }

    /// The line is written without waiting for the time to gather, which is long here.
    #[test]
    fn a_warning_is_written_at_once_with_what_was_gathered() {
        let (taken, lines) = channel();
        let open = channel().1;
        let out = Gate {
            open,
            taken,
            is_open: true,
        };
        let queue = Queue::gathering_for(Duration::from_secs(3600), out).unwrap();
        let next = || lines.recv_timeout(Duration::from_secs(60)).unwrap();
        queue.push(b"1", false);
        assert_eq!(next(), b"1", "nothing was written just now");
        queue.push(b"2", false);
        queue.push(b"3", true);
        assert_eq!(next(), b"23");
        queue.push(b"4", true);
        queue.flush(Duration::from_secs(60));
        assert_eq!(next(), b"4");
    }

    #[test]
    fn what_is_much_is_not_gathered_further() {
        let (taken, lines) = channel();
        let open = channel().1;
        let out = Gate {
            open,
            taken,
            is_open: true,
        };
        let queue = Queue::gathering_for(Duration::from_secs(3600), out).unwrap();
        let line = vec![b'x'; GATHERED_MAX / 8];
        // The rest of the lines is written too, however few the first write has taken.
        for _ in 0..16 {
            queue.push(&line, false);
        }
        let mut got = 0;
        while got < GATHERED_MAX {
            got += lines.recv_timeout(Duration::from_secs(60)).unwrap().len();
        }
    }

    #[test]
    fn what_cannot_be_written_ends_nothing() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let queue = Queue::start(Full).unwrap();
        for _ in 0..3 {
            queue.push(b"x\n", false);
            queue.flush(Duration::from_secs(60));
        }
        assert!(queue.counts().failed >= 1);
        assert_eq!(queue.counts().lines, 3);
    }
}
