//! The place of a key: its database and its name.

/// A key with its database.
pub(crate) type Place = (u16, Box<[u8]>);
