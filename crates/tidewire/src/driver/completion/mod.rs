//! Loops that hand operations to io_uring and wait for completions.
//!
//! # The receive path
//!
//! 1. A turn of the loop enters the [`ring`]: one system call hands over the
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

mod accept;
mod ahead;
mod alarm;
mod driver;
mod probe;
mod provided;
mod receive;
pub(crate) mod ring;
mod send;
pub(crate) mod sockets;
#[cfg(test)]
mod tests;
mod token;

use std::io;
use std::sync::Arc;

use crate::build::listen::TcpOptions;
use crate::driver::completion::provided::Group;
use crate::driver::completion::ring::Ring;
use crate::driver::completion::sockets::Sockets;
use crate::kernel::queues::Queues;
use crate::memory::buffer::Pool;
use crate::reactor::core::Core;

pub(crate) use probe::{Abilities, works};

/// Bytes of a small piece; less if a chunk is.
const SMALL_PIECE: usize = 4 << 10;
/// Small pieces for each large one.
const SMALL_FOR_EACH: usize = 8;
/// Pieces that the kernel is given at first. See [`provided`].
const FIRST: (usize, usize) = (64, 8);

/// A driver over these queues, for a loop with this core.
pub(crate) fn driver<Q: Queues>(
    queues: Q,
    core: &Core,
    options: Arc<TcpOptions>,
    abilities: Abilities,
) -> io::Result<Sockets<Q>> {
    let ring = Ring::new(queues, core.env.counters.clone());
    let large = core.env.pool.clone();
    let small = Pool::unshared(
        large.pieces() * SMALL_FOR_EACH,
        SMALL_PIECE.min(large.piece_len()),
    );
    let small = Group::register(ring.queues(), 0, small, FIRST.0)?;
    let large = Group::register(ring.queues(), 1, large, FIRST.1)?;
    Ok(Sockets::new(ring, small, large, options, abilities))
}
