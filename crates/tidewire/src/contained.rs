//! Runs code that is not the toolkit's own: a panic in this code goes no further.

use std::any::Any;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `run` and returns its result; `None` if it panics. State that `run` leaves half done must
/// not matter.
pub(crate) fn contained<R>(run: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Some(result),
        Err(panic) => {
            dispose(panic);
            None
        }
    }
}

/// Drops the payload of a panic. The payload is foreign too: `panic_any` takes any value, and a value may panic
/// when it is dropped.
#[cold]
pub(crate) fn dispose(panic: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // The second payload may panic as well, so it is leaked instead of dropped.
        std::mem::forget(another);
    }
}

/// A value of foreign code that the toolkit keeps, and drops wherever the last hold of it goes.
pub(crate) struct Theirs<T> {
    /// The name of the dropped value, for the log.
    what: &'static str,
    /// The value, until it is dropped.
    value: Option<T>,
}

impl<T> Theirs<T> {
    pub(crate) fn new(what: &'static str, value: T) -> Theirs<T> {
        Theirs {
            what,
            value: Some(value),
        }
    }
}

impl<T> Deref for Theirs<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value.as_ref().expect("there until it is dropped")
    }
}

impl<T> Drop for Theirs<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if contained(|| drop(value)).is_none() {
            tracing::error!("{} panicked when it was dropped", self.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that panics when it is dropped, with another such value.
    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(Bomb(self.0 + 1)));
        }
    }

    #[test]
    fn panics_that_panic_are_contained() {
        assert_eq!(contained(|| 7), Some(7));
        assert_eq!(contained(|| drop(Bomb(0))), None);
        let thrown = contained(|| std::panic::panic_any(Bomb(0)));
        assert_eq!(thrown, None);
    }

    #[test]
    fn what_is_theirs_may_panic_when_it_is_dropped() {
        let kept = Theirs::new("a bomb", Bomb(1));
        assert_eq!(kept.0, 1);
        drop(kept);
    }
}
