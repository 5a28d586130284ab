//! What producers, readers and the wear of time do to a log.

use tidewire_log::disk::Disk;
use tidewire_log::{Begin, Log, ProducerId, Refused, Run, Ticket};

use super::{Harm, Kind, Producer, World};
use crate::model::{Record, Stream};
use crate::reading;
use crate::seeds::{Verdict, Violation, ensure, trace};

impl World {
    /// Appends a batch of some producer; its ticket and length, `None` if it was refused.
    pub(crate) fn append(&mut self) -> Verdict<Option<(Ticket, usize)>> {
        if self.producers.is_empty() {
            self.new_producer()?;
            if self.producers.is_empty() {
                return Ok(None);
            }
        }
        let at = self.random.usize(0..self.producers.len());
        if !self.has_number(at)? {
            return Ok(None);
        }
        let records = self.batch(at);
        let mut frames = Vec::new();
        for record in &records {
            frames.extend_from_slice(&record.id.to_le_bytes());
            frames.extend_from_slice(&u32::try_from(record.payload.len()).unwrap().to_le_bytes());
            frames.extend_from_slice(&record.payload);
        }
        let stream = self.producers[at].stream;
        let open = self.open.as_ref().expect("the log is open");
        let last_id = records.last().expect("batches are not empty").id;
        let taken = open.log.append(Run {
            stream: open.streams[stream],
            producer: open.producers[at],
            frames: &frames,
            count: u32::try_from(records.len()).unwrap(),
            last_id,
            timestamp_us: self.now_us,
        });
        trace(|| {
            let name = &self.producers[at].name;
            format!(
                "append to {stream} by {name:?}: {} up to id {last_id}, {} bytes: {taken:?}",
                records.len(),
                frames.len()
            )
        });
        match taken {
            Ok(ticket) => {
                self.producers[at].next_id = last_id + 1;
                self.model.streams[stream].records.extend(records);
                self.model.accepted(ticket.0, stream)?;
                self.cursors.appended(ticket.0);
                Ok(Some((ticket, frames.len())))
            }
            Err(Refused::NoStream) => {
                let life = &self.model.streams[stream].life;
                ensure(!life.exists, || format!("{stream} is not there: {life:?}"))?;
                Ok(None)
            }
            Err(refused) => self.refused(refused).map(|()| None),
        }
    }

    pub(super) fn new_stream(&mut self) -> Verdict {
        if self.model.streams.len() == self.profile.streams_max {
            return Ok(());
        }
        let name = format!("stream {}", self.model.streams.len());
        let open = self.open.as_mut().expect("the log is open");
        match open.log.stream(&name) {
            Ok(id) => open.streams.push(id),
            Err(refused) => return self.refused(refused),
        }
        self.model.streams.push(Stream::new(name));
        Ok(())
    }

    pub(super) fn new_producer(&mut self) -> Verdict {
        if self.producers.len() == self.profile.producers_max {
            return Ok(());
        }
        if self.model.streams.is_empty() {
            self.new_stream()?;
        }
        if self.model.streams.is_empty() {
            return Ok(());
        }
        let stream = self.random.usize(0..self.model.streams.len());
        if !self.model.streams[stream].life.exists {
            return Ok(());
        }
        let anonymous = self.random.u8(0..5) == 0;
        let name = if anonymous {
            String::new()
        } else {
            format!("p{}", self.producers.len())
        };
        let open = self.open.as_mut().expect("the log is open");
        let id = match name.is_empty() {
            true => Ok(ProducerId::ANONYMOUS),
            false => open.log.producer(open.streams[stream], &name),
        };
        match id {
            Ok(id) => open.producers.push(id),
            Err(refused) => return self.refused(refused),
        }
        self.producers.push(Producer {
            stream,
            name,
            next_id: 1,
            stale: false,
        });
        Ok(())
    }

    pub(super) fn read_somewhere(&mut self) -> Verdict {
        if self.model.streams.is_empty() {
            return Ok(());
        }
        let stream = &self.model.streams[self.random.usize(0..self.model.streams.len())];
        if stream.life.seen() != Some(true) {
            return Ok(());
        }
        let from = self.random.u64(stream.first..=stream.committed as u64);
        let credit = self.random.usize(0..5000);
        match reading::once(self.log(), stream, from, credit)? {
            Err(error) if self.disk.has_power() => Err(Violation(format!(
                "{}: reading at {from}: {error}",
                stream.name
            ))),
            _ => Ok(()),
        }
    }

