//! Finds out whether io_uring works here, by using it: a temporary ring accepts a connection on the
//! loopback interface, receives into a provided buffer, and sends the bytes back.
//!
//! Containers forbid io_uring, administrators switch it off, old kernels lack parts of it, and some
//! sandboxes only pretend to have it; a list of features would not show all of these cases.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::io::Errno;

use crate::driver::completion::provided::Group;
use crate::driver::completion::ring::{Completion, Ring};
use crate::driver::completion::token::{Kind, Token};
use crate::kernel::calls::Behind;
use crate::kernel::queues::{Operation, Target};
use crate::kernel::uring::{self, SharedBuffers, Sizes, Uring};
use crate::memory::buffer::Pool;
use crate::reactor::counters::LoopCounters;

const PING: &[u8] = b"does it work?";
/// Time limit of each step of the probe; where io_uring works, all steps together take well below a
/// millisecond.
const PATIENCE: Duration = Duration::from_secs(2);

/// Abilities that some kernels with a working io_uring lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Limits what a multishot receive takes before others get their turn (Linux 6.17).
    pub(crate) share: bool,
    /// Places for sockets in the ring's table, if they are to be there.
    pub(crate) places: u32,
}

/// The results of the probe, or why io_uring does not work. The probe runs once in a process.
pub(crate) fn works() -> Result<Abilities, String> {
    static FOUND: OnceLock<Result<Abilities, String>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            // The probe has a thread of its own, because a ring belongs to the thread that made it.
            let probe = std::thread::Builder::new().name("tidewire-probe".into());
            match probe.spawn(probe_once).map(std::thread::JoinHandle::join) {
                Ok(Ok(found)) => found,
                Ok(Err(_)) => Err("the probe panicked".into()),
                Err(e) => Err(format!("no thread for the probe: {e}")),
            }
        })
        .clone()
}

fn probe_once() -> Result<Abilities, String> {
    let sizes = Sizes {
        submissions: 8,
        completions: 32,
    };
    let mut made = uring::build(sizes).map_err(|e| setup_failed(&e))?;
    let mut ring = Ring::new(Uring::new(&mut made), Arc::<LoopCounters>::default());
    let pool = Pool::new(2, 4096);
    let mut group = Group::register(ring.queues(), 0, pool, 2)
        .map_err(|e| format!("provided buffers failed: {e}"))?;
    let tried = converse(&mut ring, &mut group);
    ring.cancel_all();
    for _ in 0..20 {
        if ring.in_flight() == 0 {
            break;
        }
        let _ = ring.enter(Some(PATIENCE / 20));
        ring.collect();
    }
    if ring.in_flight() > 0 {
        // The group is dropped while registered, and so leaves its memory to the kernel.
        return Err(tried.err().unwrap_or("cancelling failed".into()));
    }
    group
        .unregister(ring.queues())
        .map_err(|e| format!("provided buffers cannot be taken back: {e}"))?;
    tried
}

fn converse(
    ring: &mut Ring<Uring<'_>>,
    group: &mut Group<SharedBuffers>,
) -> Result<Abilities, String> {
    let local = |e: io::Error| format!("the loopback interface failed: {e}");
    let refused = |e: io::Error| format!("handing over failed: {e}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(local)?;
    // The listener is non-blocking, as the builder's listeners are. Each step waits before it is
    // served, because waiting is what a kernel may refuse.
    listener.set_nonblocking(true).map_err(local)?;
    let accept = Operation::Accept {
        listener: listener.as_raw_fd(),
    };
    ring.start(accept, Token::of_loop(Kind::Accept, 0));
    ring.submit().map_err(refused)?;
    let mut client = TcpStream::connect(listener.local_addr().map_err(local)?).map_err(local)?;
    client.set_read_timeout(Some(PATIENCE)).map_err(local)?;
    let accepted = await_completion(ring, Kind::Accept)?;
    // SAFETY: the accept has just made this descriptor, and reports it this once.
    let socket = unsafe { ring.accepted(accepted) };
    let receive = |share| Operation::ReceiveMany {
        socket: Target::Number(socket.as_raw_fd()),
        group: 0,
        share,
    };

    let token = Token::of_loop(Kind::Receive, 0);
    let mut abilities = Abilities {
        share: true,
        places: 0,
    };
    ring.start(receive(4096), token);
    ring.submit().map_err(refused)?;
    ring.collect();
    if ring
        .collected
        .iter()
        .any(|c| c.token == token && c.is(Errno::INVAL))
    {
        // An older kernel refuses a multishot receive that has a limit of bytes: on such a kernel the receive has
        // no limit.
        abilities.share = false;
        ring.collected.clear();
        ring.start(receive(0), token);
        ring.submit().map_err(refused)?;
    }
    client.write_all(PING).map_err(local)?;
    let received = await_completion(ring, Kind::Receive)?;
    let piece = received.buffer();
    let piece = piece.ok_or("receiving used no provided buffer")?;
    let mut lease = group.returned(piece);
    let reply = lease.space()[..received.result as usize].to_vec();

    // The sent bytes must outlive the operation even if waiting for the operation fails.
    let reply: &'static [u8] = reply.leak();
    let send = Operation::Send {
        socket: Target::Number(socket.as_raw_fd()),
        from: reply.as_ptr(),
        len: reply.len() as u32,
        behind: Behind::Nothing,
    };
    // SAFETY: the bytes are never freed nor written again.
    unsafe { ring.send(send, Token::of_loop(Kind::Send, 0)) };
    await_completion(ring, Kind::Send)?;
    let mut back = [0; PING.len()];
    client.read_exact(&mut back).map_err(local)?;
    if back == PING {
        Ok(abilities)
    } else {
        Err("what came back is not what was sent".into())
    }
}

fn await_completion(ring: &mut Ring<Uring<'_>>, kind: Kind) -> Result<Completion, String> {
    // No other completions can crowd it out: all others are ends of operations.
    for _ in 0..4 {
        ring.collect();
        if ring.collected.is_empty() {
            ring.enter(Some(PATIENCE))
                .map_err(|e| format!("waiting failed: {e}"))?;
            ring.collect();
        }
        let done = ring.collected.drain(..).find(|c| c.token.kind == kind);
        match done {
            Some(done) if done.result < 0 => {
                return Err(format!("{kind:?} failed: {}", done.error()));
            }
            Some(done) => return Ok(done),
            None => {}
        }
    }
    Err(format!("{kind:?} did not complete"))
}

fn setup_failed(e: &io::Error) -> String {
    let hint = match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            ": forbidden here, by the sysctl kernel.io_uring_disabled or by a sandbox"
        }
        Some(libc::ENOSYS) => ": this kernel has none, or a sandbox hides it",
        Some(libc::EINVAL) => ": Linux 6.1 or newer is needed",
        Some(libc::ENOMEM) => ": no memory, or the memlock limit is too low",
        _ => "",
    };
    format!("setup failed: {e}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_says_the_same_twice() {
        assert_eq!(works(), works());
    }

    #[test]
    fn a_refused_setup_is_explained() {
        let why = setup_failed(&io::Error::from_raw_os_error(libc::EPERM));
        assert!(why.contains("io_uring_disabled"), "{why}");
        assert!(why.starts_with("setup failed: "), "{why}");
    }
}
