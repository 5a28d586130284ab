//! Where batches gather while the writer is busy with the group before.
//!
//! The one idea: the group that gathers is already what will be written, header room in front and
//! frames as they came, so appending is one copy under the lock and the writer swaps buffers. The
//! checksum of the frames is computed before the lock is taken.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backlog::Backlog;
use crate::format::{
    BATCH_HEADER, Missing, Needs, RECORDS_HEADER, Records, Stored, put_cursor, put_producer,
    put_stream, put_stream_set,
};
use crate::note::{NOTE_BYTES, Note, Turn};
use crate::settings::Settings;
use crate::state::State;
use crate::{Mark, Placed, ProducerId, Refused, Run, StreamId, StreamSettings, Ticket};

/// When trying again makes sense for a stream at its limit.
const FULL_RETRY: Duration = Duration::from_secs(1);
/// Most records that a group gathers from callers that can wait for the next group. A batch's
/// header has 4 bytes for their number, and repair relies on that; well compressed records could
/// exceed it. A caller that was promised room appends without this limit: its records in the
/// largest group are fewer than this.
const RECORDS_MAX: u32 = 1 << 31;

/// Batches that will be written together.
#[derive(Debug)]
pub(crate) struct Group {
    /// Begins with room for the batch's header.
    pub(crate) bytes: Vec<u8>,
    pub(crate) body_crc: u32,
    pub(crate) runs: u32,
    pub(crate) records: u32,
    pub(crate) notes: Vec<Note>,
    pub(crate) turns: Vec<Turn>,
    /// Lost positions; the batch has no records then.
    pub(crate) gap: Option<Missing>,
    /// The ticket of the last batch in the group.
    pub(crate) last: Ticket,
    /// The highest timestamp of a record in the group.
    pub(crate) newest_us: u64,
}

impl Group {
    pub(crate) fn new(settings: &Settings) -> Group {
        let mut bytes = Vec::with_capacity(settings.batch_of(settings.first_group()) as usize);
        bytes.resize(BATCH_HEADER, 0);
        Group {
            bytes,
            body_crc: 0,
            runs: 0,
            records: 0,
            notes: Vec::new(),
            turns: Vec::new(),
            gap: None,
            last: Ticket(0),
            newest_us: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs == 0 && self.gap.is_none()
    }

    /// Empties the group; of its memory the group keeps as much as the largest usual group needs.
    pub(crate) fn clear(&mut self, settings: &Settings) {
        self.bytes.truncate(BATCH_HEADER);
        self.bytes.shrink_to(settings.batch_max() as usize);
        self.body_crc = 0;
        self.runs = 0;
        self.records = 0;
        self.notes.clear();
        self.turns.clear();
        self.gap = None;
    }

    pub(crate) fn gathered(&self) -> usize {
        self.bytes.len() - BATCH_HEADER
    }

    /// Appends a run that is not records.
    pub(crate) fn put(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        put(&mut self.bytes);
        self.body_crc = crc32c::crc32c_append(self.body_crc, &self.bytes[start..]);
        self.runs += 1;
    }
}

/// Whether batches are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// The disk is full, but for what is held for changes that make room.
    Reserve,
    DiskFull,
    /// The writer moves reserved space on a full disk. Batches wait for the writer's answer.
    Looking,
    /// No room could be reserved, for another reason than that the disk is full.
    Blocked,
    /// Failed, or closed.
    Shut,
}

/// How a log is off for room on its disk: see [`EmbeddedLog::room`](crate::EmbeddedLog::room).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Space is not a reason to refuse.
    Enough,
    /// No room for another segment, though the one in use has some left, or for a large group.
    Ending,
    /// The log takes only records that make room, if any.
    Short,
    /// The writer was asked to look again, and has not done so yet.
    Unknown,
}

/// Whether groups may become as large as what comes would have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Larger {
    /// Appends may go there, or need not.
    Free,
    /// The disk is full: records that do not fit are refused.
    DiskFull,
    /// No room could be reserved, for another reason: no caller is told that the disk is full.
    Blocked,
}

/// Whether there is another segment for a change that needs one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Another {
    /// No change waits for one.
    Unasked,
    /// A change was refused meanwhile, and the writer is to make one.
    Wanted,
    /// The disk was full. The next change that needs one is told so, and asks once more after that.
    DiskFull,
    /// The segment could not be made for another reason. The writer tries again by itself.
    Blocked,
}

