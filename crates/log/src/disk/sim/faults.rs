//! Faults of a simulated disk, and the bytes that survive them.

use std::io;

use fastrand::Rng;

/// Faults to come. Each fault counts its own kind of operation from the moment it is set (the first
/// is 1), strikes once, and is gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Power is lost at the n-th changing operation: that operation may still have happened, in
    /// part or whole, and it and all later operations fail with [`PowerLost`].
    pub power: Option<u64>,
    /// The n-th `sync_data` fails. The data that this call should have made durable counts as clean
    /// from then on and is lost at a crash, wholly or in part, whatever later syncs return, unless
    /// the same sectors are written again.
    pub sync: Option<u64>,
    /// The n-th `sync_directory` fails. The changes of names before it are lost at a crash.
    pub sync_directory: Option<u64>,
    /// The n-th `rename` fails, and nothing has changed.
    pub rename: Option<u64>,
    /// The n-th `write_at` fails; a part of it from the start, possibly nothing, is written.
    pub write: Option<u64>,
}

/// Counts down; `true` when the fault strikes.
pub(super) fn strikes(fault: &mut Option<u64>) -> bool {
    match fault {
        Some(0 | 1) => {
            *fault = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

/// Why every operation on a disk fails after [`Faults::power`] or a crash: the process that asks
/// would not exist any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the simulated disk has lost power")]
pub struct PowerLost;

impl PowerLost {
    /// Whether this is why an operation failed.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<PowerLost>())
    }
}

impl From<PowerLost> for io::Error {
    fn from(lost: PowerLost) -> io::Error {
        io::Error::other(lost)
    }
}

/// Which changes since the last sync survive a crash. Synced data always survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// No unsynced sector survives.
    Nothing,
    /// All bytes of the disk.
    Everything,
    /// All up to a moment, which the seed chooses; the change that was under way is torn.
    Prefix,
    /// Each sector, length and name by chance, in no order between them, with this probability in
    /// percent; sectors also in between, torn at a byte.
    Each(u8),
    /// All but one sector, which the seed chooses.
    AllButOne,
}

impl Survival {
    pub(super) fn any(random: &mut Rng) -> Survival {
        match random.u8(0..8) {
            0 => Survival::Nothing,
            1 => Survival::Everything,
            2 | 3 => Survival::Prefix,
            4 => Survival::AllButOne,
            _ => Survival::Each(random.u8(5..96)),
        }
    }
}
