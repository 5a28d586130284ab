//! Bounds the work of a function of a library between two looks at whether its script is to stop.

use crate::state::{State, Stopped};

/// Steps between two looks: about a tenth of a millisecond of them.
const STEPS: u64 = 20_000;

/// Counts the steps of one call of a function.
pub(crate) struct Effort<'s> {
    state: &'s State,
    left: u64,
}

impl<'s> Effort<'s> {
    pub(crate) fn of(state: &'s State) -> Effort<'s> {
        Effort { state, left: STEPS }
    }

    /// Does so many steps more.
    #[inline]
    pub(crate) fn spend(&mut self, steps: u64) -> Result<(), Stopped> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.look(),
        }
    }

    #[cold]
    fn look(&mut self) -> Result<(), Stopped> {
        self.left = STEPS;
        self.state.look()
    }
}
