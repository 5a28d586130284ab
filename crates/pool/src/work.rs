//! One piece of work: runs it, catches a panic, and returns the result.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotDone {
    /// The work panicked. The panic's message, at most 200 characters of it, is for the log: a peer
    /// should not see it.
    #[error("the work panicked: {0}")]
    Panicked(String),
    /// The pool was dropped before the work's turn came.
    #[error("the pool was stopped before the work was done")]
    Stopped,
}

/// Calls `work`; a panic is a result too.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, NotDone> {
    // State that the closure leaves half done is dropped with the closure; state that it shares has
    // types that allow it.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let said = said(&*payload);
        // A payload may panic once more as it is dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
        NotDone::Panicked(said)
    })
}

fn said(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("without a word");
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_result_and_its_words_are_bounded() {
        assert_eq!(contained(|| 7), Ok(7));
        let long = "x".repeat(1000);
        let Err(NotDone::Panicked(said)) = contained(|| panic!("{long}")) else {
            panic!("it panicked");
        };
        assert_eq!(said.len(), 200);
        struct Twice;
        impl Drop for Twice {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        let twice = contained(|| std::panic::panic_any(Twice));
        assert_eq!(twice, Err(NotDone::Panicked("without a word".into())));
    }
}