/// How full a group must be before it is written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// See [`Settings::group_wait`].
    Runs(u32),
    Bytes(usize),
}

impl Default for Worth {
    /// Anything.
    fn default() -> Worth {
        Worth::Runs(0)
    }
}

/// The group may grow beyond the limit of groups. For a caller that only learns while it makes a change how
/// large the change is, and that can neither be refused in the middle nor take anything back. One
/// caller at a time may grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    /// Whether a caller has asked for the reserve since the log was opened, so that space is
    /// reserved from then on.
    pub(crate) is_wanted: bool,
    /// Whether the disk has space for the largest group above the limit; `None` if the writer has not
    /// checked since the last group that needed it.
    pub(crate) room: Option<bool>,
    /// No room was found, for another reason than a full disk.
    pub(crate) is_blocked: bool,
    /// The bytes promised to the growing caller by now, in all.
    pub(crate) grown: Option<usize>,
}

impl Growth {
    fn wants_room(&self) -> bool {
        self.is_wanted && self.room.is_none()
    }
}

/// The state that appending needs, behind one lock.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) state: State,
    pub(crate) group: Group,
    /// The number of this group, counted from opening; tells whether a note belongs to it.
    pub(crate) generation: u64,
    pub(crate) gate: Gate,
    /// Most bytes that a group gathers now. The limit grows with the load, up to
    /// [`Settings::group_bytes`], when space is reserved for it.
    pub(crate) limit: usize,
    /// The reserved bytes that callers were promised and have not used; see
    /// [`Log::reserve`](crate::Log::reserve).
    pub(crate) reserved: usize,
    /// The limit that would have avoided the refusals.
    pub(crate) wanted: usize,
    /// Whether a larger segment found room.
    pub(crate) larger: Larger,
    /// Promises to grow beyond the limit.
    pub(crate) growth: Growth,
    /// Features that records may use: the segment in use declares them, or the next one is reserved
    /// and will.
    pub(crate) ready_for: Needs,
    /// Whether the next segment is reserved.
    pub(crate) has_spare: bool,
    /// Whether the gathering group is to begin a segment.
    pub(crate) begins_segment: bool,
    /// The state of a new segment for changes that need one of their own.
    pub(crate) another: Another,
    /// The disk had no room for the next segment, though the one in use has some left.
    pub(crate) fears_end: bool,
    /// How often the writer was asked to look for room, and the last of these that it had heard of when it last began to look.
    pub(crate) looks_asked: u64,
    pub(crate) looks_done: u64,
    /// On a full disk, what is left in the segment in use for changes that make room.
    pub(crate) room_left: usize,
    /// A caller was told [`Refused::Busy`] since the last group was taken.
    pub(crate) refused: bool,
    /// The writer waits for work.
    pub(crate) parked: bool,
    /// The writer takes no group that is worth less for a while.
    pub(crate) awaited: Worth,
    /// Everything appended is to be synced.
    pub(crate) sync_asked: bool,
    /// Below which position of which stream nothing is of use any more, and whether that has changed.
    pub(crate) discarded: BTreeMap<u32, u64>,
    /// Records that are not in the home yet, if there is a home.
    pub(crate) backlog: Option<Backlog>,
    pub(crate) discard_asked: bool,
    /// Settings of streams have changed: records beyond the new limits are removed at once.
    pub(crate) is_changed: bool,
    /// The log is to be closed.
    pub(crate) closing: bool,
    /// The log's own clock as the writer last saw it: for how many microseconds the log has been
    /// open, in all its openings.
    pub(crate) lived_us: u64,
    /// All batches up to this one are committed.
    pub(crate) settled: Ticket,
    /// When producers were last made to expire because there were too many.
    pressed_us: Option<u64>,
    ticket: Ticket,
}

