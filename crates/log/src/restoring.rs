//! How a log is made anew from a copy in another place: where its streams begin, which positions no longer exist
//! anywhere, and the marks of producers whose records are gone.
//!
//! The one idea: restoring needs no new kind of entry. A restored stream begins like one whose predecessor was deleted. Lost
//! positions are a gap as a repair writes it. Marks stand in the checkpoint of a segment that is begun for them.

use crate::disk::Disk;
use crate::format::Missing;
use crate::gather::Gather;
use crate::note::Turn;
use crate::settings::Settings;
use crate::{ChangeRefused, EmbeddedLog, ProducerId, Refused, StreamId, StreamSettings, Ticket};

impl Gather {
    fn begin_stream(
        &mut self,
        name: &str,
        first: u64,
        settings: &Settings,
    ) -> Result<StreamId, ChangeRefused> {
        if self.state.stream(name).is_some() {
            return Err(ChangeRefused::Exists);
        }
        let first = first.max(self.state.beginning_of(name));
        self.new_stream_at(name, first, StreamSettings::default(), settings)?;
        Ok(StreamId(self.state.stream(name).expect("just made")))
    }

    fn pass(&mut self, stream: StreamId, to: u64, settings: &Settings) -> Result<Ticket, Refused> {
        let of = self.state.streams.get(stream.0).ok_or(Refused::NoStream)?;
        let first = of.next;
        if to <= first {
            return Err(Refused::Beyond);
        }
        self.pass_gate(settings)?;
        if !self.group.is_empty() || self.reserved > 0 || self.growth.grown.is_some() {
            // A gap is a batch of its own.
            self.refused = true;
            return Err(Refused::Busy);
        }
        self.state.streams[stream.0].next = to;
        self.group.gap = Some(Missing {
            stream: stream.0,
            first,
            next: to,
        });
        self.group.turns.push(Turn::Passed(stream.0, first, to));
        Ok(self.defined())
    }

    fn remember(&mut self, producer: ProducerId, last: u64) -> Result<(), Refused> {
        let known = self.state.find_mut(producer.0).ok_or(Refused::Forgotten)?;
        known.mark.appended = known.mark.appended.max(Some(last));
        known.mark.forgotten = false;
        Ok(())
    }

    fn begin_segment(&mut self, settings: &Settings) -> Result<Ticket, Refused> {
        self.pass_gate(settings)?;
        if self.has_spare {
            self.begins_segment = true;
            return Ok(self.defined());
        }
        Err(self.want_segment(settings))
    }
}

impl<D: Disk> EmbeddedLog<D> {
    /// Makes a stream that begins at a position, or behind a deleted stream of the same name if
    /// that is later. For a caller that restores a log.
    ///
    /// # Errors
    /// [`ChangeRefused::Exists`], and as [`Log::stream`](crate::Log::stream).
    pub fn begin_stream(&self, name: &str, first: u64) -> Result<StreamId, ChangeRefused> {
        let mut gather = self.shared().gather();
        let begun = gather.begin_stream(name, first, &self.shared().settings);
        if begun.is_ok() {
            self.list_stream(&gather, name);
        }
        // The writer is woken even when the batch was refused: it may have to make room.
        self.shared().unpark(&mut gather);
        begun
    }

    /// Has a stream go on at a later position: what was between is lost, and readers are told so.
    /// For a caller that restores a log.
    ///
    /// # Errors
    /// [`Refused::Beyond`] if the position is not a later one; [`Refused::Busy`] until everything appended before is
    /// written; [`Refused::NoStream`], [`Refused::DiskFull`], [`Refused::Failed`].
    pub fn pass(&self, stream: StreamId, to: u64) -> Result<Ticket, Refused> {
        let mut gather = self.shared().gather();
        let passed = gather.pass(stream, to, &self.shared().settings);
        self.shared().unpark(&mut gather);
        passed
    }

    /// Sets the mark of a producer to at least `last`, as if the producer had appended that message.
    /// The next [`EmbeddedLog::begin_segment`] stores the mark. For a caller that restores a log.
    ///
    /// # Errors
    /// [`Refused::Forgotten`].
    pub fn remember(&self, producer: ProducerId, last: u64) -> Result<(), Refused> {
        self.shared().gather().remember(producer, last)
    }

    /// Begins a segment with the present state, marks included; the state is stored when the ticket
    /// is committed. For a caller that restores a log.
    ///
    /// # Errors
    /// [`Refused::Busy`], [`Refused::DiskFull`], [`Refused::Failed`].
    pub fn begin_segment(&self) -> Result<Ticket, Refused> {
        let mut gather = self.shared().gather();
        let begun = gather.begin_segment(&self.shared().settings);
        self.shared().unpark(&mut gather);
        begun
    }
}
