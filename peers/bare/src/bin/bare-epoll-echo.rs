//! Echo, one thread, one epoll loop written by hand: the yardstick for the epoll engine.
//!
//! Edge-triggered, so a socket is registered once and never touched again. One buffer serves all
//! connections: a chunk is received into it and sent straight from it, and only what the peer does
//! not take is copied aside. `--burn` spends so many nanoseconds of CPU for each receive: a
//! slowdown of known size, to see whether it is found. A receive that did not fill the buffer has
//! drained the socket, which saves the call that would only have said so. There is no limit on what
//! one connection may do in a turn, and no timeout.

use std::convert::Infallible;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};

use bare::{Args, Burn};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

const CHUNK_BYTES: usize = 64 * 1024;
const EVENTS_MAX: usize = 1024;

fn main() -> std::io::Result<()> {
    let args = Args::parse("bare-epoll-echo [--addr HOST:PORT] [--cpu N] [--burn NANOS]");
    args.pin();
    let listener = args.listen();
    listener.set_nonblocking(true)?;
    let burn = Burn::of(args.value("--burn").unwrap_or(0));
    match Loop::new(listener, burn)?.run()? {}
}

struct Conn {
    socket: OwnedFd,
    /// Received but not yet taken by the kernel; while it is not empty nothing more is received.
    unsent: Vec<u8>,
}

struct Loop {
    epoll: OwnedFd,
    listener: TcpListener,
    /// Indexed by descriptor.
    conns: Vec<Option<Conn>>,
    buffer: Vec<u8>,
    /// A planted slowdown, for each receive.
    burn: Burn,
}

impl Loop {
    fn new(listener: TcpListener, burn: Burn) -> rustix::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let key = EventData::new_u64(listener.as_raw_fd() as u64);
        epoll::add(&epoll, &listener, key, EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener,
            conns: Vec::new(),
            buffer: vec![0; CHUNK_BYTES],
            burn,
        })
    }

    fn run(mut self) -> rustix::io::Result<Infallible> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
            for event in &events {
                let key = event.data.u64() as usize;
                if key == self.listener.as_raw_fd() as usize {
                    self.accept()?;
                } else if let Some(conn) = &mut self.conns[key]
                    && conn
                        .ready(event.flags, &mut self.buffer, &self.burn)
                        .is_err()
                {
                    self.conns[key] = None;
                }
            }
        }
    }

    /// Takes every connection that waits.
    fn accept(&mut self) -> rustix::io::Result<()> {
        loop {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(e) => return Err(e),
            };
            let key = socket.as_raw_fd() as usize;
            let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(
                &self.epoll,
                &socket,
                EventData::new_u64(key as u64),
                interest,
            )?;
            if key >= self.conns.len() {
                self.conns.resize_with(key + 1, || None);
            }
            self.conns[key] = Some(Conn {
                socket,
                unsent: Vec::new(),
            });
        }
    }
}

/// The connection is over: the peer has finished and has everything, or it broke.
struct Over;

impl Conn {
    fn ready(&mut self, flags: EventFlags, buffer: &mut [u8], burn: &Burn) -> Result<(), Over> {
        if !self.unsent.is_empty() {
            let sent = send(&self.socket, &self.unsent)?;
            self.unsent.drain(..sent);
            if !self.unsent.is_empty() {
                return Ok(());
            }
        }
        // With the peer's end already signalled there will be no further edge, so read up to it.
        let ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        loop {
            let received = match rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Err(Over),
                Ok((received, _)) => received,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(_) => return Err(Over),
            };
            burn.now();
            let sent = send(&self.socket, &buffer[..received])?;
            if sent < received {
                self.unsent.extend_from_slice(&buffer[sent..received]);
                return Ok(());
            }
            if received < buffer.len() && !ending {
                return Ok(());
            }
        }
    }
}

/// Sends what the kernel takes; 0 if it takes nothing now.
fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Over> {
    loop {
        match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(sent),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(_) => return Err(Over),
        }
    }
}
