//! A member of a sorted set.

use super::text::Text;

/// A member with its score.
#[derive(Clone, Copy, Debug)]
pub struct Scored<'a> {
    /// Score of the member; not a NaN.
    pub score: f64,
    /// The member.
    pub member: Text<'a>,
}
