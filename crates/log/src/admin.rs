//! Administering streams: their settings, their creation and deletion, as runs of the log.
//!
//! The one idea: a change is a batch like any other, written and synced with its group, and in every
//! checkpoint from then on. So a backup contains the change, and a crash cannot tear it.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::catalog::{Catalog, Pins};
use crate::disk::Disk;
use crate::format::{CURSOR_GONE, Needs, put_cursor, put_deleted, put_stream_set, put_trimmed};
use crate::gather::{Another, Gate, Gather};
use crate::note::Turn;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::state::Stream;
use crate::{
    Change, ChangeRefused, Compression, CursorStatus, Range, Refused, StreamSettings, StreamStatus,
    Ticket,
};

impl Gather {
    pub(crate) fn administer(
        &mut self,
        change: Change<'_>,
        settings: &Settings,
    ) -> Result<Ticket, ChangeRefused> {
        let known = |name: &str| self.state.stream(name).ok_or(ChangeRefused::NoStream);
        match change {
            Change::Create {
                stream,
                settings: set,
            } => {
                set.fault()
                    .map_or(Ok(()), |why| Err(ChangeRefused::Setting(why)))?;
                if self.state.stream(stream).is_some() {
                    return Err(ChangeRefused::Exists);
                }
                Ok(self.new_stream(stream, set, settings)?)
            }
            Change::Set {
                stream,
                settings: set,
            } => {
                set.fault()
                    .map_or(Ok(()), |why| Err(ChangeRefused::Setting(why)))?;
                let id = known(stream)?;
                self.admit_needs(&set, settings)?;
                self.admit_change(stream, settings)?;
                let next = self.state.streams[id].next;
                self.state.set_stream(id, next, set, stream);
                self.group
                    .put(|to| put_stream_set(to, id, next, &set, stream));
                Ok(self.defined())
            }
            Change::Delete { stream } => {
                let id = known(stream)?;
                self.admit_needs(&StreamSettings::default(), settings)?;
                self.admit_change("", settings)?;
                self.state.delete_stream(id);
                self.group.put(|to| put_deleted(to, id));
                self.group.turns.push(Turn::Deleted(id));
                Ok(self.defined())
            }
            Change::Trim { stream, before } => {
                let id = known(stream)?;
                let next = self.state.streams[id].next;
                if before > next {
                    return Err(ChangeRefused::Beyond(next));
                }
                let home = self.backlog.as_ref().map(|backlog| backlog.home_of(id));
                if home.is_some_and(|home| home < before) {
                    return Err(ChangeRefused::NotHome);
                }
                Ok(self
                    .trim(id, before, settings)?
                    .unwrap_or(self.last_ticket()))
            }
            Change::DeleteCursor { stream, cursor } => {
                let id = known(stream)?;
                if self.state.cursor(stream, cursor).is_none() {
                    return Err(ChangeRefused::NoCursor);
                }
                self.admit_change(cursor, settings)?;
                self.state.remove_cursor(id, cursor);
                self.group.put(|to| put_cursor(to, id, CURSOR_GONE, cursor));
                Ok(self.defined())
            }
        }
    }

    /// The records of a stream before a position are not kept any more; nothing is to be said of that if they were not kept
    /// before.
    pub(crate) fn trim(
        &mut self,
        id: u32,
        position: u64,
        settings: &Settings,
    ) -> Result<Option<Ticket>, Refused> {
        let stream = self.state.streams.get(id);
        if stream.is_none_or(|stream| stream.trimmed >= position) {
            return Ok(None);
        }
        self.admit_needs(&StreamSettings::default(), settings)?;
        self.admit_change("", settings)?;
        self.state.trim(id, position);
        self.group.put(|to| put_trimmed(to, id, position));
        self.group.turns.push(Turn::Trimmed(id, position));
        Ok(Some(self.defined()))
    }

    /// Whether what is set so may be written: it may take another segment, for which there must be room.
    pub(crate) fn admit_needs(
        &mut self,
        set: &StreamSettings,
        settings: &Settings,
    ) -> Result<(), Refused> {
        let mut needs = self.state.needs().and(Needs::STREAMS);
        if set.compression != Compression::None {
            needs = needs.and(Needs::COMPRESSION);
        }
        if self.ready_for.has(needs) || self.gate == Gate::Shut {
            return Ok(());
        }
        Err(self.want_segment(settings))
    }

