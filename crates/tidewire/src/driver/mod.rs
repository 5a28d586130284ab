//! The drivers: what a loop waits with, receives with and sends with. `readiness` waits until
//! descriptors are ready, `completion` until operations are done.

pub(crate) mod completion;
pub(crate) mod readiness;