impl Gather {
    pub(crate) fn new(state: State, settings: &Settings, lived_us: u64) -> Gather {
        let mut backlog = settings.backlog.map(Backlog::new);
        if let Some(backlog) = &mut backlog {
            for (id, stream) in state.streams.iter() {
                backlog.made(id, !settings.carries.takes(&stream.name));
            }
        }
        Gather {
            state,
            group: Group::new(settings),
            generation: 1,
            gate: Gate::Open,
            limit: settings.first_group(),
            reserved: 0,
            wanted: 0,
            larger: Larger::Free,
            growth: Growth::default(),
            ready_for: Needs::default(),
            has_spare: false,
            begins_segment: false,
            another: Another::Unasked,
            fears_end: false,
            looks_asked: 0,
            looks_done: 0,
            room_left: 0,
            refused: false,
            parked: false,
            awaited: Worth::default(),
            sync_asked: false,
            discarded: BTreeMap::new(),
            backlog,
            discard_asked: false,
            is_changed: false,
            closing: false,
            lived_us,
            settled: Ticket(0),
            pressed_us: None,
            ticket: Ticket(0),
        }
    }

    /// The last batch taken.
    pub(crate) fn last_ticket(&self) -> Ticket {
        self.ticket
    }

    /// Whether a caller has asked for something that is not a batch.
    pub(crate) fn is_asked(&self) -> bool {
        self.sync_asked
            || self.discard_asked
            || self.is_changed
            || self.begins_segment
            || self.wants_more()
    }

    /// Drops all requests: they will not be carried out.
    pub(crate) fn ask_nothing(&mut self) {
        (self.sync_asked, self.discard_asked, self.begins_segment) = (false, false, false);
        self.is_changed = false;
    }

    /// Whether groups should be larger than they may be, and no lack of room is known.
    pub(crate) fn wants_more(&self) -> bool {
        (self.wanted > self.limit && self.larger == Larger::Free)
            || self.another == Another::Wanted
            || self.growth.wants_room()
    }

    /// Whether the group is worth more when others have come to it, and no caller needs it now.
    pub(crate) fn is_awaited(&self) -> bool {
        let is_less = match self.awaited {
            Worth::Runs(runs) => self.group.runs < runs,
            Worth::Bytes(bytes) => !self.group.is_empty() && self.group.gathered() < bytes,
        };
        is_less
            && self.group.gathered() <= self.limit / 2
            && self.gate == Gate::Open
            && !self.refused
            && !self.closing
            && !self.is_asked()
    }

    /// Puts the gathered group into `taken`, which is empty, and begins the next one in its place.
    pub(crate) fn take(&mut self, taken: &mut Group) {
        if self.group.gathered() > self.limit / 2 {
            // Callers will append more.
            self.wanted = self.wanted.max(2 * self.limit);
        }
        if self.group.gathered() > self.limit {
            // This group takes the space that was reserved for growing.
            self.growth.room = None;
        }
        std::mem::swap(&mut self.group, taken);
        self.generation += 1;
    }

    /// Takes nothing more of what is carried while too much is not at home; a call of the
    /// replicator says when there is room again.
    fn pass_backlog(&self, stream: Option<u32>) -> Result<(), Refused> {
        let backlog = self.backlog.as_ref();
        match backlog.is_some_and(|backlog| backlog.is_full_for(stream)) {
            true => Err(Refused::Busy),
            false => Ok(()),
        }
    }

    pub(crate) fn pass_gate(&mut self, settings: &Settings) -> Result<(), Refused> {
        match self.gate {
            Gate::Open => Ok(()),
            Gate::Reserve | Gate::DiskFull => Err(Refused::DiskFull {
                retry_after: settings.full_retry,
            }),
            Gate::Blocked | Gate::Looking => {
                self.refused = true;
                Err(Refused::Busy)
            }
            Gate::Shut => Err(Refused::Failed),
        }
    }

    /// `extra` is the number of bytes that may be gathered above the limit.
    fn admit(&mut self, bytes: usize, extra: usize, settings: &Settings) -> Result<(), Refused> {
        self.pass_gate(settings)?;
        self.admit_inside(bytes, self.limit + extra, settings)
    }

    /// [`admit`](Gather::admit) of what makes room: it may use what is held for that.
    pub(crate) fn admit_to_make_room(
        &mut self,
        bytes: usize,
        extra: usize,
        settings: &Settings,
    ) -> Result<(), Refused> {
        if self.gate != Gate::Reserve {
            return self.admit(bytes, extra, settings);
        }
        let limit = settings.reserve_group(self.limit);
        self.admit_inside(bytes, limit + extra, settings)
    }

