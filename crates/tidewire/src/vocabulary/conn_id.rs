//! The name of a connection.

use std::fmt;
use std::marker::PhantomData;

/// Names a connection among the connections of its loop, for as long as the loop lives: an index
/// that is reused and a generation that is not (until 2^32 connections later).
///
/// Another loop has other connections under the same names. So a name stays on its loop: it cannot be sent to another thread, nor be
/// kept where several loops look: for that it has a [`ConnName`](crate::ConnName). What reaches a connection from anywhere is its
/// [`Handle`](crate::Handle).
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
/// By their handles they are reached from anywhere:
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

    /// The name as a number, for [`Dial::token`](crate::Dial::token): so the connection that is
    /// made knows for which one. Nothing keeps a number on its loop: keep the loop's beside it
    /// where that is not plain.
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
