//! The classic mistakes of servers that acknowledge, which tests of whole systems must find. The
//! mistakes can be switched on only in a build with the feature `mistakes`.

/// Mistakes to make on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// Acknowledges messages as durable that were written and not synced yet.
    pub ack_written: bool,
    /// Lets an older session of a producer go on beside a newer one.
    pub fence_nobody: bool,
    /// Does not ask to be woken for a welcome that waits for a commit.
    pub welcome_unarmed: bool,
    /// Welcomes a producer before its mark is committed.
    pub welcome_early: bool,
}

impl Mistakes {
    /// Whether to make the given mistake.
    #[inline]
    pub(crate) fn makes(self, which: impl FnOnce(Mistakes) -> bool) -> bool {
        cfg!(feature = "mistakes") && which(self)
    }
}