    /// Has the writer make another segment; what its caller is told meanwhile.
    pub(crate) fn want_segment(&mut self, settings: &Settings) -> Refused {
        match self.another {
            Another::DiskFull => {
                self.another = Another::Unasked;
                let retry_after = settings.full_retry;
                return Refused::DiskFull { retry_after };
            }
            Another::Unasked => self.another = Another::Wanted,
            Another::Wanted | Another::Blocked => {}
        }
        self.refused = true;
        Refused::Busy
    }

    /// A change that makes room is taken even on a full disk: in the segment in use, or in the space that
    /// is reserved for such changes.
    fn admit_change(&mut self, name: &str, settings: &Settings) -> Result<(), Refused> {
        let needed = CHANGE_BYTES + name.len();
        match self.gate {
            Gate::Reserve => return self.admit_to_make_room(needed, 0, settings),
            Gate::DiskFull if needed <= self.room_left => {
                self.room_left -= needed;
                return Ok(());
            }
            _ => {}
        }
        self.admit_definition(name, settings)
    }
}

/// More than a change takes beside the name of a stream.
const CHANGE_BYTES: usize = 64;

impl<D: Disk> Shared<D> {
    /// The streams behind a name, by their names, with their states.
    pub(crate) fn statuses(&self, after: &str, most: usize) -> Vec<StreamStatus> {
        let gather = self.gather();
        let streams = gather.state.streams.values();
        let streams = streams.filter(|stream| &*stream.name > after);
        let mut named: BTreeMap<_, _> = BTreeMap::new();
        for stream in streams {
            named.insert(stream.name.clone(), status(stream));
            if named.len() > most {
                named.pop_last();
            }
        }
        drop(gather);
        let catalog = self.catalog();
        let pins = catalog.pins();
        let status = named
            .into_values()
            .map(|status| committed(status, &catalog, &pins));
        status.collect()
    }

    /// The state of a stream.
    pub(crate) fn status(&self, name: &str) -> Option<StreamStatus> {
        let gather = self.gather();
        let id = gather.state.stream(name)?;
        let status = status(&gather.state.streams[id]);
        drop(gather);
        let catalog = self.catalog();
        Some(committed(status, &catalog, &catalog.pins()))
    }

    /// The cursors of a stream behind a name, by their names.
    pub(crate) fn cursor_statuses(
        &self,
        stream: &str,
        after: &str,
        most: usize,
    ) -> Vec<CursorStatus> {
        let next = self
            .catalog()
            .find(stream)
            .map_or(0, |(_, stream)| stream.next);
        let gather = self.gather();
        let Some(id) = gather.state.stream(stream) else {
            return Vec::new();
        };
        let stream = &gather.state.streams[id];
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        let cursors = stream.cursors.range::<str, _>(behind).take(most);
        let status = cursors.map(|(name, &position)| CursorStatus {
            stream: stream.name.clone(),
            name: name.clone(),
            position,
            lag: next.saturating_sub(position),
        });
        status.collect()
    }
}

fn status(stream: &Stream) -> StreamStatus {
    let (first, next) = (stream.next, stream.next);
    let least = stream.cursors.values().min().copied();
    StreamStatus {
        name: stream.name.clone(),
        range: Range { first, next },
        bytes: 0,
        pins: 0,
        newest_us: stream.newest_us,
        settings: stream.settings,
        producers: stream.producers.len(),
        cursors: stream.cursors.len(),
        lag: least.map_or(0, |least| next.saturating_sub(least)),
    }
}

/// Adds the facts that readers see of the stream.
fn committed(mut status: StreamStatus, catalog: &Catalog, pins: &Pins) -> StreamStatus {
    if let Some((id, stream)) = catalog.find(&status.name) {
        let uncommitted = status.range.next.saturating_sub(stream.next);
        status.lag = status.lag.saturating_sub(uncommitted);
        (status.range, status.bytes) = (stream.range(), stream.held);
        status.pins = pins.of(id);
    }
    status
}
