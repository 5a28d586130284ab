//! The settings of a replicator.

use std::time::Duration;

use crate::witness::Witness;

/// The settings of a replicator. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A transaction is committed when it holds so many bytes of messages with their headers; the next one
    /// fills meanwhile, so twice as much is held in memory. Default 4 MiB; at least one record goes into each.
    pub transaction_bytes: usize,
    /// Most records of a transaction. Default 10,000; at least 1.
    pub transaction_records: usize,
    /// Longest time that a transaction's first record waits. Default 10 ms.
    pub linger: Duration,
    /// A run of a producer is cut, at messages, into records of at most so many bytes; a message that is larger is
    /// a record alone. Default 512 KiB.
    pub record_bytes: usize,
    /// How long to wait for an answer of the home; after that the home is opened anew to settle the request.
    /// Default 90 s, which should be longer than the home itself takes to give up.
    pub answer_within: Duration,
    /// How long an answer to a transaction may take before the home is said to be away, though it is waited for on. Default 5 s.
    pub slow_after: Duration,
    /// First pause before a failed operation is tried again; each further pause doubles. Default 100 ms.
    pub retry_first: Duration,
    /// The longest wait before a retry. Default 5 s.
    pub retry_last: Duration,
    /// First pause before a home that another process has opened is looked at again. The pause
    /// doubles each time until something is committed again, up to four times as much. A process
    /// that opens the home to take it over has this long to leave its name before another one may
    /// fence it. This applies only to a log that has the home alone. Default 3 s.
    pub after_fenced: Duration,
    /// How long handing over a revoked partition may take; then the next owner takes the partition as it is. Default 10
    /// s.
    pub hand_over_within: Duration,
    /// The records are useful only from the first one on, or with a [snapshot](crate::SNAPSHOT) of what is before: a log that
    /// begins behind the home's end is not replicated. A store is also replicated to an empty home, and a note says where the
    /// home [begins](crate::begins): no level is promised until the home has a note of a snapshot, too. The home is told how
    /// many records it has received. Default false.
    pub needs_all: bool,
    /// The shortest time between two checks which named cursors of readers have moved, so that cursors are sent to
    /// the home. Default 1 s.
    pub cursors_every: Duration,
    /// How long the owner holds its [lease](crate::Lease), counted from before it sent a transaction that was committed. A
    /// transaction is sent to renew the lease whenever a quarter of this time has passed. No level is promised before the lease
    /// is held, and it is released when the replicator [leaves](crate::Replicator::leave). Zero, the default: there is no lease.
    pub lease: Duration,
    /// What this process has seen of the proofs of former owners: their leases are waited for no longer than needed. Default: nothing.
    pub witness: Witness,
    /// How long the release of the lease is waited for when the replicator leaves. Default 5 s.
    pub release_within: Duration,
    /// Mistakes to make on purpose.
    #[doc(hidden)]
    pub mistakes: Mistakes,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            transaction_bytes: 4 << 20,
            transaction_records: 10_000,
            linger: Duration::from_millis(10),
            record_bytes: 512 << 10,
            answer_within: Duration::from_secs(90),
            slow_after: Duration::from_secs(5),
            retry_first: Duration::from_millis(100),
            retry_last: Duration::from_secs(5),
            after_fenced: Duration::from_secs(3),
            hand_over_within: Duration::from_secs(10),
            needs_all: false,
            cursors_every: Duration::from_secs(1),
            lease: Duration::ZERO,
            witness: Witness::default(),
            release_within: Duration::from_secs(5),
            mistakes: Mistakes::default(),
        }
    }
}

/// The classic mistakes of replicators, which tests of the simulated home must find. The mistakes can be
/// switched on only in a build with the feature `mistakes`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// Promises the level before the marks at home are read.
    pub promise_unread: bool,
    /// Writes the marks of a transaction with the one after it.
    pub marks_apart: bool,
    /// Moves the watermark before the commit.
    pub early_watermark: bool,
    /// Sends a transaction again whose answer is missing, without ending it first.
    pub repeat_unsettled: bool,
    /// Takes positions at home for its own without looking at what stands there.
    pub trust_positions: bool,
    /// Carries records that were taken in an earlier tenure.
    pub carry_past: bool,
    /// Promises the level while the home is only a part.
    pub promise_part: bool,
    /// Sends cursors as they stand in the log, even ahead of the records in the home.
    pub cursors_ahead: bool,
    /// Carries on from the marks at home although the log remembers more.
    pub trust_marks: bool,
    /// Counts the lease from when the commit was heard of.
    pub lease_from_answer: bool,
    /// Begins its lease without waiting for the end of another owner's.
    pub lease_unwaited: bool,
    /// Counts the lease of another owner from the last proof that was seen, though a later one may be at home.
    pub witness_unchecked: bool,
}

impl Mistakes {
    /// Whether this one is to be made.
    pub(crate) fn makes(self, which: impl Fn(&Mistakes) -> bool) -> bool {
        cfg!(feature = "mistakes") && which(&self)
    }
}
