//! What a shipper has done, and why it can do nothing more.

/// The shipper can do no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fatal(pub String);

/// Counts of the shipper's work, since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages acknowledged.
    pub acknowledged: u64,
    /// Bytes of files dealt with.
    pub bytes: u64,
    /// Lines left out because they were too long.
    pub skipped: u64,
    /// Files that cannot be shipped any further, or cannot be read at present.
    pub failed: u64,
    /// Times that something was lost before it could be read; each was told.
    pub losses: u64,
    /// Bytes there at present that no server is known to have.
    pub behind: u64,
    /// Files followed at present.
    pub files: usize,
    /// Bytes of lines without an end, at the ends of files.
    pub unterminated: u64,
    /// Files and directories that are named and not followed: beyond a limit, or because they cannot be.
    pub left_out: u64,
    /// Bytes of zeros in holes, which were passed over.
    pub holes: u64,
    /// Times that a server had less of a file than it had acknowledged, and was sent it again.
    pub set_back: u64,
    /// Bytes of removed files that are held open at present.
    pub held: u64,
    /// Named files that are not followed because they were last written too long ago.
    pub ignored: u64,
}