    /// Moves the calls that the gate has let in into a group of at most so many bytes.
    fn admit_inside(
        &mut self,
        bytes: usize,
        limit: usize,
        settings: &Settings,
    ) -> Result<(), Refused> {
        let retry = settings.full_retry;
        if self.group.gap.is_some() {
            self.refused = true;
            return Err(Refused::Busy);
        }
        if self.group.gathered() + self.reserved + bytes <= limit {
            return Ok(());
        }
        if bytes > settings.group_bytes + limit.saturating_sub(self.limit) {
            return Err(Refused::TooLarge);
        }
        self.refused = true;
        // Promised bytes stay promised when the group is taken, and may be this caller's own: a retry
        // helps only if there is space for both.
        self.wanted = self.wanted.max(self.reserved + bytes);
        if self.larger == Larger::DiskFull && bytes > limit {
            return Err(Refused::DiskFull { retry_after: retry });
        }
        Err(Refused::Busy)
    }

    /// Promises room for a later [`append_reserved`](Gather::append_reserved).
    pub(crate) fn reserve(&mut self, bytes: usize, settings: &Settings) -> Result<(), Refused> {
        self.pass_backlog(None)?;
        self.admit(bytes, 0, settings)?;
        self.reserved += bytes;
        Ok(())
    }

    /// [`reserve`](Gather::reserve) for what makes room.
    pub(crate) fn reserve_to_make_room(
        &mut self,
        bytes: usize,
        settings: &Settings,
    ) -> Result<(), Refused> {
        self.pass_backlog(None)?;
        self.admit_to_make_room(bytes, 0, settings)?;
        self.reserved += bytes;
        Ok(())
    }

    /// Whether the writer has not looked for room since it was asked to.
    pub(crate) fn looks_for_room(&self) -> bool {
        self.looks_asked > self.looks_done
    }

    /// How the log is off for room on its disk.
    pub(crate) fn room(&self) -> Room {
        let is_small = self.larger == Larger::DiskFull;
        let grows_not = self.growth.room == Some(false) && !self.growth.is_blocked;
        match self.gate {
            _ if self.looks_for_room() => Room::Unknown,
            Gate::Looking => Room::Unknown,
            Gate::Reserve | Gate::DiskFull => Room::Short,
            _ if is_small || grows_not || self.fears_end => Room::Ending,
            _ => Room::Enough,
        }
    }

    /// Promises one caller, which was promised `reserved` bytes, that this may
    /// [grow](Gather::grow).
    pub(crate) fn begin_growing(
        &mut self,
        reserved: usize,
        settings: &Settings,
    ) -> Result<(), Refused> {
        self.pass_backlog(None)?;
        self.pass_gate(settings)?;
        let is_whole = self.group.gathered() + self.reserved <= self.limit;
        let is_free = self.growth.grown.is_none() && self.group.gap.is_none();
        if self.growth.room == Some(true) && is_free && is_whole {
            self.growth.grown = Some(reserved);
            return Ok(());
        }
        self.refused = true;
        self.growth.is_wanted = true;
        match self.growth.room {
            Some(false) if !self.growth.is_blocked => Err(Refused::DiskFull {
                retry_after: settings.full_retry,
            }),
            _ => Err(Refused::Busy),
        }
    }

    /// Promises more to the growing caller, up to the largest group: there is room for that,
    /// whatever has happened to the disk since and whatever else has gathered.
    pub(crate) fn grow(&mut self, bytes: usize, settings: &Settings) -> Result<(), Refused> {
        if self.gate == Gate::Shut {
            return Err(Refused::Failed);
        }
        let Some(grown) = &mut self.growth.grown else {
            debug_assert!(false, "no caller was promised growth");
            return Err(Refused::Busy);
        };
        if *grown + bytes > settings.group_bytes {
            return Err(Refused::TooLarge);
        }
        *grown += bytes;
        self.reserved += bytes;
        Ok(())
    }

    /// The growing caller needs no more. As long as the group is above the limit, no other may
    /// grow.
    pub(crate) fn end_growing(&mut self) {
        self.growth.grown = None;
    }

