//! Sizes by which a disk writes and counts.

/// The unit that a disk writes whole or torn, independently of its neighbours: 512 bytes.
pub const SECTOR: usize = 512;

/// Files are rounded up to this size when space is counted, at least one block a file: 4,096 bytes.
pub const BLOCK: u64 = 4096;
