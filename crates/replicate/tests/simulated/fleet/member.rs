//! A member: a log on a simulated disk, its writer, and a node.

use std::sync::Arc;
use std::time::Duration;

use tidewire_log::disk::sim::SimDisk;
use tidewire_log::{
    EmbeddedLog, Log, Now, ProducerId, Refused, Run, Settings, Tenure, Ticket, Writer,
};
use tidewire_replicate::{
    Guest, Member as Joining, Mistakes, Node, Owners, Settings as Replicating, Status, Whose,
};

use super::group::{Group, PARTITIONS};
use super::homes::Brokers;

pub(crate) struct Member {
    number: usize,
    disk: SimDisk,
    open: Option<Open>,
    /// Counts its lives: what is held of an earlier one means nothing.
    pub(crate) life: u64,
}

struct Open {
    log: Arc<EmbeddedLog<SimDisk>>,
    writer: Writer<SimDisk>,
    node: Node,
    owners: Owners,
}

/// What a producer is told, and what it is bound to.
pub(crate) struct Welcome {
    pub(crate) guest: Guest,
    pub(crate) producer: ProducerId,
    pub(crate) mark: Option<u64>,
}

impl Member {
    pub(crate) fn new(number: usize, disk: SimDisk) -> Member {
        Member {
            number,
            disk,
            open: None,
            life: 0,
        }
    }

    pub(crate) fn start(&mut self, group: &Group, brokers: &Brokers, mistakes: Mistakes) {
        let settings = Settings {
            segment_bytes: 64 << 10,
            group_bytes: 4 << 10,
            group_first: 4 << 10,
            payload_max: 1 << 10,
            backlog: Some(u64::MAX),
            identity: Some(7 + self.number as u64),
            ..Settings::default()
        };
        let replicating = Replicating {
            transaction_bytes: 200,
            transaction_records: 10,
            record_bytes: 60,
            linger: Duration::from_millis(3),
            answer_within: Duration::from_millis(300),
            retry_first: Duration::from_millis(5),
            retry_last: Duration::from_millis(50),
            after_fenced: Duration::from_millis(20),
            hand_over_within: Duration::from_millis(200),
            mistakes,
            ..Replicating::default()
        };
        let opened = EmbeddedLog::open(self.disk.clone(), settings);
        let (log, writer, _) = opened.expect("nothing is wrong with the disk");
        let log = Arc::new(log);
        self.life += 1;
        let mut session = (self.number as u64) << 48 | self.life << 24;
        let owners = Owners::default();
        let joining = Joining {
            partitions: PARTITIONS,
            homes: Box::new(brokers.clone()),
            membership: Box::new(group.join(self.number)),
            owners: owners.clone(),
            session: Box::new(move || {
                session += 1;
                session
            }),
        };
        let node = Node::new(log.clone(), log.identity(), replicating, joining);
        self.open = Some(Open {
            owners,
            node,
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
            open.node.step(now);
        }
    }

    pub(crate) fn log(&self) -> &EmbeddedLog<SimDisk> {
        &self.open.as_ref().expect("it runs").log
    }

    pub(crate) fn status(&self) -> Status {
        let open = self.open.as_ref().expect("it runs");
        open.node.shown().status()
    }

    pub(crate) fn whose(&self, partition: u32) -> Whose {
        self.open.as_ref().expect("it runs").owners.of(partition)
    }

    /// Welcomes a producer as a service does, or sends it away.
    pub(crate) fn welcome(
        &self,
        partition: u32,
        stream: &str,
        name: &str,
        waits_for_home: bool,
    ) -> Option<Welcome> {
        let log = &self.open.as_ref()?.log;
        let Whose::Held(hold) = self.whose(partition) else {
            return None;
        };
        let id = log.stream(stream).ok()?;
        let producer = log.producer(id, &hold.tenure().name(name)).ok()?;
        let mark = log.mark(producer);
        let has_come = match waits_for_home {
            true => hold.replicated().is_some_and(|home| mark.ticket <= home),
            false => mark.ticket <= log.progress().committed,
        };
        let mark = match mark.appended {
            Some(appended) => has_come.then_some(Some(appended))?,
            None => hold.mark(stream, name),
        };
        Some(Welcome {
            guest: hold.enter()?,
            producer,
            mark,
        })
    }

    /// Appends messages of these ids, whose payload is a number of their own.
    pub(crate) fn append(
        &self,
        stream: &str,
        producer: ProducerId,
        messages: &[(u64, u64)],
        now: Duration,
    ) -> Result<Ticket, Refused> {
        let log = self.log();
        let mut frames = Vec::new();
        for (id, nonce) in messages {
            frames.extend_from_slice(&id.to_le_bytes());
            frames.extend_from_slice(&8u32.to_le_bytes());
            frames.extend_from_slice(&nonce.to_le_bytes());
        }
        log.append(Run {
            stream: log.stream(stream)?,
            producer,
            frames: &frames,
            count: messages.len() as u32,
            last_id: messages.last().map_or(0, |message| message.0),
            timestamp_us: now.as_micros() as u64,
        })
    }

    /// Every record: its stream, its position, the tenure, and the number in its payload.
    pub(crate) fn records(&self) -> Vec<(Arc<str>, u64, Option<Tenure>, u64)> {
        let log = self.log();
        let mut all = Vec::new();
        for status in log.streams("", usize::MAX) {
            let mut next = status.range.first;
            while next < status.range.next {
                let read = log.read(&status.name, next, tidewire_log::Credit(1 << 20));
                let read = read.expect("it is there");
                for run in &read.runs {
                    let tenure = Tenure::split(&run.producer).1;
                    let numbers = run.bytes.chunks(20).map(|message| {
                        u64::from_le_bytes(message[12..].try_into().expect("a number"))
                    });
                    for (at, number) in numbers.enumerate() {
                        all.push((status.name.clone(), run.first + at as u64, tenure, number));
                    }
                }
                next = read.next;
            }
        }
        all
    }
}