    pub(super) fn locate_somewhere(&mut self) -> Verdict {
        let Some(stream) = self.random.choice(&self.model.streams) else {
            return Ok(());
        };
        if stream.life.seen() != Some(true) {
            return Ok(());
        }
        let time_us = match self.random.choice(&stream.records) {
            Some(record) => record.timestamp_us + self.random.u64(0..2),
            None => self.now_us,
        };
        let kept = stream.first as usize..stream.committed;
        let later = stream.records[kept].partition_point(|record| record.timestamp_us < time_us);
        let expected = stream.first + later as u64;
        match self.log().locate(&stream.name, Begin::Timestamp(time_us)) {
            Err(_) if !self.disk.has_power() => Ok(()),
            found => ensure(found == Ok(expected), || {
                format!(
                    "{}: {time_us} us is at {found:?} instead of {expected}",
                    stream.name
                )
            }),
        }
    }

    pub(super) fn set_cursor(&mut self) -> Verdict {
        let Some(stream) = self.random.choice(&self.model.streams) else {
            return Ok(());
        };
        if !stream.life.exists {
            return Ok(());
        }
        let name = format!("cursor {}", self.random.u8(0..3));
        let next = stream.records.len() as u64;
        let stream = stream.name.clone();
        let position = self.random.u64(0..=next);
        let beyond = self.log().set_cursor(&stream, &name, next + 1);
        ensure(beyond != Ok(()), || {
            format!("{stream}: a cursor beyond {next}")
        })?;
        // Not drawn: what seeds have found before they are to find again.
        if position % 5 == 4 {
            return self.delete_cursor(&stream, &name);
        }
        match self.log().set_cursor(&stream, &name, position) {
            Ok(()) => {
                self.cursors.set(stream, name, position);
                Ok(())
            }
            Err(refused) => self.refused(refused),
        }
    }

    /// Turns over a bit of some file, mostly of a byte that is in use; `None` if there is no file.
    pub(crate) fn flip(&mut self) -> Option<Harm> {
        let names = self.disk.names();
        let file = self.random.choice(&names)?.clone();
        let bytes = self.disk.contents(&file).expect("it is listed");
        let used = bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte != 0)
            .map(|(at, _)| at);
        let used = used.collect::<Vec<_>>();
        let offset = match self.random.choice(&used) {
            Some(used) if self.random.u8(0..8) > 0 => *used,
            _ => self.random.usize(0..bytes.len().max(1)),
        };
        let (offset, bit) = (offset as u64, self.random.u8(0..8));
        let before = self.disk.fork();
        self.disk.flip(&file, offset, bit);
        let kind = Kind::Flip { offset, bit };
        trace(|| format!("{kind:?} in {file}"));
        Some(Harm { file, kind, before })
    }

    /// Removes a segment, mostly the newest; `None` if there is none.
    pub(crate) fn remove_segment(&mut self) -> Option<Harm> {
        let names = self.disk.names();
        let segments = names.iter().filter(|name| name.ends_with(".seg"));
        let segments = segments.collect::<Vec<_>>();
        let file = match self.random.u8(0..4) {
            0 => self.random.choice(&segments)?.to_string(),
            _ => segments.last()?.to_string(),
        };
        let before = self.disk.fork();
        self.disk.remove(&file).expect("it is listed");
        let kind = Kind::Removal;
        trace(|| format!("{kind:?} of {file}"));
        Some(Harm { file, kind, before })
    }

    /// Makes it undone.
    pub(crate) fn undo(&mut self, harm: Harm) {
        self.disk = harm.before;
    }

    fn batch(&mut self, producer: usize) -> Vec<Record> {
        let largest = self.settings.payload_max as usize;
        let mut id = self.producers[producer].next_id;
        let count = self.random.u32(1..=self.profile.batch_max);
        let mut room = self.settings.group_bytes - 48;
        let mut records = Vec::new();
        for _ in 0..count {
            if self.profile.sparse {
                id += self.random.u64(0..3);
            }
            self.nonce += 1;
            let size = self.profile.size(&mut self.random, largest.min(room - 12));
            let payload = self
                .nonce
                .to_le_bytes()
                .into_iter()
                .cycle()
                .take(size)
                .collect();
            let producer = self.producers[producer].name.clone();
            records.push(Record {
                id,
                producer,
                timestamp_us: self.now_us,
                payload,
            });
            id += 1;
            room -= 12 + size;
            if room < 12 {
                break;
            }
        }
        records
    }

    pub(super) fn refused(&mut self, refused: Refused) -> Verdict {
        self.full |= matches!(refused, Refused::DiskFull { .. });
        let fine = match refused {
            Refused::Busy => true,
            // Without power too: that room cannot be reserved does not mean that there is none.
            Refused::DiskFull { .. } => self.may_be_full,
            Refused::Failed => self.log().progress().failure.is_some(),
            Refused::TooLarge
            | Refused::TooMany
            | Refused::Forgotten
            | Refused::Beyond
            | Refused::NoStream => false,
            Refused::StreamFull { .. } => self.may_be_limited,
        };
        ensure(fine, || format!("refused: {refused}"))
    }
}
