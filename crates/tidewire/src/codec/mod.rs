//! Framing for protocols of one's own: where a message ends in a stream of bytes.
//!
//! Both take frames out of an [`Input`](crate::Input) without a copy, bound what a peer may make a
//! connection carry, and find the same frames however the stream was split.

mod length_delimited;
mod lines;

pub use length_delimited::{Delimited, LengthDelimited};
pub use lines::Lines;

/// A frame is longer than it may be; the connection cannot go on, because nobody knows where the next
/// one begins.
///
/// ```
/// use tidewire::Input;
/// use tidewire::codec::{Lines, TooLong};
///
/// let error: TooLong = Lines::new(3).take(&mut Input::new(b"four")).unwrap_err();
/// assert_eq!(error.to_string(), "longer than 3 bytes");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("longer than {max} bytes")]
#[non_exhaustive]
pub struct TooLong {
    /// The most that was allowed, in bytes.
    pub max: usize,
}
