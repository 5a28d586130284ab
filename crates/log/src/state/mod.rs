//! The state of the log beside the records: streams, producers with their marks, cursors. Appending
//! updates the state, a checkpoint saves it, and recovery rebuilds it from the newest checkpoint
//! and the runs behind it.

mod checkpoint;
mod replay;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::format::Needs;
use crate::numbered::Numbered;
use crate::{Compression, Mark, StreamSettings, Ticket};

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) streams: Numbered<Stream>,
    numbers: HashMap<Arc<str>, u32>,
    /// Streams whose names are lost.
    nameless: BTreeSet<u32>,
    /// Streams whose records are compressed.
    compressed: BTreeSet<u32>,
    /// Producers by their numbers. Ordered, so that a checkpoint is the same whenever the state is.
    producers: BTreeMap<u32, Producer>,
    last_producer: u32,
    cursors: usize,
    /// Forgotten producers, by a hash of their names, the oldest first.
    forgotten: VecDeque<u64>,
    /// Streams that were deleted, by a hash of their names, and where each ended; the oldest first.
    deleted: VecDeque<(u64, u64)>,
    /// Whether a stream was ever administered or deleted.
    administered: bool,
}

/// Most producers that are remembered as forgotten.
const FORGOTTEN_MAX: usize = 100_000;
/// Most deleted streams whose ends are remembered.
const DELETED_MAX: usize = 100_000;

/// Hash of a producer's name in a stream.
fn hash_of(stream: &str, name: &str) -> u64 {
    fnv(stream.bytes().chain([0xff]).chain(name.bytes()))
}

/// Remembers of a producer that it is forgotten, if it has appended anything.
fn forget(forgotten: &mut VecDeque<u64>, stream: &str, producer: &Producer) {
    if producer.mark.appended.is_some() {
        forgotten.push_back(hash_of(stream, &producer.name));
        let surplus = forgotten.len().saturating_sub(FORGOTTEN_MAX);
        forgotten.drain(..surplus);
    }
}

/// The prefix of names for streams whose names are lost: a [repair](crate::tools::repair) appends the stream's number,
/// which no other stream has. Such a stream may have had any name before the repair. So a new stream begins behind all
/// nameless streams, even deleted ones.
pub const NAMELESS: &str = "lost-stream-";
/// Stands for the name of a stream that is lost, where hashes of names do.
const ANY_NAME: u64 = 0;

/// Hash of the name of a stream that is deleted.
fn hash_of_deleted(name: &str) -> u64 {
    match name.starts_with(NAMELESS) {
        true => ANY_NAME,
        false => fnv(name.bytes()),
    }
}

/// FNV-1a.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) name: Arc<str>,
    /// The position of the next record to be appended.
    pub(crate) next: u64,
    /// Records before this position are not kept any more.
    pub(crate) trimmed: u64,
    /// Bytes of the records that are kept, as they are stored. Known only while the log is open.
    pub(crate) held: u64,
    pub(crate) settings: StreamSettings,
    /// The timestamp of the last record.
    pub(crate) newest_us: u64,
    /// The last note made about this stream, and in which group.
    pub(crate) noted: (u64, usize),
    pub(crate) producers: HashMap<Arc<str>, u32>,
    pub(crate) cursors: BTreeMap<Arc<str>, u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Producer {
    pub(crate) stream: u32,
    pub(crate) name: Arc<str>,
    pub(crate) mark: Mark,
    /// When the producer last sent a message, by the log's own clock, which counts the time that
    /// the log is open: setting the wall clock, or leaving the log closed for a month, makes no
    /// producer idle.
    pub(crate) seen_us: u64,
    /// How many times the producer is [held](crate::Log::hold): a held producer is not away.
    held: u32,
}

