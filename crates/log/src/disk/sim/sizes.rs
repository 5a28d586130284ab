//! Sizes by which a disk writes and counts.

/// What a disk writes whole or torn, but never together with its neighbours: 512 bytes.
pub const SECTOR: usize = 512;

/// What a file's length is rounded up to when room is counted, at least one a file: 4,096 bytes.
pub const BLOCK: u64 = 4096;
