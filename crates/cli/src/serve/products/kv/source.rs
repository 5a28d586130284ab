//! The source of a follower: the records of a store's home in Kafka, and how current they are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire_kafka::{Polled, Reader, Settings as Home, Target};
use tidewire_kv::durable::{Heard, Source};
use tidewire_replicate::Currency;

/// How long a record is waited for at a time.
const POLL: Duration = Duration::from_millis(50);
/// Until a home that could not be read is read again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// How often the home is asked where it ends, and how long that may take.
const LOOK: Duration = Duration::from_secs(1);

/// The records of a home in Kafka.
pub(super) struct KafkaSource {
    target: Target,
    settings: Home,
    reader: Option<Reader>,
    /// The offset after the last one that was read.
    read: u64,
    start: Instant,
    currency: Currency,
    looked: Option<Instant>,
    opened: Option<Instant>,
    trouble: Option<Arc<str>>,
    is_silent: bool,
}

/// The state of reading from the home.
pub(super) struct Line {
    /// Why the home is not reached, or not read.
    pub(super) trouble: Option<Arc<str>>,
    /// How many offsets were not read, by the last answer.
    pub(super) missing: u64,
    /// The greatest age of the data that was read.
    pub(super) behind: Duration,
}

impl KafkaSource {
    pub(super) fn new(target: Target, settings: Home) -> KafkaSource {
        KafkaSource {
            target,
            settings,
            reader: None,
            read: 0,
            start: Instant::now(),
            currency: Currency::new(Duration::ZERO),
            looked: None,
            opened: None,
            trouble: None,
            is_silent: true,
        }
    }

    /// Skips records before this offset.
    pub(super) fn begin_at(&mut self, offset: u64) {
        self.read = offset;
        self.currency.read_to(offset);
    }

    pub(super) fn is_away(&self) -> bool {
        self.reader.is_none()
    }

    /// Whether the home has not answered for too long.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Asks where the home ends, if it is time for that; it may take a second when no broker
    /// answers.
    pub(super) fn look(&mut self) {
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        let Some(reader) = self.reader.as_ref().filter(|_| is_due) else {
            return;
        };
        let asked = self.start.elapsed();
        match reader.end(LOOK) {
            // A new leader may not know at once what is committed; a topic that was made anew never will.
            Ok(end) if end < self.read => {
                let read = self.read;
                self.fails(format!(
                    "the home ends at offset {end}, but this server has read it up to {read}: was the topic deleted and created again?"
                ));
            }
            Ok(end) => {
                self.currency.told(end, asked);
                self.is_read();
            }
            Err(_) => {}
        }
        // The time counts from here on: after a wait for an answer, records come first.
        self.looked = Some(Instant::now());
    }

    /// The present state of reading from the home. A change of the state is logged.
    pub(super) fn line(&mut self) -> Line {
        let now = self.start.elapsed();
        let silent = self.currency.silent(now);
        let trouble = match (&self.trouble, silent) {
            (Some(why), _) => Some(why.clone()),
            (None, Some(silent)) => {
                let seconds = silent.as_secs();
                Some(format!("no broker has answered for {seconds} s").into())
            }
            (None, None) => None,
        };
        if silent.is_some() != self.is_silent {
            self.is_silent = silent.is_some();
            match (silent, &trouble) {
                (Some(_), Some(why)) => tracing::warn!(
                    why = &**why,
                    "the home of the key-value store is not reached: reads from this server may be old"
                ),
                _ => tracing::info!("the home of the key-value store is reached"),
            }
        }
        Line {
            trouble,
            missing: self.currency.missing(),
            behind: self.currency.behind(now),
        }
    }

    pub(super) fn fails(&mut self, why: String) -> Arc<str> {
        let why: Arc<str> = why.into();
        if self.trouble.is_none() {
            tracing::warn!(
                why = &*why,
                "the home of the key-value store is not read for now"
            );
        }
        self.trouble = Some(why.clone());
        why
    }

    /// Notes that the home answers again, if it did not.
    fn is_read(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!("the home of the key-value store is read again");
        }
    }
}

impl Source for KafkaSource {
    fn next(&mut self, waits: bool) -> Result<Heard, Arc<str>> {
        if self.reader.is_none() {
            if self.opened.is_some_and(|at| at.elapsed() < AGAIN) {
                return Ok(Heard::Nothing);
            }
            self.opened = Some(Instant::now());
            let from = (self.read > 0).then_some(self.read);
            match Reader::open(&self.target, &self.settings, from) {
                Ok(reader) => self.reader = Some(reader),
                Err(why) => return Err(self.fails(why.to_string())),
            }
        }
        let Some(reader) = &mut self.reader else {
            return Ok(Heard::Nothing);
        };
        let heard = match reader.poll(if waits { POLL } else { Duration::ZERO }) {
            // Kafka's offsets only rise: another topic has taken the place of the one that was read.
            Ok(Polled::Record(found)) if found.offset < self.read => {
                return Ok(Heard::Remade(found.offset, self.read));
            }
            Ok(Polled::Unreadable(why)) => {
                let why: Arc<str> = why.into();
                tracing::error!(why = &*why, "a record at home cannot be read");
                return Ok(Heard::Unreadable(why));
            }
            Ok(Polled::Record(found)) => {
                self.begin_at(found.offset + 1);
                Heard::Record(found.record)
            }
            Ok(Polled::End) => Heard::End,
            Ok(Polled::Nothing) => {
                if let Some(ended) = reader.ended().filter(|_| waits) {
                    self.currency.read_to(ended);
                }
                return Ok(Heard::Nothing);
            }
            Err(why) => return Err(self.fails(why.to_string())),
        };
        self.is_read();
        Ok(heard)
    }
}