impl State {
    pub(crate) fn stream(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// A new stream, from position 0 on.
    pub(crate) fn add_stream(&mut self, name: &str) -> u32 {
        let id = self.streams.next_number();
        self.insert_stream(id, name);
        id
    }

    fn insert_stream(&mut self, id: u32, name: &str) -> &mut Stream {
        let name: Arc<str> = name.into();
        self.numbers.insert(name.clone(), id);
        if name.starts_with(NAMELESS) {
            self.nameless.insert(id);
        }
        let stream = Stream {
            name,
            next: 0,
            trimmed: 0,
            held: 0,
            settings: StreamSettings::default(),
            newest_us: 0,
            noted: (0, 0),
            producers: HashMap::new(),
            cursors: BTreeMap::new(),
        };
        self.streams.insert(id, stream);
        &mut self.streams[id]
    }

    /// Sets the settings of a stream; a new stream begins at `first`.
    pub(crate) fn set_stream(&mut self, id: u32, first: u64, settings: StreamSettings, name: &str) {
        self.administered = true;
        if !self.streams.contains(id) {
            let stream = self.insert_stream(id, name);
            (stream.next, stream.trimmed) = (first, first);
            // The stream remembers the producer from now on.
            let hash = fnv(name.bytes());
            self.deleted.retain(|&(deleted, _)| deleted != hash);
        }
        self.put_settings(id, settings);
    }

    fn put_settings(&mut self, id: u32, settings: StreamSettings) {
        match settings.compression {
            Compression::None => self.compressed.remove(&id),
            _ => self.compressed.insert(id),
        };
        self.streams[id].settings = settings;
    }

    /// Forgets a stream and everything about it, but for where it ended.
    pub(crate) fn delete_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.remove(id) else {
            return;
        };
        self.administered = true;
        self.numbers.remove(&stream.name);
        self.nameless.remove(&id);
        self.compressed.remove(&id);
        self.cursors -= stream.cursors.len();
        // Producers that were replaced by later ones of their names go as well.
        self.producers.retain(|_, producer| producer.stream != id);
        if stream.next > 0 {
            let hash = hash_of_deleted(&stream.name);
            self.deleted.push_back((hash, stream.next));
            let surplus = self.deleted.len().saturating_sub(DELETED_MAX);
            self.deleted.drain(..surplus);
        }
    }

    /// Has a stream of this name, which there is not yet, begin at this position: as behind one that was deleted.
    pub(crate) fn begin_at(&mut self, name: &str, first: u64) {
        if first > 0 {
            self.administered = true;
            self.deleted.push_back((hash_of_deleted(name), first));
        }
    }

    /// The end of deleted streams of this name.
    pub(crate) fn first_of(&self, name: &str) -> u64 {
        self.end_of_deleted(fnv(name.bytes()))
    }

    /// The first position of a new stream with this name: behind the last position of a deleted stream of
    /// that name, and of all streams whose names are lost, because this may have been their name.
    pub(crate) fn beginning_of(&self, name: &str) -> u64 {
        let nameless = self.nameless.iter().map(|&id| self.streams[id].next);
        let nameless = nameless.max().unwrap_or(0);
        let deleted = self.first_of(name).max(self.end_of_deleted(ANY_NAME));
        deleted.max(nameless)
    }

    fn end_of_deleted(&self, hash: u64) -> u64 {
        let ends = self.deleted.iter().filter(|(deleted, _)| *deleted == hash);
        ends.map(|&(_, next)| next).max().unwrap_or(0)
    }

    /// The records of a stream before a position are not kept any more.
    pub(crate) fn trim(&mut self, id: u32, position: u64) {
        self.administered = true;
        if let Some(stream) = self.streams.get_mut(id) {
            stream.trimmed = stream.trimmed.max(position);
        }
    }

    /// The features that a reader of later records must know.
    pub(crate) fn needs(&self) -> Needs {
        if !self.administered {
            return Needs::default();
        }
        match self.compressed.is_empty() {
            true => Needs::STREAMS,
            false => Needs::STREAMS.and(Needs::COMPRESSION),
        }
    }

    pub(crate) fn producer(&self, stream: u32, name: &str) -> Option<u32> {
        self.streams.get(stream)?.producers.get(name).copied()
    }

    /// The number that the next producer will have.
    pub(crate) fn next_producer(&self) -> Option<u32> {
        self.last_producer.checked_add(1)
    }

    pub(crate) fn add_producer(&mut self, id: u32, stream: u32, seen_us: u64, name: &str) {
        let name: Arc<str> = name.into();
        self.last_producer = self.last_producer.max(id);
        self.streams[stream].producers.insert(name.clone(), id);
        self.producers.insert(
            id,
            Producer {
                stream,
                name,
                mark: Mark::default(),
                seen_us,
                held: 0,
            },
        );
    }

