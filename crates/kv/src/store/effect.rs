//! The one hook that every mutation passes.
//!
//! What is shown is deterministic: a log of effects, applied in order, gives the same keys whatever
//! the clock and chance. Commands whose text is not (SPOP, SET with EX) say what they came to with
//! [`Ctx::rewrite`](crate::commands::Ctx::rewrite). The hook is called under the locks of the keys,
//! so the effects on one key are shown in their order.

/// Why a key went without a command that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Its time had come.
    Expired,
    /// Memory was short.
    Evicted,
}

/// Something that changed the data.
#[derive(Clone, Copy, Debug)]
pub enum Effect<'a> {
    /// A command, its name first.
    Command(&'a [&'a [u8]]),
    /// A key is gone.
    Removed(&'a [u8], Gone),
}

/// Is shown every mutation.
pub trait Effects: Send + Sync {
    /// Called under the locks of the keys that changed: be quick, and do not call the store.
    fn apply(&self, db: u16, effect: Effect<'_>);
}
