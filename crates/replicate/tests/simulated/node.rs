//! A node: a log on a simulated disk, its writer, and a replicator.

use std::sync::Arc;
use std::time::Duration;

use tidewire_log::disk::sim::SimDisk;
use tidewire_log::{
    Change, EmbeddedLog, Log, Now, ProducerId, Progress, Refused, Run, Selection, Settings, Ticket,
    Writer,
};
use tidewire_replicate::{Cursors, Mistakes, Replicator, Settings as Replicating};

use crate::home::{Cluster, RECORDS_MAX, SimHome};

/// How all nodes of a world carry.
#[derive(Clone)]
pub(crate) struct Carriage {
    /// See [`Replicating::transaction_bytes`].
    pub(crate) bytes: usize,
    /// See [`Replicating::record_bytes`].
    pub(crate) record: usize,
    pub(crate) streams: Selection,
    pub(crate) mistakes: Mistakes,
}

pub(crate) struct Node {
    disk: SimDisk,
    open: Option<Open>,
    /// Counts its lives: what is held of an earlier one means nothing.
    pub(crate) life: u64,
}

struct Open {
    log: Arc<EmbeddedLog<SimDisk>>,
    writer: Writer<SimDisk>,
    replicator: Replicator,
    home: SimHome,
}

impl Node {
    pub(crate) fn new(disk: SimDisk) -> Node {
        Node {
            disk,
            open: None,
            life: 0,
        }
    }

    /// Starts its process. `session` is used once.
    pub(crate) fn start(&mut self, session: u64, cluster: &Cluster, carriage: &Carriage) {
        let settings = Settings {
            segment_bytes: 64 << 10,
            group_bytes: 4 << 10,
            group_first: 4 << 10,
            payload_max: 1 << 10,
            backlog: Some(u64::MAX),
            carries: carriage.streams.clone(),
            identity: Some(7),
            ..Settings::default()
        };
        let replicating = Replicating {
            transaction_bytes: carriage.bytes,
            transaction_records: RECORDS_MAX,
            record_bytes: carriage.record,
            linger: Duration::from_millis(3),
            answer_within: Duration::from_millis(300),
            retry_first: Duration::from_millis(5),
            retry_last: Duration::from_millis(50),
            after_fenced: Duration::from_millis(20),
            hand_over_within: Duration::from_millis(200),
            cursors_every: Duration::from_millis(20),
            mistakes: carriage.mistakes,
            ..Replicating::default()
        };
        let opened = EmbeddedLog::open(self.disk.clone(), settings);
        let (log, writer, _) = opened.expect("nothing is wrong with the disk");
        let log = Arc::new(log);
        self.life += 1;
        self.open = Some(Open {
            replicator: Replicator::new(log.clone(), log.identity(), session, replicating),
            home: SimHome::new(cluster, session),
            log,
            writer,
        });
    }

    /// Ends its process, with its disk as a power cut leaves it or as a kill does.
    pub(crate) fn end(&mut self, is_crash: bool) {
        self.open = None;
        self.disk = if is_crash {
            self.disk.crash()
        } else {
            self.disk.kill()
        };
    }

    /// A copy of its disk, made while it runs.
    pub(crate) fn copy(&self) -> SimDisk {
        self.disk.fork()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn write(&mut self, now: Duration) {
        if let Some(open) = &mut self.open {
            let unix_us = now.as_micros() as u64;
            open.writer.step(Now {
                monotonic: now,
                unix_us,
            });
        }
    }

    pub(crate) fn carry(&mut self, now: Duration) {
        if let Some(open) = &mut self.open {
            open.replicator.step(now, &mut open.home);
        }
    }

    /// Moves a reader's cursor, or removes it. Where the log has no room for that, it stays.
    pub(crate) fn set_cursor(&self, stream: &str, name: &str, back: Option<u64>) {
        let Some(open) = &self.open else { return };
        let Some(status) = open.log.stream_status(stream) else {
            return;
        };
        let _ = match back {
            Some(back) => {
                let position = status.range.next.saturating_sub(back);
                open.log.set_cursor(stream, name, position)
            }
            None => {
                let cursor = name;
                let gone = open.log.administer(Change::DeleteCursor { stream, cursor });
                gone.map(drop).map_err(|_| Refused::Busy)
            }
        };
    }

    /// The cursors of readers in its log.
    pub(crate) fn cursors(&self) -> Cursors {
        let Some(open) = &self.open else {
            return Cursors::new();
        };
        let streams = open.log.streams("", usize::MAX).into_iter();
        let all = streams.flat_map(|stream| open.log.cursors(&stream.name, "", usize::MAX));
        let readers = all.filter(|cursor| !cursor.name.starts_with('@'));
        readers
            .map(|cursor| ((cursor.stream, cursor.name), cursor.position))
            .collect()
    }

    pub(crate) fn progress(&self) -> Progress {
        self.open
            .as_ref()
            .map(|open| open.log.progress())
            .unwrap_or_default()
    }

    /// How much waits for the home; bytes.
    pub(crate) fn backlog(&self) -> u64 {
        let open = self.open.as_ref();
        open.map_or(0, |open| open.log.backlog_bytes())
    }

    /// The mark of a producer, which is in one stream, if all it has is at home, or is not to be there: what a welcome says.
    pub(crate) fn welcome(
        &self,
        stream: &str,
        producer: &str,
    ) -> Option<(ProducerId, Option<u64>)> {
        let open = self.open.as_ref()?;
        let comes_home = open.log.comes_home(stream);
        let id = open.log.stream(stream).ok()?;
        let producer = open.log.producer(id, producer).ok()?;
        let mark = open.log.mark(producer);
        let progress = open.log.progress();
        let is_home = progress
            .replicated
            .is_some_and(|replicated| mark.ticket <= replicated);
        (!comes_home || progress.replicates && is_home).then_some((producer, mark.appended))
    }

    /// Appends messages of these ids, whose payload is their id.
    pub(crate) fn append(
        &self,
        stream: &str,
        producer: ProducerId,
        ids: std::ops::RangeInclusive<u64>,
        now: Duration,
    ) -> Result<Ticket, Refused> {
        let open = self.open.as_ref().expect("it is connected to");
        let mut frames = Vec::new();
        for id in ids.clone() {
            frames.extend_from_slice(&id.to_le_bytes());
            frames.extend_from_slice(&8u32.to_le_bytes());
            frames.extend_from_slice(&id.to_le_bytes());
        }
        open.log.append(Run {
            stream: open.log.stream(stream)?,
            producer,
            frames: &frames,
            count: ids.clone().count() as u32,
            last_id: *ids.end(),
            timestamp_us: now.as_micros() as u64,
        })
    }
}
