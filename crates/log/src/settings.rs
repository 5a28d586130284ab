//! Settings of the embedded log, and what each limit does.

use std::time::Duration;

use crate::format::{BATCH_HEADER, SEGMENT_HEADER};
use crate::{Kind, Policy, Selection};

/// How much is checked when the log is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Every batch of every segment.
    #[default]
    All,
    /// The newest segment, and segments whose index file is missing or does not prove itself: the
    /// index files of older segments are trusted. Damage in older segments is found when it is
    /// read. With [`Policy::Os`], after a kill, what the last minutes have brought is read too.
    Tail,
}

/// The default of [`Settings::segment_bytes`].
pub const SEGMENT_BYTES: u64 = 128 << 20;
/// The most of [`Settings::group_wait`]: a caller that waits for a commit waits at most so long for
/// an absent one.
pub const GROUP_WAIT_MAX: Duration = Duration::from_secs(1);
/// The default of [`Settings::producer_idle`].
pub const PRODUCER_IDLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The most that [`Settings::group_bytes`] may be, in bytes: no run of any log has more, nor a record with its header,
/// whatever the settings are by now.
pub const GROUP_MAX: usize = 64 << 20;

/// The settings of the embedded log. The defaults suit one machine with one disk.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When groups count as committed. Default: [`Policy::Sync`].
    pub policy: Policy,
    /// Length of a segment in bytes, 4 KiB to 1 GiB. Default: [`SEGMENT_BYTES`], 128 MiB. A segment is made longer if
    /// one group and the checkpoint need it.
    pub segment_bytes: u64,
    /// Most bytes that a group gathers while the previous group is written; beyond this,
    /// [`Refused::Busy`](crate::Refused::Busy). The log has two such buffers. 1 KiB to 64 MiB,
    /// default 16 MiB.
    pub group_bytes: usize,
    /// Initial limit of a group, bytes. The limit doubles with the load, up to `group_bytes`. Space
    /// for six groups is reserved in advance, so a log with little load takes little space. From 1
    /// KiB on, default 128 KiB.
    pub group_first: usize,
    /// With [`Policy::Sync`], how long the writer waits at most, after a commit, for its callers to
    /// append again: as many runs as were committed or had gathered meanwhile, or half of what a
    /// group may hold. Groups are larger and fewer then, where many append one run each and wait
    /// for it; a single caller never waits. At most [`GROUP_WAIT_MAX`], for which more is taken.
    /// Default: zero, which writes as soon as the disk is free.
    pub group_wait: Duration,
    /// Most bytes of payload in one record, at most what fits a group. Default 1 MiB.
    pub payload_max: u32,
    /// Most streams; then [`Refused::TooMany`](crate::Refused::TooMany). Default 1,000.
    pub streams_max: usize,
    /// Most producers; then producers idle for an hour expire, then
    /// [`Refused::TooMany`](crate::Refused::TooMany). Default 100,000.
    pub producers_max: usize,
    /// Most named cursors over all streams; then [`Refused::TooMany`](crate::Refused::TooMany).
    /// Default 10,000.
    pub cursors_max: usize,
    /// How long a producer may be idle before its mark is forgotten. After that time, messages that
    /// the producer sends again are stored again, and [`Mark::forgotten`](crate::Mark::forgotten)
    /// says so. Only time in which the log is open counts, by the monotonic clock: setting the wall
    /// clock forgets no producer, and neither does a log that is closed for months. Default:
    /// [`PRODUCER_IDLE`], 30 days.
    pub producer_idle: Duration,
    /// The most that the log takes on the disk, with everything that is reserved: the oldest segments
    /// are removed before it is exceeded. The segment in use and the next one are counted as long as
    /// they may become and stay in any case, so below four times `segment_bytes` it does not hold. Files
    /// that a repair or an opening has kept are not counted. Default: no limit.
    pub retention_bytes: Option<u64>,
    /// Segments are removed when their newest record is older than this. Default: no limit.
    pub retention_age: Option<Duration>,
    /// Set where a replicator says how far it has [carried](crate::Log::carried) the records.
    /// Records that are not at home are not removed by `retention_bytes`, `retention_age` or the
    /// settings of streams, and at most so many bytes of them are taken; then
    /// [`Refused::Busy`](crate::Refused::Busy). The backlog may exceed this limit by up to two
    /// groups. `u64::MAX` is no limit but the disk. Default: none, nothing waits for a home.
    pub backlog: Option<u64>,
    /// The streams that the replicator carries; other streams do not wait for it. Default: all.
    pub carries: Selection,
    /// How much is checked at opening. Default: everything.
    pub verify: Verify,
    /// How long to wait before trying again to find room on a full disk. Default: 1 s.
    pub full_retry: Duration,
    /// Room for one more segment is held on the disk, in a file of its own, which is used only when there is no other and only
    /// for what makes room ([`Log::reserve_to_make_room`](crate::Log::reserve_to_make_room)). While the reserve cannot be held,
    /// the log takes no records. Default: no.
    pub holds_reserve: bool,
    /// The random number that tells this log from others, taken when the first segment is made;
    /// `None` draws one. Give a number only in a test that must repeat exactly.
    pub identity: Option<u64>,
    /// The first position of a stream, by its name, when the log is made: for a log that goes on where another has
    /// ended. Default: none, all streams begin at position 0.
    pub begins: Option<(String, u64)>,
    /// The kind of the log: a log of another kind is not opened. Default: none, any kind is opened; a new log then
    /// records no kind.
    pub kind: Option<Kind>,
    /// Mistakes to make on purpose.
    #[doc(hidden)]
    pub mistakes: Mistakes,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::Sync,
            segment_bytes: SEGMENT_BYTES,
            group_bytes: 16 << 20,
            group_first: 128 << 10,
            group_wait: Duration::ZERO,
            payload_max: 1 << 20,
            streams_max: 1_000,
            producers_max: 100_000,
            cursors_max: 10_000,
            producer_idle: PRODUCER_IDLE,
            retention_bytes: None,
            retention_age: None,
            backlog: None,
            carries: Selection::default(),
            verify: Verify::All,
            full_retry: Duration::from_secs(1),
            holds_reserve: false,
            identity: None,
            begins: None,
            kind: None,
            mistakes: Mistakes::default(),
        }
    }
}

