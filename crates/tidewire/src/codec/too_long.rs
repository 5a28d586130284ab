//! The one error of framing.

/// A frame is longer than the limit; the connection cannot go on, because the start of the next
/// frame is unknown.
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
