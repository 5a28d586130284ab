//! Rebuilding the state from the runs of the log.

use super::State;
use crate::format::{CURSOR_GONE, Missing, RunView};

impl State {
    /// Applies a run to the state; an error if the run does not follow the state. `lived_us` is the
    /// log's own clock at the time.
    pub(crate) fn replay(&mut self, run: &RunView<'_>, lived_us: u64) -> Result<(), String> {
        match *run {
            RunView::Records(run) => {
                let Some(stream) = self.streams.get_mut(run.stream) else {
                    return Err(format!("records of the unknown stream {}", run.stream));
                };
                if run.first != stream.next {
                    let next = stream.next;
                    return Err(format!("position {} where {next} is the next", run.first));
                }
                stream.next += u64::from(run.count);
                stream.newest_us = stream.newest_us.max(run.timestamp_us);
                if run.producer != 0 {
                    let Some(producer) = self.producers.get_mut(&run.producer) else {
                        return Err(format!("records of the unknown producer {}", run.producer));
                    };
                    producer.mark.appended = producer.mark.appended.max(Some(run.last_id));
                    producer.seen_us = producer.seen_us.max(lived_us);
                }
            }
            RunView::Stream { id, name, .. } => {
                if id != self.streams.next_number() || self.stream(name).is_some() {
                    return Err(format!("stream {id} defined out of order"));
                }
                self.add_stream(name);
            }
            RunView::Producer {
                id,
                stream,
                seen_us,
                name,
                ..
            } => {
                if id == 0 || !self.streams.contains(stream) {
                    return Err(format!("producer {id} of the unknown stream {stream}"));
                }
                let before = self.producer(stream, name);
                self.add_producer(id, stream, seen_us, name);
                if let Some(before) = before.filter(|before| *before != id) {
                    self.supersede(before);
                }
            }
            RunView::Cursor {
                stream,
                position,
                name,
                ..
            } => {
                if !self.streams.contains(stream) {
                    return Err(format!("a cursor of the unknown stream {stream}"));
                }
                match position {
                    CURSOR_GONE => self.remove_cursor(stream, name),
                    position => self.set_cursor(stream, name, position),
                }
            }
            RunView::Checkpoint { bytes, form, .. } => {
                *self = State::decode(bytes, form).ok_or("a checkpoint that makes no sense")?;
            }
            RunView::StreamSet {
                id,
                first,
                settings,
                name,
                ..
            } => {
                let is_new = id == self.streams.next_number() && self.stream(name).is_none();
                if !is_new && self.stream(name) != Some(id) {
                    return Err(format!("settings of stream {id}, which is not {name:?}"));
                }
                self.set_stream(id, first, settings, name);
            }
            RunView::Deleted { id, .. } => {
                if !self.streams.contains(id) {
                    return Err(format!("the unknown stream {id} was deleted"));
                }
                self.delete_stream(id);
            }
            RunView::Trimmed {
                stream, position, ..
            } => {
                let next = self.streams.get(stream).map(|stream| stream.next);
                if next.is_none_or(|next| position > next) {
                    return Err(format!(
                        "stream {stream} kept from {position} on, of {next:?}"
                    ));
                }
                self.trim(stream, position);
            }
            RunView::Missing { bytes, .. } => {
                let (_, lost) = Missing::decode(bytes).ok_or("a gap that makes no sense")?;
                lost.into_iter().try_for_each(|lost| self.pass(lost))?;
            }
        }
        Ok(())
    }

    /// Lets a stream go on behind these positions.
    fn pass(&mut self, lost: Missing) -> Result<(), String> {
        let Some(stream) = self.streams.get_mut(lost.stream) else {
            return Err(format!("a gap in the unknown stream {}", lost.stream));
        };
        if lost.first != stream.next {
            let next = stream.next;
            return Err(format!("a gap at {} where {next} is the next", lost.first));
        }
        stream.next = lost.next;
        Ok(())
    }
}
