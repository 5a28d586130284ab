//! The data structures behind the values of keys: plain data, no locks, no clock.

mod big;
mod blocks;
pub mod extended;
mod fit;
mod frozen;
pub mod geo;
pub mod glob;
mod hash;
pub mod hll;
mod integers;
mod list;
mod number_text;
mod order;
mod packed;
mod row;
mod rows;
mod sample;
pub mod score;
mod set;
mod sorted;
mod spread;
mod stream;
mod table;
mod text;
mod zset;

pub use fit::{Fit, ListFit, SetFit};
pub(crate) use frozen::Piece;
pub use hash::Hash;
pub use list::{End, List};
pub use set::Set;
pub(crate) use spread::Spread;
pub use stream::{Consumer, Entries, Group, IdText, Item, Pending, Stream, StreamId, Trim};
pub use text::Text;
pub use zset::{Scored, ZSet, above, below};

/// Gives memory back where a vector has lost most of what it held.
fn spare<T>(vector: &mut Vec<T>) {
    /// Elements that are not worth an allocation.
    const FEW: usize = 16;
    if vector.capacity() > FEW && vector.len() < vector.capacity() / 4 {
        vector.shrink_to((vector.len() * 2).max(FEW));
    }
}
