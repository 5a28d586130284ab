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
//! # Ordinary and direct descriptors
//!
//! Sockets are ordinary descriptors, unless the builder asks for direct ones: then they stand in a table of
//! the ring ([`places`]), which does not count against the process's limit of descriptors.

mod accept;
mod ahead;
mod alarm;
mod driver;
mod gather;
mod parts;
mod places;
mod probe;
mod provided;
mod receive;
mod receiver;
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
    let mut ring = Ring::new(queues, core.env.counters.clone());
    let large = core.env.pool.clone();
    let small = Pool::unshared(
        large.pieces() * SMALL_FOR_EACH,
        SMALL_PIECE.min(large.piece_len()),
    );
    let small = Group::register(ring.queues(), 0, small, FIRST.0)?;
    let large = Group::register(ring.queues(), 1, large, FIRST.1)?;
    if abilities.places > 0 {
        ring.queues_mut().make_table(abilities.places)?;
    }
    Ok(Sockets::new(ring, small, large, options, abilities))
}
