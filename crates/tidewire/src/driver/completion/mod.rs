//! Loops that hand operations to io_uring and wait for completions.
//!
//! # The receive path
//!
//! 1. [`Reactor::turn`](reactor::Reactor) enters the [`ring`]: one system call hands over the
//!    operations of the turn before and waits for completions.
//! 2. A multishot receive stays armed for each connection. The kernel picks a buffer from a
//!    [`provided`] group only when bytes arrive, so an idle connection owns none.
//!    [`receive`] turns the completion's buffer number into a lease and hands it to
//!    [`Core::received`], which calls the protocol.
//! 3. When all completions are dealt with, every connection that changed is settled once:
//!    whatever its protocol wrote in this turn becomes one [`send`] operation, handed over with
//!    the next wait.
//!
//! # Why ordinary descriptors
//!
//! io_uring can keep sockets in a table of its own ring (*direct descriptors*), which spares a
//! look-up for each operation and does not count against the process's limit of descriptors. Here
//! they are ordinary ones: a reset needs `SO_LINGER`, the peer's address after a multishot accept
//! needs `getpeername`, a failed watch `SO_ERROR`, an acceptor hands sockets to other rings, and
//! half-closing must not wait for a place in the queue; for direct descriptors each of these is
//! another operation with a completion to wait for, or does not exist on the kernels we support.
//! They are what very many connections need; the seam is [`sockets::Sock`], whose descriptor is
//! used through `Ring`'s operations and a handful of calls in that folder alone.

mod ahead;
mod probe;
mod provided;
mod reactor;
mod receive;
mod ring;
mod send;
mod sockets;
mod stopping;
#[cfg(test)]
mod tests;
mod token;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::driver::completion::provided::Group;
use crate::driver::completion::reactor::Reactor;
use crate::driver::completion::ring::Ring;
use crate::driver::completion::sockets::Sockets;
use crate::kernel::queues::Queues;
use crate::kernel::uring::{self, Sizes, Uring};
use crate::memory::buffer::Pool;
use crate::reach::waker::Waker;
use crate::reactor::core::Core;
use crate::reactor::counters::LoopCounters;
use crate::reactor::setup::LoopSetup;

pub(crate) use probe::{Abilities, works};

/// Bytes of a small piece; less if a chunk is.
const SMALL_PIECE: usize = 4 << 10;
/// Small pieces for each large one.
const SMALL_FOR_EACH: usize = 8;
/// Pieces that the kernel is given at first. See [`provided`].
const FIRST: (usize, usize) = (64, 8);

/// Runs one loop on the calling thread until it is stopped. Says through `ready` when it is set up,
/// or why it cannot be; what goes wrong later is the result.
pub(crate) fn run(
    setup: LoopSetup,
    waker: Arc<Waker>,
    counters: Arc<LoopCounters>,
    ready: &Sender<io::Result<()>>,
) -> io::Result<()> {
    let mut set_up = false;
    let ran = run_with(Sizes::default(), setup, waker, counters, || {
        set_up = true;
        let _ = ready.send(Ok(()));
    });
    match ran {
        Err(e) if !set_up => {
            let _ = ready.send(Err(e));
            Ok(())
        }
        ran => ran,
    }
}

fn run_with(
    sizes: Sizes,
    setup: LoopSetup,
    waker: Arc<Waker>,
    counters: Arc<LoopCounters>,
    ready: impl FnOnce(),
) -> io::Result<()> {
    let mut ring = uring::build(sizes)?;
    let ring = Ring::new(Uring::new(&mut ring), counters.clone());
    let core = setup.core(waker.clone(), counters);
    // Whoever starts a loop has probed before.
    let abilities = works().unwrap_or_default();
    let io = sockets(ring, &core, &setup, abilities)?;
    let mut reactor = Reactor::new(core, io, setup, waker)?;
    ready();
    let ran = catch_unwind(AssertUnwindSafe(|| reactor.run()));
    // Also if there is a mistake in the loop: what the kernel still uses must not be freed.
    let (core, io) = reactor.finish();
    if io.ring.in_flight() > 0 {
        tracing::error!(
            left = io.ring.in_flight(),
            "operations of a loop did not end"
        );
        std::mem::forget((core, io));
    } else {
        io.end()?;
    }
    match ran {
        Ok(()) => Ok(()),
        Err(panic) => resume_unwind(panic),
    }
}

fn sockets<Q: Queues>(
    ring: Ring<Q>,
    core: &Core,
    setup: &LoopSetup,
    abilities: Abilities,
) -> io::Result<Sockets<Q>> {
    let large = core.env.pool.clone();
    let small = Pool::unshared(
        large.pieces() * SMALL_FOR_EACH,
        SMALL_PIECE.min(large.piece_len()),
    );
    let small = Group::register(ring.queues(), 0, small, FIRST.0)?;
    let large = Group::register(ring.queues(), 1, large, FIRST.1)?;
    let options = setup.dial_options.clone();
    Ok(Sockets::new(ring, small, large, options, abilities))
}
