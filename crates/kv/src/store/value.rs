//! The value of a key.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::allocator::block;
use crate::types::{Hash, List, Piece, Set, Spread, Stream, ZSet};

/// The value of a key, owned. Large collections are boxed, so that this stays small.
#[derive(Clone, Debug)]
pub enum Value {
    /// Any bytes.
    Str(Vec<u8>),
    /// Any bytes, which a snapshot is writing down too.
    Shared(Arc<Vec<u8>>),
    /// Elements in order.
    List(List),
    /// A hash: fields and their values.
    Hash(Hash),
    /// Members without order.
    Set(Set),
    /// Members ordered by score.
    ZSet(ZSet),
    /// A stream: entries ordered by id, and groups that read them.
    Stream(Box<Stream>),
}

/// The value of a key, lent by the table.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    /// Any bytes.
    Str(&'a [u8]),
    /// Elements in order.
    List(&'a List),
    /// A hash: fields and their values.
    Hash(&'a Hash),
    /// Members without order.
    Set(&'a Set),
    /// Members ordered by score.
    ZSet(&'a ZSet),
    /// A stream: entries ordered by id, and groups that read them.
    Stream(&'a Stream),
}

/// The types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Any bytes.
    Str,
    /// Elements in order.
    List,
    /// A hash: fields and their values.
    Hash,
    /// Members without order.
    Set,
    /// Members ordered by score.
    ZSet,
    /// A stream: entries ordered by id, and groups that read them.
    Stream,
}

impl Kind {
    /// All there are.
    pub const ALL: [Kind; 6] = [
        Kind::Str,
        Kind::List,
        Kind::Hash,
        Kind::Set,
        Kind::ZSet,
        Kind::Stream,
    ];

    /// The name that TYPE answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Str => "string",
            Kind::List => "list",
            Kind::Hash => "hash",
            Kind::Set => "set",
            Kind::ZSet => "zset",
            Kind::Stream => "stream",
        }
    }
}

impl Value {
    /// The value, borrowed.
    #[must_use]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Str(s) => ValueRef::Str(s),
            Value::Shared(s) => ValueRef::Str(s),
            Value::List(x) => ValueRef::List(x),
            Value::Hash(x) => ValueRef::Hash(x),
            Value::Set(x) => ValueRef::Set(x),
            Value::ZSet(x) => ValueRef::ZSet(x),
            Value::Stream(x) => ValueRef::Stream(x),
        }
    }

    /// Bytes of memory that the value owns, in sizes of the allocator.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Value::Str(s) => block(s.capacity()),
            // The memory is counted as it was before the string was shared.
            Value::Shared(s) => block(s.capacity()),
            Value::List(x) => x.bytes(),
            Value::Hash(x) => x.bytes(),
            Value::Set(x) => x.bytes(),
            Value::ZSet(x) => x.bytes(),
            Value::Stream(x) => x.bytes(),
        }
    }

    /// Whether the value is a collection without elements, which no key may hold; a stream may be
    /// empty.
    #[must_use]
    pub fn is_void(&self) -> bool {
        match self {
            Value::Str(_) | Value::Shared(_) | Value::Stream(_) => false,
            Value::List(x) => x.is_empty(),
            Value::Hash(x) => x.is_empty(),
            Value::Set(x) => x.is_empty(),
            Value::ZSet(x) => x.is_empty(),
        }
    }
}

impl Value {
    /// The string once more, without a copy.
    pub(super) fn share(&mut self) -> Option<Value> {
        if let Value::Str(s) = self {
            *self = Value::Shared(Arc::new(std::mem::take(s)));
        }
        matches!(self, Value::Shared(_)).then(|| self.clone())
    }

