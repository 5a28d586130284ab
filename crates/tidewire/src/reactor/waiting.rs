//! Clients that were accepted and wait for another loop to have room, and which loop is offered the
//! next.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::reach::waker::{Command, Unsent, Waker};

/// Commands that are to be handed to other loops.
#[derive(Default)]
pub(super) struct Waiting {
    /// The loop that was given something last.
    pub(super) last: usize,
    /// Accepted, and waiting for a loop to have room for them.
    pub(super) commands: VecDeque<Command>,
}

impl Waiting {
    pub(super) fn is_done(&self) -> bool {
        self.commands.is_empty()
    }
}

/// The number of the loop before the loop with the fewest connections. Of several such loops, the
/// one that has waited longest counts.
pub(super) fn before_least(loops: &[Arc<Waker>], last: usize) -> usize {
    let places = (1..=loops.len()).map(|i| (last + i) % loops.len());
    let least = places.min_by_key(|at| loops[*at].carried()).unwrap_or(0);
    (least + loops.len() - 1) % loops.len()
}

/// Offers a command to each loop, once, from the one behind the last on. `NoRoom` if one of them has none.
pub(super) fn offer(
    loops: &[Arc<Waker>],
    last: &mut usize,
    mut command: Command,
) -> Result<(), Unsent> {
    let mut crowded = false;
    for _ in 0..loops.len() {
        *last = (*last + 1) % loops.len();
        command = match loops[*last].send(command) {
            Ok(()) => return Ok(()),
            Err(Unsent::NoRoom(command)) => {
                crowded = true;
                *command
            }
            Err(Unsent::Ended(command)) => *command,
        };
    }
    let command = Box::new(command);
    Err(match crowded {
        true => Unsent::NoRoom(command),
        false => Unsent::Ended(command),
    })
}
