//! The name of a connection.

/// Names a connection of a loop for as long as the loop lives: an index that is reused and a
/// generation that is not (until 2^32 connections later).
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnId {
    /// The name as a number, for [`Dial::token`](crate::Dial::token): so the connection that is made
    /// knows for whom.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The name that [`to_bits`](ConnId::to_bits) gave this number.
    #[must_use]
    pub fn from_bits(bits: u64) -> ConnId {
        ConnId {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}
