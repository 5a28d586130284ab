//! A wrapper for values that are written so often that no other value may share their cache lines.

use std::ops::{Deref, DerefMut};

/// A value on cache lines of its own: two of 64 bytes, since processors fetch them in pairs. So
/// writing the value does not slow down a thread that only reads its neighbours.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Apart<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
