//! The value of a key, of each type.

use crate::stream::Stream;

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any bytes.
    String(Vec<u8>),
    /// Elements in order.
    List(Vec<Vec<u8>>),
    /// Members.
    Set(Vec<Vec<u8>>),
    /// Fields with their values.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// Members with their scores.
    ZSet(Vec<(Vec<u8>, f64)>),
    /// Entries, and groups that read them.
    Stream(Box<Stream>),
}