    pub(crate) fn give_back(&mut self, reserved: usize) {
        debug_assert!(reserved <= self.reserved, "more than was reserved");
        self.reserved = self.reserved.saturating_sub(reserved);
    }

    /// Takes a batch for which space was promised, whatever has happened to the disk since. The group
    /// and the promises together stay below the limit, or above it by the space that is reserved for
    /// growing.
    pub(crate) fn append_reserved(
        &mut self,
        run: Run<'_>,
        frames: Stored<'_>,
        reserved: usize,
    ) -> Result<Placed, Refused> {
        self.give_back(reserved);
        if self.gate == Gate::Shut {
            return Err(Refused::Failed);
        }
        self.put_records(run, frames)
    }

    /// `frames` are the run's frames as they are to be stored.
    pub(crate) fn append(
        &mut self,
        run: Run<'_>,
        frames: Stored<'_>,
        settings: &Settings,
    ) -> Result<Ticket, Refused> {
        let length = frames.bytes.len();
        if run.frames.len() > settings.group_bytes {
            return Err(Refused::TooLarge);
        }
        let stream = self.state.streams.get(run.stream.0);
        let stream = stream.ok_or(Refused::NoStream)?;
        let limit = stream.settings.limit_bytes;
        if limit.is_some_and(|limit| stream.held + length as u64 > limit) {
            let retry_after = FULL_RETRY;
            return Err(Refused::StreamFull { retry_after });
        }
        if run.count > RECORDS_MAX {
            return Err(Refused::TooLarge);
        }
        self.pass_backlog(Some(run.stream.0))?;
        self.admit(RECORDS_HEADER + length, 0, settings)?;
        if self.group.records > RECORDS_MAX - run.count {
            self.refused = true;
            return Err(Refused::Busy);
        }
        self.put_records(run, frames).map(|placed| placed.ticket)
    }

    fn put_records(&mut self, run: Run<'_>, frames: Stored<'_>) -> Result<Placed, Refused> {
        let stream_number = run.stream.0;
        if !self.state.streams.contains(stream_number) {
            return Err(Refused::NoStream);
        }
        let ticket = Ticket(self.ticket.0 + 1);
        if run.producer != ProducerId::ANONYMOUS {
            // The producer may have expired since the caller asked for it.
            let producer = self
                .state
                .find_mut(run.producer.0)
                .ok_or(Refused::Forgotten)?;
            debug_assert_eq!(
                producer.stream, stream_number,
                "a producer is one of one stream"
            );
            producer.mark = Mark {
                appended: producer.mark.appended.max(Some(run.last_id)),
                ticket,
                forgotten: false,
            };
            producer.seen_us = producer.seen_us.max(self.lived_us);
        }
        self.ticket = ticket;
        let stream = &mut self.state.streams[stream_number];
        let bytes = frames.bytes.len() as u64;
        stream.held += bytes;
        if let Some(backlog) = &mut self.backlog {
            backlog.appended(stream_number, bytes);
        }
        let first = stream.next;
        let timestamp_us = run.timestamp_us.max(stream.newest_us);
        stream.newest_us = timestamp_us;
        stream.next += u64::from(run.count);

        let group = &mut self.group;
        let offset = group.bytes.len() as u64;
        let (generation, index) = stream.noted;
        match group.notes.get_mut(index) {
            Some(note) if generation == self.generation && offset - note.offset < NOTE_BYTES => {
                note.next = stream.next;
                note.bytes += bytes;
            }
            _ => {
                stream.noted = (self.generation, group.notes.len());
                let (stream, next) = (stream_number, stream.next);
                group.notes.push(Note {
                    stream,
                    first,
                    next,
                    offset,
                    timestamp_us,
                    bytes,
                });
            }
        }
        let header = Records::header(&run, timestamp_us, first, frames);
        group.bytes.extend_from_slice(&header);
        group.bytes.extend_from_slice(frames.bytes);
        group.body_crc = crc32c::crc32c_append(group.body_crc, &header);
        group.runs += 1;
        group.records += run.count;
        group.last = ticket;
        group.newest_us = group.newest_us.max(timestamp_us);
        Ok(Placed { ticket, first })
    }

    pub(crate) fn admit_definition(
        &mut self,
        name: &str,
        settings: &Settings,
    ) -> Result<(), Refused> {
        let extra = settings.definitions_extra(self.limit);
        self.admit(64 + name.len(), extra, settings)
    }

