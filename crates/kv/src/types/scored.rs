//! A member of a sorted set.

use super::text::Text;

/// A member with its score.
#[derive(Clone, Copy, Debug)]
pub struct Scored<'a> {
    /// Its score; not a NaN.
    pub score: f64,
    /// The member.
    pub member: Text<'a>,
}
