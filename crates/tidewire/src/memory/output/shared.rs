//! A segment that others own.

use bytes::Bytes;

use crate::contained::contained;

/// The owner of queued bytes has panicked when it was dropped (`Bytes::from_owner`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerPanicked;

/// Shared bytes; never empty, until they are released.
pub(super) struct Shared(Bytes);

impl Shared {
    pub(super) fn new(bytes: Bytes) -> Shared {
        debug_assert!(!bytes.is_empty());
        Shared(bytes)
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn let_go(mut self) -> Result<(), OwnerPanicked> {
        let bytes = std::mem::take(&mut self.0);
        contained(|| drop(bytes)).ok_or(OwnerPanicked)
    }
}

/// Drops a queue with all that it holds: a panic cannot be counted any more.
impl Drop for Shared {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            let bytes = std::mem::take(&mut self.0);
            if contained(|| drop(bytes)).is_none() {
                tracing::error!("the owner of shared bytes panicked when it was dropped");
            }
        }
    }
}