/// Bytes that a group may hold above [`Settings::group_bytes`]: definitions of streams and
/// producers, so that a flood of records does not keep new producers out.
pub(crate) const DEFINITIONS_EXTRA: usize = 256 << 10;

/// How large groups may be that make room in a log of messages.
const RESERVE_GROUP: usize = 4 << 10;

impl Settings {
    /// Most bytes of a batch without a checkpoint, with groups of this size.
    pub(crate) fn batch_of(&self, group: usize) -> u64 {
        (BATCH_HEADER + group + self.definitions_extra(group) + 8) as u64
    }

    /// Most bytes of a batch without a checkpoint.
    pub(crate) fn batch_max(&self) -> u64 {
        self.batch_of(self.group_bytes)
    }

    /// The room for definitions above the limit of a group.
    pub(crate) fn definitions_extra(&self, group: usize) -> usize {
        DEFINITIONS_EXTRA.min(group)
    }

    /// How large groups may be at first.
    pub(crate) fn first_group(&self) -> usize {
        self.group_first.min(self.group_bytes)
    }

    /// The longest that a segment may become, with a checkpoint of this many bytes, so that it
    /// holds three groups at least: the first one, one in flight, one that gathers.
    #[must_use]
    pub fn segment_length(&self, checkpoint: u64) -> u64 {
        self.segment_bytes
            .max(SEGMENT_HEADER as u64 + 2 * checkpoint + 3 * self.batch_max())
    }

    /// The least that must be reserved for the next segment while groups may have this size. Groups
    /// of definitions make its checkpoint longer, by about as much as they are long.
    pub(crate) fn segment_least(&self, checkpoint: u64, group: usize) -> u64 {
        SEGMENT_HEADER as u64 + 2 * checkpoint + 6 * self.batch_of(group)
    }

    /// How large groups may be that use the reserve, while others may have this size: changes of streams are small, removals of
    /// keys are as large as anything. Held for messages it takes little, so that `retention_bytes` is for them.
    pub(crate) fn reserve_group(&self, group: usize) -> usize {
        match self.kind {
            Some(Kind::Messages) => group.min(RESERVE_GROUP),
            _ => group,
        }
    }

    /// Settings whose segments are at most this long, and whose groups fit into them.
    ///
    /// # Errors
    /// The least length that a segment needs for one record of `payload_max`.
    pub fn with_segments(self, segment_bytes: u64) -> Result<Settings, u64> {
        let overhead = (SEGMENT_HEADER + 3 * (BATCH_HEADER + 8)) as u64;
        let least = overhead + 6 * (self.payload_max as u64 + 64);
        if segment_bytes < least {
            return Err(least);
        }
        // A group may have as much again of definitions.
        let group = (segment_bytes - overhead) / 6;
        let group = usize::try_from(group).unwrap_or(usize::MAX);
        Ok(Settings {
            segment_bytes,
            group_bytes: self.group_bytes.min(group),
            ..self
        })
    }

    /// The first setting that is out of range, if any.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if !(4 << 10..=1 << 30).contains(&self.segment_bytes) {
            return Some("segment_bytes must be from 4 KiB to 1 GiB");
        }
        if !(1 << 10..=GROUP_MAX).contains(&self.group_bytes) {
            return Some("group_bytes must be from 1 KiB to 64 MiB");
        }
        if self.group_first < 1 << 10 {
            return Some("group_first must be at least 1 KiB");
        }
        if self.payload_max as usize + 64 > self.group_bytes {
            return Some("payload_max must be at least 64 bytes below group_bytes");
        }
        None
    }
}

/// The classic mistakes of durable logs, which tests of the simulated disk must find. The mistakes
/// can be switched on only in a build with the feature `mistakes`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// Calls a group committed before it is synced.
    pub ack_before_sync: bool,
    /// Syncs again after a failed sync, and carries on if that succeeds.
    pub retry_sync: bool,
    /// Keeps the marks in a file beside the log and believes it where it is ahead of the log.
    pub trust_index: bool,
    /// Removes old segments before their replacement is durable.
    pub delete_early: bool,
    /// Leaves the last group without a claim when the log falls silent.
    pub claim_never: bool,
    /// Claims a group before it is synced.
    pub claim_early: bool,
    /// Takes names that were seen, or seen to be gone, for durable.
    pub trust_names: bool,
}

impl Mistakes {
    /// Whether to make the given mistake.
    pub(crate) fn makes(self, which: impl FnOnce(Mistakes) -> bool) -> bool {
        cfg!(feature = "mistakes") && which(self)
    }
}
