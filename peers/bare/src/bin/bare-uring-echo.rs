//! Echo, one thread, one io_uring loop written by hand: the yardstick for the uring engine.
//!
//! One multishot accept and one multishot receive for each connection stay armed; the kernel puts what
//! arrives into a buffer of the provided ring, the reply is sent from that same buffer, and the buffer goes
//! back when the send completes. A socket has at most one send in flight, so replies keep their order.
//! Sends carry MSG_WAITALL: the kernel itself goes on until everything is sent.
//!
//! There is no limit on what one connection may hold: a peer that never reads can take every buffer.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};

use bare::Args;
use io_uring::types::{BufRingEntry, Fd};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

const BUFFER_GROUP: u16 = 0;
const PAGE_BYTES: usize = 4096;

const ACCEPT: u64 = 0;
const RECV: u64 = 1 << 32;
const SEND: u64 = 2 << 32;

fn main() -> std::io::Result<()> {
    let args = Args::parse(
        "bare-uring-echo [--addr HOST:PORT] [--cpu N] [--buffer BYTES] [--buffers N] [--entries N]",
    );
    args.pin();
    let entries: u32 = args.value("--entries").unwrap_or(1024);
    let mut ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_clamp()
        .setup_cqsize(4 * entries)
        .build(entries)?;
    let (mut submitter, queue, completions) = ring.split();
    submitter.register_ring_fd()?;
    let buffer_bytes = args.value("--buffer").unwrap_or(64 * 1024);
    let buffers = args
        .value::<u16>("--buffers")
        .unwrap_or(256)
        .clamp(1, 1 << 15)
        .next_power_of_two();
    let pool = Pool::register(&submitter, buffers, buffer_bytes)?;
    Loop {
        submitter,
        queue,
        listener: args.listen(),
        pool,
        conns: Vec::new(),
        starved: VecDeque::new(),
    }
    .run(completions)
}

/// A stretch of a provided buffer that is to be sent.
#[derive(Clone, Copy)]
struct Chunk {
    buffer: u16,
    from: u32,
    to: u32,
}

struct Conn {
    socket: OwnedFd,
    /// A receive is armed, or waits in `starved` to be.
    receiving: bool,
    /// At the front the chunk whose send is in flight.
    chunks: VecDeque<Chunk>,
}

struct Loop<'r> {
    submitter: Submitter<'r>,
    queue: SubmissionQueue<'r>,
    listener: TcpListener,
    pool: Pool,
    /// Indexed by descriptor, which also names a connection in `user_data`. A descriptor is closed only
    /// after its last completion, so none is ever mistaken for its successor.
    conns: Vec<Option<Conn>>,
    /// Connections whose receive ended because there was no buffer.
    starved: VecDeque<RawFd>,
}

