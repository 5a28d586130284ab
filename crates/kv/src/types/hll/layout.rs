//! Sizes of a HyperLogLog, and the possible faults of one.

/// Registers.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of an element's hash that choose its register.
pub(super) const INDEX_BITS: u32 = 14;
/// The greatest value of a register.
pub(super) const REGISTER_MAX: u8 = 63;
pub(super) const HEADER: usize = 16;
/// Bytes of one in the dense form.
pub(super) const DENSE: usize = HEADER + REGISTERS * 6 / 8;
/// In the last byte of the count that is kept.
pub(super) const STALE: u8 = 1 << 7;

/// Why a string is not a HyperLogLog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The string is no HyperLogLog.
    Other,
    /// The string's registers are damaged.
    Corrupt,
}