    /// Has a collection snapshotted as it is now, whatever happens to it later; returns its kind, and
    /// the number of a list's blocks.
    pub(super) fn freeze(&mut self, id: u64, queued: &Arc<AtomicUsize>) -> (Kind, usize) {
        let mut blocks = 0;
        match self {
            Value::Str(_) | Value::Shared(_) => {}
            Value::List(x) => {
                blocks = x.block_count();
                x.freeze(id, queued);
            }
            Value::Hash(x) => x.freeze(id, queued),
            Value::Set(x) => x.freeze(id, queued),
            Value::ZSet(x) => x.freeze(id, queued),
            Value::Stream(x) => x.freeze(id, queued),
        }
        (self.as_ref().kind(), blocks)
    }

    /// The id under which the collection is being snapshotted, if it is.
    pub(super) fn frozen_id(&self) -> Option<u64> {
        match self {
            Value::Str(_) | Value::Shared(_) => None,
            Value::List(x) => x.frozen_id(),
            Value::Hash(x) => x.frozen_id(),
            Value::Set(x) => x.frozen_id(),
            Value::ZSet(x) => x.frozen_id(),
            Value::Stream(x) => x.frozen_id(),
        }
    }

    /// Hands out the collection as it was when it was frozen, about `most` bytes of it; returns
    /// whether that is all.
    pub(super) fn thaw(&mut self, most: usize, to: &mut Vec<Piece>) -> bool {
        match self {
            Value::Str(_) | Value::Shared(_) => true,
            Value::List(x) => x.thaw(most, to),
            Value::Hash(x) => x.thaw(most, to),
            Value::Set(x) => x.thaw(most, to),
            Value::ZSet(x) => x.thaw(most, to),
            Value::Stream(x) => x.thaw(most, to),
        }
    }

    /// The bytes of a string value, for changing them; a copy if a snapshot has them too.
    pub(crate) fn string_mut(&mut self) -> Option<&mut Vec<u8>> {
        if let Value::Shared(shared) = self {
            let shared = std::mem::take(shared);
            let own = Arc::try_unwrap(shared).unwrap_or_else(|shared| shared.to_vec());
            *self = Value::Str(own);
        }
        match self {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }
}

impl ValueRef<'_> {
    /// Type of the value.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            ValueRef::Str(_) => Kind::Str,
            ValueRef::List(_) => Kind::List,
            ValueRef::Hash(_) => Kind::Hash,
            ValueRef::Set(_) => Kind::Set,
            ValueRef::ZSet(_) => Kind::ZSet,
            ValueRef::Stream(_) => Kind::Stream,
        }
    }

    /// A copy that is owned.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match *self {
            ValueRef::Str(s) => Value::Str(s.to_vec()),
            ValueRef::List(x) => Value::List(x.clone()),
            ValueRef::Hash(x) => Value::Hash(x.clone()),
            ValueRef::Set(x) => Value::Set(x.clone()),
            ValueRef::ZSet(x) => Value::ZSet(x.clone()),
            ValueRef::Stream(x) => Value::Stream(Box::new(x.clone())),
        }
    }
}

/// A type of value with elements, so that commands can name it: `view.get::<List>(key)`.
pub trait Collection: Default + Clone + 'static {
    /// The kind of this type.
    const KIND: Kind;
    /// Borrows a value as this type, if it is of this type.
    fn of(value: ValueRef<'_>) -> Option<&Self>;
    /// The value as this type, if it has this type.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// As a value.
    fn into_value(self) -> Value;
}

macro_rules! collection {
    ($($type:ident)*) => {$(
        impl Collection for $type {
            const KIND: Kind = Kind::$type;
            fn of(value: ValueRef<'_>) -> Option<&Self> {
                match value {
                    ValueRef::$type(x) => Some(x),
                    _ => None,
                }
            }
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value {
                    Value::$type(x) => Some(x),
                    _ => None,
                }
            }
            fn into_value(self) -> Value {
                Value::$type(self.into())
            }
        }
    )*};
}

collection!(List Hash Set ZSet Stream);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_collection_needs_no_second_box() {
        assert_eq!(size_of::<Value>(), 32);
    }
}