impl Loop<'_> {
    fn run(mut self, mut completions: CompletionQueue<'_>) -> std::io::Result<()> {
        self.arm_accept();
        loop {
            self.pool.publish();
            self.queue.sync();
            match self.submitter.submit_and_wait(1) {
                Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
                _ => self.queue.sync(),
            }
            completions.sync();
            for completion in &mut completions {
                let fd = completion.user_data() as u32 as RawFd;
                match completion.user_data() & !u64::from(u32::MAX) {
                    ACCEPT => self.accepted(&completion)?,
                    RECV => self.received(fd, &completion),
                    _ => self.sent(fd, completion.result()),
                }
            }
            completions.sync();
            self.feed_starved();
        }
    }

    fn accepted(&mut self, completion: &cqueue::Entry) -> std::io::Result<()> {
        let result = completion.result();
        if result >= 0 {
            self.open(result);
        } else {
            let e = std::io::Error::from_raw_os_error(-result);
            if !matches!(
                e.kind(),
                ErrorKind::ConnectionAborted | ErrorKind::Interrupted | ErrorKind::WouldBlock
            ) {
                return Err(e);
            }
        }
        if !cqueue::more(completion.flags()) {
            self.arm_accept();
        }
        Ok(())
    }

    fn open(&mut self, fd: RawFd) {
        // SAFETY: the accept has just made this descriptor and no other code knows of it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        if fd as usize >= self.conns.len() {
            self.conns.resize_with(fd as usize + 1, || None);
        }
        self.conns[fd as usize] = Some(Conn {
            socket,
            receiving: true,
            chunks: VecDeque::new(),
        });
        self.arm_receive(fd);
    }

    fn received(&mut self, fd: RawFd, completion: &cqueue::Entry) {
        let conn = self.conns[fd as usize]
            .as_mut()
            .expect("open until its last completion");
        let result = completion.result();
        let more = cqueue::more(completion.flags());
        if let Some(buffer) = cqueue::buffer_select(completion.flags()) {
            self.pool.lent += 1;
            if result > 0 {
                let chunk = Chunk {
                    buffer,
                    from: 0,
                    to: result as u32,
                };
                conn.chunks.push_back(chunk);
                if conn.chunks.len() == 1 {
                    self.send(fd, chunk);
                }
            } else {
                self.pool.give_back(buffer);
            }
        }
        if more {
            return;
        }
        if result > 0 {
            self.arm_receive(fd);
        } else if result == -Errno::NOBUFS.raw_os_error() {
            self.starved.push_back(fd);
        } else {
            self.conns[fd as usize]
                .as_mut()
                .expect("seen above")
                .receiving = false;
            self.close_if_done(fd);
        }
    }

    fn sent(&mut self, fd: RawFd, result: i32) {
        let conn = self.conns[fd as usize]
            .as_mut()
            .expect("open until its last completion");
        let first = conn.chunks.front_mut().expect("in flight");
        if result < 0 {
            // The peer is gone. Shutting down ends the receive, if it has not noticed yet.
            for chunk in conn.chunks.drain(..) {
                self.pool.give_back(chunk.buffer);
            }
            let _ = rustix::net::shutdown(&conn.socket, Shutdown::Both);
            return self.close_if_done(fd);
        }
        first.from += result as u32;
        if first.from == first.to {
            self.pool.give_back(first.buffer);
            conn.chunks.pop_front();
        }
        match conn.chunks.front() {
            Some(&next) => self.send(fd, next),
            None => self.close_if_done(fd),
        }
    }

    /// Nothing in flight and nothing to come: the socket closes.
    fn close_if_done(&mut self, fd: RawFd) {
        let slot = &mut self.conns[fd as usize];
        if slot
            .as_ref()
            .is_some_and(|c| !c.receiving && c.chunks.is_empty())
        {
            *slot = None;
        }
    }

    /// Arms receives again, at most one for each buffer that is there to be filled.
    fn feed_starved(&mut self) {
        let there = usize::from(self.pool.buffers - self.pool.lent);
        for _ in 0..there.min(self.starved.len()) {
            let fd = self.starved.pop_front().expect("counted");
            self.arm_receive(fd);
        }
    }

    fn arm_accept(&mut self) {
        let fd = Fd(self.listener.as_raw_fd());
        self.push(opcode::AcceptMulti::new(fd).build().user_data(ACCEPT));
    }

    fn arm_receive(&mut self, fd: RawFd) {
        self.push(
            opcode::RecvMulti::new(Fd(fd), BUFFER_GROUP)
                .build()
                .user_data(RECV | fd as u64),
        );
    }

    fn send(&mut self, fd: RawFd, chunk: Chunk) {
        let flags = (SendFlags::NOSIGNAL.bits() | RecvFlags::WAITALL.bits()) as i32;
        let bytes = self.pool.bytes(chunk);
        let send = opcode::Send::new(Fd(fd), bytes, chunk.to - chunk.from).flags(flags);
        self.push(send.build().user_data(SEND | fd as u64));
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: a send's buffer belongs to the pool, which lives as long as the loop, and is not given
        // back to the kernel before the send completes; no other entry points at memory.
        while unsafe { self.queue.push(&entry) }.is_err() {
            self.queue.sync();
            self.submitter.submit().expect("the queue to be taken");
            self.queue.sync();
        }
    }
}

/// The provided-buffer ring and the memory behind it.
///
/// Both are leaked: the kernel may write to them until the process ends.
struct Pool {
    entries: *mut BufRingEntry,
    storage: *mut u8,
    /// Distance between two buffers. Three cache lines more than a buffer, because at a power of two all
    /// buffers would begin in the same set of the cache.
    stride: usize,
    buffer_bytes: u32,
    buffers: u16,
    /// Buffers that a completion has brought here and that are not given back yet.
    lent: u16,
    tail: u16,
}

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

impl Pool {
    /// Hands `buffers` (a power of two, at most 32,768) to the kernel.
    fn register(
        submitter: &Submitter<'_>,
        buffers: u16,
        buffer_bytes: u32,
    ) -> std::io::Result<Self> {
        let stride = buffer_bytes as usize + 3 * 64;
        let pages = (usize::from(buffers) * size_of::<BufRingEntry>()).div_ceil(PAGE_BYTES);
        let entries = vec![Page([0; PAGE_BYTES]); pages]
            .leak()
            .as_mut_ptr()
            .cast();
        let storage = vec![0; usize::from(buffers) * stride].leak().as_mut_ptr();
        // SAFETY: `entries` is page-aligned, has room for `buffers` entries, and is never freed.
        unsafe {
            submitter.register_buf_ring_with_flags(entries as u64, buffers, BUFFER_GROUP, 0)?
        };
        let mut pool = Self {
            entries,
            storage,
            stride,
            buffer_bytes,
            buffers,
            lent: buffers,
            tail: 0,
        };
        for buffer in 0..buffers {
            pool.give_back(buffer);
        }
        pool.publish();
        Ok(pool)
    }

    fn bytes(&self, chunk: Chunk) -> *const u8 {
        self.start(chunk.buffer).wrapping_add(chunk.from as usize)
    }

    fn start(&self, buffer: u16) -> *mut u8 {
        self.storage.wrapping_add(usize::from(buffer) * self.stride)
    }

    /// Puts a buffer at the end of the ring. The kernel sees it after `publish`.
    fn give_back(&mut self, buffer: u16) {
        let start = self.start(buffer);
        let at = usize::from(self.tail & (self.buffers - 1));
        // SAFETY: `at` is inside the ring, and the kernel reads no entry at or after the published tail.
        // Only these three fields are written: the tail itself lies in the first entry's fourth.
        let entry = unsafe { &mut *self.entries.add(at) };
        entry.set_addr(start as u64);
        entry.set_len(self.buffer_bytes);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        self.lent -= 1;
    }

    fn publish(&self) {
        // SAFETY: the tail is two aligned bytes inside the ring; the kernel only reads it.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}
