//! Streams are administered.

use std::time::Duration;

use tidewire_log::{Change, ChangeRefused, Compression, Log, StreamSettings};

use super::World;
use crate::seeds::{Verdict, Violation, ensure, trace};

impl World {
    /// Deletes, makes or sets a stream.
    pub(super) fn administer(&mut self) -> Verdict {
        if self.model.streams.is_empty() {
            return Ok(());
        }
        let at = self.random.usize(0..self.model.streams.len());
        let name = self.model.streams[at].name.clone();
        let stream = &*name;
        let settings = self.draw_settings();
        let exists = self.model.streams[at].life.exists;
        let change = match (exists, self.random.u8(0..3)) {
            (true, 0) => Change::Delete { stream },
            (true, _) => Change::Set { stream, settings },
            (false, _) => Change::Create { stream, settings },
        };
        let wrong = match exists {
            true => (Change::Create { stream, settings }, ChangeRefused::Exists),
            false => (Change::Delete { stream }, ChangeRefused::NoStream),
        };
        let refused = self.log().administer(wrong.0);
        ensure(refused == Err(wrong.1), || {
            format!("{wrong:?}: {refused:?}")
        })?;
        let done = self.log().administer(change);
        trace(|| format!("{change:?}: {done:?}"));
        let ticket = match done {
            Ok(ticket) => ticket.0,
            Err(ChangeRefused::Log(refused)) => return self.refused(refused),
            Err(other) => return Err(Violation(format!("{change:?}: {other}"))),
        };
        self.model.changed(ticket)?;
        self.cursors.appended(ticket);
        let stream = &mut self.model.streams[at];
        match change {
            Change::Delete { .. } => {
                stream.life.deleted(ticket, stream.records.len());
                self.cursors.deleted(&name, ticket);
            }
            Change::Set { .. } | Change::DeleteCursor { .. } | Change::Trim { .. } => {
                stream.life.set(ticket, settings);
            }
            Change::Create { .. } => {
                stream.life.made(ticket, settings);
                let open = self.open.as_mut().expect("the log is open");
                let id = open.log.stream(&name);
                open.streams[at] = id.map_err(|why| Violation(format!("{name}: {why}")))?;
                for producer in &mut self.producers {
                    if producer.stream == at {
                        (producer.stale, producer.next_id) = (true, 1);
                    }
                }
            }
        }
        self.may_be_limited |= settings.limit_bytes.is_some();
        Ok(())
    }

    /// Deletes a cursor, which may not be there.
    pub(super) fn delete_cursor(&mut self, stream: &str, cursor: &str) -> Verdict {
        let exists = self.log().cursor(stream, cursor).is_some();
        let change = Change::DeleteCursor { stream, cursor };
        let done = self.log().administer(change);
        trace(|| format!("{change:?}: {done:?}"));
        match done {
            Ok(ticket) => {
                ensure(exists, || format!("{change:?}, which was not there"))?;
                self.model.changed(ticket.0)?;
                self.cursors.appended(ticket.0);
                self.cursors.gone(stream, cursor, ticket.0);
                Ok(())
            }
            Err(ChangeRefused::NoCursor) => ensure(!exists, || format!("{change:?}: {done:?}")),
            Err(ChangeRefused::Log(refused)) => self.refused(refused),
            Err(other) => Err(Violation(format!("{change:?}: {other}"))),
        }
    }

    fn draw_settings(&mut self) -> StreamSettings {
        let random = &mut self.random;
        let mut one_in = |of: u8| random.u8(0..of) == 0;
        let (bytes, age, limit) = (one_in(3), one_in(3), one_in(6));
        StreamSettings {
            retain_bytes: bytes.then(|| random.u64(0..40_000)),
            retain_age: age.then(|| Duration::from_secs(random.u64(5..100))),
            limit_bytes: limit.then(|| random.u64(1000..100_000)),
            compression: *random.choice(&Compression::ALL).expect("some"),
        }
    }

    /// Whether a producer has a number in this life of its stream, if that lives.
    pub(super) fn has_number(&mut self, at: usize) -> Verdict<bool> {
        let producer = &mut self.producers[at];
        let open = self.open.as_mut().expect("the log is open");
        if !producer.stale || !self.model.streams[producer.stream].life.exists {
            return Ok(true);
        }
        if producer.name.is_empty() {
            producer.stale = false;
            return Ok(true);
        }
        match open
            .log
            .producer(open.streams[producer.stream], &producer.name)
        {
            Ok(id) => {
                open.producers[at] = id;
                producer.stale = false;
                Ok(true)
            }
            Err(refused) => self.refused(refused).map(|()| false),
        }
    }
}
