//! The data structures behind the values of keys: plain data, no locks, no clock.

pub mod glob;
mod hash;
mod list;
mod packed;
pub mod score;
mod set;
mod table;
mod zset;

pub use hash::Hash;
pub use list::{End, List};
pub use set::Set;
pub(crate) use table::seed_once;
pub use zset::{Scored, ZSet, above, below};