    pub(crate) fn defined(&mut self) -> Ticket {
        self.ticket.0 += 1;
        self.group.last = self.ticket;
        self.ticket
    }

    pub(crate) fn stream(&mut self, name: &str, settings: &Settings) -> Result<StreamId, Refused> {
        if let Some(id) = self.state.stream(name) {
            return Ok(StreamId(id));
        }
        self.new_stream(name, StreamSettings::default(), settings)?;
        Ok(StreamId(self.state.stream(name).expect("just made")))
    }

    /// Makes a stream of a name that there is none of.
    pub(crate) fn new_stream(
        &mut self,
        name: &str,
        set: StreamSettings,
        settings: &Settings,
    ) -> Result<Ticket, Refused> {
        let first = self.state.beginning_of(name);
        self.new_stream_at(name, first, set, settings)
    }

    pub(crate) fn new_stream_at(
        &mut self,
        name: &str,
        first: u64,
        set: StreamSettings,
        settings: &Settings,
    ) -> Result<Ticket, Refused> {
        let is_full = self.state.streams.len() >= settings.streams_max;
        if is_full || !(1..=255).contains(&name.len()) {
            return Err(Refused::TooMany);
        }
        if first > 0 || !set.is_default() {
            self.admit_needs(&set, settings)?;
        }
        self.admit_definition(name, settings)?;
        let id = if first == 0 && set.is_default() {
            let id = self.state.add_stream(name);
            self.group.put(|to| put_stream(to, id, name));
            id
        } else {
            let id = self.state.streams.next_number();
            self.state.set_stream(id, first, set, name);
            self.group
                .put(|to| put_stream_set(to, id, first, &set, name));
            id
        };
        if let Some(backlog) = &mut self.backlog {
            backlog.made(id, !settings.carries.takes(name));
        }
        Ok(self.defined())
    }

    pub(crate) fn producer(
        &mut self,
        stream: StreamId,
        name: &str,
        settings: &Settings,
    ) -> Result<ProducerId, Refused> {
        let lived_us = self.lived_us;
        if let Some(id) = self.state.producer(stream.0, name) {
            if let Some(producer) = self.state.find_mut(id) {
                producer.seen_us = producer.seen_us.max(lived_us);
            }
            return Ok(ProducerId(id));
        }
        if !self.state.streams.contains(stream.0) {
            return Err(Refused::NoStream);
        }
        if !(1..=255).contains(&name.len()) {
            return Err(Refused::TooMany);
        }
        // Checking all producers takes a while: once a second is enough.
        let is_due = self
            .pressed_us
            .is_none_or(|pressed| lived_us >= pressed.saturating_add(1_000_000));
        if self.state.producers() >= settings.producers_max && is_due {
            self.pressed_us = Some(lived_us);
            let hour = Duration::from_secs(3600).min(settings.producer_idle);
            let since = lived_us.saturating_sub(hour.as_micros() as u64);
            self.state.expire(since, self.settled, lived_us);
        }
        if self.state.producers() >= settings.producers_max {
            return Err(Refused::TooMany);
        }
        let id = self.state.next_producer().ok_or(Refused::TooMany)?;
        self.admit_definition(name, settings)?;
        self.state.add_producer(id, stream.0, lived_us, name);
        self.group
            .put(|to| put_producer(to, id, stream.0, lived_us, name));
        self.defined();
        Ok(ProducerId(id))
    }

    pub(crate) fn set_cursor(
        &mut self,
        stream: &str,
        name: &str,
        position: u64,
        settings: &Settings,
    ) -> Result<(), Refused> {
        let stream = self.state.stream(stream).ok_or(Refused::NoStream)?;
        let is_named = (1..=255).contains(&name.len());
        if !is_named || self.state.cursors_with(stream, name) > settings.cursors_max {
            return Err(Refused::TooMany);
        }
        if position > self.state.streams[stream].next {
            return Err(Refused::Beyond);
        }
        self.admit_definition(name, settings)?;
        self.state.set_cursor(stream, name, position);
        self.group.put(|to| put_cursor(to, stream, position, name));
        self.defined();
        Ok(())
    }
}