    /// A producer with this one's name replaces it: this one had been forgotten.
    fn supersede(&mut self, producer: u32) {
        if let Some(producer) = self.producers.get(&producer) {
            let stream = &self.streams[producer.stream].name;
            forget(&mut self.forgotten, stream, producer);
        }
    }

    /// See [`Log::hold`](crate::Log::hold).
    pub(crate) fn hold(&mut self, producer: u32) -> bool {
        let producer = self.producers.get_mut(&producer);
        producer.map(|producer| producer.held += 1).is_some()
    }

    /// See [`Log::let_go`](crate::Log::let_go).
    pub(crate) fn let_go(&mut self, producer: u32, lived_us: u64) {
        // The producer may have been deleted with its stream.
        if let Some(producer) = self.producers.get_mut(&producer) {
            producer.held = producer.held.saturating_sub(1);
            producer.seen_us = producer.seen_us.max(lived_us);
        }
    }

    pub(crate) fn producer_count(&self) -> usize {
        self.producers.len()
    }

    /// All producers, by number.
    pub(crate) fn all_producers(&self) -> impl Iterator<Item = (u32, &Producer)> {
        self.producers.iter().map(|(&id, producer)| (id, producer))
    }

    pub(crate) fn producers(&self) -> usize {
        self.producers.len()
    }

    pub(crate) fn find(&self, producer: u32) -> Option<&Producer> {
        self.producers.get(&producer)
    }

    pub(crate) fn find_mut(&mut self, producer: u32) -> Option<&mut Producer> {
        self.producers.get_mut(&producer)
    }

    /// Forgets the producers that were not seen since; producers with batches behind `settled`,
    /// which are not committed yet, stay, and so do held ones, which are seen now.
    pub(crate) fn expire(&mut self, since_us: u64, settled: Ticket, lived_us: u64) {
        let streams = &mut self.streams;
        let forgotten = &mut self.forgotten;
        self.producers.retain(|id, producer| {
            if producer.held > 0 {
                producer.seen_us = producer.seen_us.max(lived_us);
                return true;
            }
            let keep = producer.seen_us >= since_us || producer.mark.ticket > settled;
            if !keep {
                let stream = &mut streams[producer.stream];
                // The producer may have been forgotten before, and come again.
                if stream.producers.get(&producer.name) == Some(id) {
                    stream.producers.remove(&producer.name);
                    forget(forgotten, &stream.name, producer);
                }
            }
            keep
        });
    }

    /// The mark of a producer.
    pub(crate) fn mark(&self, producer: u32) -> Mark {
        let Some(producer) = self.producers.get(&producer) else {
            return Mark::default();
        };
        let mark = producer.mark;
        let hash = || hash_of(&self.streams[producer.stream].name, &producer.name);
        Mark {
            forgotten: mark.appended.is_none() && self.forgotten.contains(&hash()),
            ..mark
        }
    }

    pub(crate) fn cursor(&self, stream: &str, name: &str) -> Option<u64> {
        let stream = self.stream(stream)?;
        self.streams[stream].cursors.get(name).copied()
    }

    /// All cursors: stream, name, position.
    pub(crate) fn cursors(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.streams.values().flat_map(|stream| {
            let cursors = stream.cursors.iter();
            cursors.map(|(name, &position)| (&*stream.name, &**name, position))
        })
    }

    /// How many cursors there would be with this one.
    pub(crate) fn cursors_with(&self, stream: u32, name: &str) -> usize {
        let is_new = !self.streams[stream].cursors.contains_key(name);
        self.cursors + usize::from(is_new)
    }

    pub(crate) fn remove_cursor(&mut self, stream: u32, name: &str) {
        if self.streams[stream].cursors.remove(name).is_some() {
            self.cursors -= 1;
        }
    }

    pub(crate) fn set_cursor(&mut self, stream: u32, name: &str, position: u64) {
        let cursors = &mut self.streams[stream].cursors;
        if let Some(place) = cursors.get_mut(name) {
            *place = position;
        } else {
            cursors.insert(name.into(), position);
            self.cursors += 1;
        }
    }
}
