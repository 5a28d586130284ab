//! The data structures behind the values of keys: plain data, no locks, no clock.

mod big;
pub mod extended;
mod frozen;
pub mod glob;
mod hash;
mod list;
mod number_text;
mod packed;
mod row;
mod sample;
pub mod score;
mod set;
mod spread;
mod stream;
mod table;
mod zset;

pub(crate) use frozen::Piece;
pub use hash::Hash;
pub use list::{End, List};
pub use set::Set;
pub(crate) use spread::Spread;
pub use stream::{Consumer, Entries, Group, IdText, Item, Pending, Stream, StreamId, Trim};
pub use zset::{Scored, ZSet, above, below};

/// Gives memory back where a vector has lost most of what it held.
fn spare<T>(vector: &mut Vec<T>) {
    /// Elements that are not worth an allocation.
    const FEW: usize = 16;
    if vector.capacity() > FEW && vector.len() < vector.capacity() / 4 {
        vector.shrink_to((vector.len() * 2).max(FEW));
    }
}
