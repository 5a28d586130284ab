//! The name of a connection.

use std::fmt;
use std::marker::PhantomData;

/// Names a connection among the connections of its loop, for as long as the loop lives: an index,
/// which is reused, and a generation, which is not (until 2^32 connections later).
///
/// Each loop numbers its connections separately, so the same name stands for different connections on different loops. So a
/// `ConnId` stays on its loop: it cannot be sent to another thread, nor be kept where several loops look. A
/// [`ConnName`](crate::ConnName) can. A connection's [`Handle`](crate::Handle) reaches it from anywhere.
///
/// ```
/// use tidewire::on_input;
/// use tidewire::sim::chunking::collect;
///
/// // The name fits a number, such as the token of a dial.
/// let service = on_input(|input, link| {
///     let name = link.id();
///     assert_eq!(tidewire::ConnId::from_bits(name.to_bits()), name);
///     link.forward_all(input)
/// });
/// assert_eq!(collect(service, b"x", &[], true).output, b"x");
/// ```
///
/// Subscribers of all loops by their names would be found on one loop, and others in their place on the others:
///
/// ```compile_fail,E0277
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use tidewire::ConnId;
///
/// fn is_shared_by_loops<S: Send + Sync>() {}
/// is_shared_by_loops::<Mutex<HashMap<String, Vec<ConnId>>>>();
/// ```
///
/// A connection is reached from other threads by its handle:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use tidewire::Handle;
///
/// fn is_shared_by_loops<S: Send + Sync>() {}
/// is_shared_by_loops::<Mutex<HashMap<String, Vec<Handle<String>>>>>();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
    stays_on_its_loop: PhantomData<*const ()>,
}

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnId({}, {})", self.index, self.generation)
    }
}

impl ConnId {
    pub(crate) const fn new(index: u32, generation: u32) -> ConnId {
        ConnId {
            index,
            generation,
            stays_on_its_loop: PhantomData,
        }
    }

    /// The name as a number, for [`Dial::token`](crate::Dial::token): so the new connection knows
    /// for which connection it was dialled. The type system does not keep a number on its loop:
    /// store the loop's number beside it where the loop is not obvious.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The name that [`to_bits`](ConnId::to_bits) gave this number, on the same loop.
    #[must_use]
    pub fn from_bits(bits: u64) -> ConnId {
        ConnId::new(bits as u32, (bits >> 32) as u32)
    }
}
