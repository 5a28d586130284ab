//! A command on keys: the facts about it, and its function.

use std::ops::Deref;

use super::ctx::Ctx;
use super::error::Done;
use super::signature::{Flags, Keys, Signature};

/// The function of a command.
pub type Run = fn(&mut Ctx<'_, '_>, &[&[u8]]) -> Done;

/// A command.
pub struct Spec {
    /// The facts about the command that are known before it runs.
    pub signature: Signature,
    /// The function that runs the command.
    pub run: Run,
}

impl Spec {
    /// A command.
    #[must_use]
    pub const fn new(name: &'static str, arity: i16, flags: Flags, keys: Keys, run: Run) -> Spec {
        Spec {
            signature: Signature {
                name,
                arity,
                flags,
                keys,
            },
            run,
        }
    }
}

impl Deref for Spec {
    type Target = Signature;

    #[inline]
    fn deref(&self) -> &Signature {
        &self.signature
    }
}

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spec({})", self.name)
    }
}
