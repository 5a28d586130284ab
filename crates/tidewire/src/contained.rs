//! Running what is not ours: a panic in it goes no further.

use std::any::Any;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs it; nothing if it panics. What it has left half done must not matter.
pub(crate) fn contained<R>(run: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Some(result),
        Err(panic) => {
            dispose(panic);
            None
        }
    }
}

/// Drops what a panic has carried, which is not ours either: `panic_any` takes anything, and that may panic when it
/// is dropped.
#[cold]
pub(crate) fn dispose(panic: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Which carries something too. There must be an end to it.
        std::mem::forget(another);
    }
}

/// A value of foreign code that the toolkit keeps, and drops wherever the last hold of it goes.
pub(crate) struct Theirs<T> {
    /// What it is, for the log.
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

    /// Panics when it is dropped, with another one.
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
