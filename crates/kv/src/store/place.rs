//! Where a key is.

/// A key with its database.
pub(crate) type Place = (u16, Box<[u8]>);
