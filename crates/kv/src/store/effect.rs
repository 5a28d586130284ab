//! The one hook that every mutation passes: reserve, run, commit.
//!
//! Effects are deterministic: a log of effects, applied in order, gives the same keys whatever the clock and chance. A command
//! whose text is not deterministic (SPOP, SET with EX) gives its actual effect with
//! [`Ctx::rewrite`](crate::commands::Ctx::rewrite). Room is reserved before anything changes, so that a change that cannot be
//! logged is refused before it happens. Scripts and transactions with SPOP or SORT only learn while they run what they change;
//! they may [grow](Effects::begin_growing) instead. The effects of a command, or of a transaction, are one [unit](super::Units),
//! and are committed while the locks of its keys are held: so the order of commits is one in which the units give the same keys
//! again.

use std::fmt;

use super::unit::Units;

/// Why a key went without a command that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The key's time had come.
    Expired,
    /// Memory was short.
    Evicted,
}

/// A change of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// A command, its name first.
    Command(Vec<&'a [u8]>),
    /// A key is gone.
    Removed(&'a [u8], Gone),
}

/// Why there is no room for a change. The store has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// There is no room at the moment; a later try can succeed.
    Busy,
    /// No room until some is made on the disk.
    DiskFull,
    /// The effect is so large that there never will be room.
    TooLarge,
    /// The log has failed for good: no change can be kept any more.
    Failed,
    /// Another server's store is followed here.
    Follows,
    /// The store has another owner at home by now.
    Lost,
}

impl NoRoom {
    /// The error reply.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            NoRoom::Busy => "TRYAGAIN the log takes no more for now; nothing was changed",
            NoRoom::DiskFull => {
                "MISCONF the disk of the log is full; nothing was changed, and reads are served"
            }
            NoRoom::TooLarge => {
                "ERR larger than what the log takes as one unit; nothing was changed"
            }
            NoRoom::Failed => "MISCONF the log has failed; nothing was changed",
            NoRoom::Follows => {
                "READONLY this server follows another one's store and takes no changes; nothing was changed"
            }
            NoRoom::Lost => {
                "READONLY another server has taken this store over; nothing was changed, and what is read here may be old"
            }
        }
    }

    /// The error reply to a command of a transaction or script that has changed something before.
    #[must_use]
    pub fn text_midway(self) -> &'static str {
        match self {
            NoRoom::Busy => {
                "TRYAGAIN the log takes no more for now; what was done before this command stays"
            }
            NoRoom::DiskFull => {
                "MISCONF the disk of the log is full; what was done before this command stays"
            }
            NoRoom::TooLarge => {
                "ERR larger than what the log takes as one unit; what was done before this command stays"
            }
            NoRoom::Failed => {
                "MISCONF the log has failed; what was done before this command is in memory only"
            }
            NoRoom::Follows => NoRoom::Follows.text(),
            NoRoom::Lost => {
                "READONLY another server has taken this store over; what was done before this command is here alone"
            }
        }
    }
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// The classic mistakes of durable stores, which tests must find. The mistakes can be switched on
/// only in a build with the feature `mistakes`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// Answers before the change is committed.
    pub reply_early: bool,
    /// Lets replies out that show uncommitted changes.
    pub read_dirty: bool,
    /// Logs each command of a transaction by itself.
    pub split_units: bool,
    /// Replays a unit that no record has closed.
    pub play_unclosed: bool,
    /// Replays by the clock.
    pub replay_late: bool,
    /// Lets messages out before the changes that they follow are committed.
    pub publish_early: bool,
    /// Does not hand out what stood there before the first change while a snapshot is made.
    pub forget_before: bool,
    /// Cuts the log behind a snapshot that is not durable yet.
    pub cut_early: bool,
    /// Counts a snapshot before the changes in it are committed.
    pub count_early: bool,
    /// Takes the name of a snapshot that is found for durable.
    pub trust_names: bool,
    /// Answers before the change is at home, where that is waited for.
    pub reply_before_home: bool,
    /// Serves keys at level `replicated` without a lease.
    pub serve_unproven: bool,
    /// Takes a store over from whichever owner there is by then.
    pub take_from_any: bool,
    /// Goes on with a unit that an owner has begun with what the next owner writes.
    pub join_units: bool,
    /// Takes a store over before all that is at home was read.
    pub own_unread: bool,
    /// Refuses a change in the middle of a transaction or script as if it were the first.
    pub refuse_midway: bool,
}

impl Mistakes {
    /// Whether to make the given mistake.
    #[inline]
    pub(crate) fn makes(self, which: impl FnOnce(Mistakes) -> bool) -> bool {
        cfg!(feature = "mistakes") && which(self)
    }
}

/// The hook that is given every change. All calls, except those that promise room and give it back, come under the locks of the
/// changed keys: be quick, and do not call the store.
pub trait Effects: Send + Sync {
    /// Promises room for so many bytes of [`Units::cost`].
    ///
    /// # Errors
    /// See [`NoRoom`].
    fn reserve(&self, bytes: usize) -> Result<(), NoRoom> {
        let _ = bytes;
        Ok(())
    }

    /// Promises room for `wanted` bytes of removals. If the disk is full, at least `least` bytes are promised: removals may use
    /// the space that is reserved for them. Returns how many bytes were promised.
    ///
    /// # Errors
    /// See [`NoRoom`].
    fn reserve_to_remove(&self, wanted: usize, least: usize) -> Result<usize, NoRoom> {
        match self.reserve(wanted) {
            Err(_) if least < wanted => self.reserve(least).map(|()| least),
            reserved => reserved.map(|()| wanted),
        }
    }

    /// Most bytes that a unit costs.
    fn unit_max(&self) -> usize {
        usize::MAX
    }

    /// Promises that a unit with `promised` bytes may [`grow`](Effects::grow) to the maximum size.
    /// One unit at a time may grow, until [`end_growing`](Effects::end_growing). A unit that
    /// `removes` may also grow on a full disk, into the space that is reserved for removals.
    ///
    /// # Errors
    /// See [`NoRoom`].
    fn begin_growing(&self, promised: usize, removes: bool) -> Result<(), NoRoom> {
        let _ = (promised, removes);
        Ok(())
    }

    /// Promises more to the growing caller.
    ///
    /// # Errors
    /// [`NoRoom::TooLarge`] above the largest size, and [`NoRoom::Failed`].
    fn grow(&self, bytes: usize) -> Result<(), NoRoom> {
        let _ = bytes;
        Ok(())
    }

    /// The growing caller needs no more.
    fn end_growing(&self) {}

    /// Gives back promised bytes that are not needed.
    fn give_back(&self, bytes: usize) {
        let _ = bytes;
    }

    /// Takes units, for which `reserved` of the bytes were promised; how far it must have
    /// [settled](Effects::settled) before any client hears of them. Tickets rise in the order of
    /// these calls.
    fn commit(&self, units: &Units, reserved: usize) -> u64;

    /// No client has to wait for what was committed up to this ticket.
    fn settled(&self) -> u64 {
        u64::MAX
    }

    /// Mistakes to make on purpose.
    #[doc(hidden)]
    fn mistakes(&self) -> Mistakes {
        Mistakes::default()
    }

    /// A command panicked after a change: memory and log now differ.
    fn diverged(&self) {}
}
