//! What the log knows beside the records: streams, producers with their marks, cursors. Appending
//! keeps it up to date, a checkpoint writes it down, recovery builds it again from the newest
//! checkpoint and what follows.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::format::{Missing, RunView, u32_at, u64_at};
use crate::{Mark, Ticket};

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) streams: Vec<Stream>,
    numbers: HashMap<Arc<str>, u32>,
    /// By number. Ordered, so that a checkpoint is the same whenever the state is.
    producers: BTreeMap<u32, Producer>,
    last_producer: u32,
    cursors: usize,
    /// Those that were forgotten, by a hash of their names, the oldest first.
    forgotten: VecDeque<u64>,
}

/// Most producers that are remembered as forgotten.
const FORGOTTEN_MAX: usize = 100_000;

/// Of a producer's name in a stream (FNV-1a).
fn hash_of(stream: &str, name: &str) -> u64 {
    let bytes = stream.bytes().chain([0xff]).chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) name: Arc<str>,
    /// The position of the next record to be appended.
    pub(crate) next: u64,
    /// The timestamp of the last record.
    pub(crate) newest_us: u64,
    /// The last note made about this stream, and in which group.
    pub(crate) noted: (u64, usize),
    producers: HashMap<Arc<str>, u32>,
    cursors: BTreeMap<Box<str>, u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Producer {
    pub(crate) stream: u32,
    pub(crate) name: Arc<str>,
    pub(crate) mark: Mark,
    /// When it was last heard of, by the log's own clock, which counts the time that the log is
    /// open: setting the wall clock, or leaving the log closed for a month, makes nobody idle.
    pub(crate) seen_us: u64,
}

impl State {
    pub(crate) fn stream(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn add_stream(&mut self, name: &str) -> u32 {
        let id = self.streams.len() as u32;
        let name: Arc<str> = name.into();
        self.numbers.insert(name.clone(), id);
        self.streams.push(Stream {
            name,
            next: 0,
            newest_us: 0,
            noted: (0, 0),
            producers: HashMap::new(),
            cursors: BTreeMap::new(),
        });
        id
    }

    pub(crate) fn producer(&self, stream: u32, name: &str) -> Option<u32> {
        self.streams[stream as usize].producers.get(name).copied()
    }

    /// The number that the next producer will have.
    pub(crate) fn next_producer(&self) -> Option<u32> {
        self.last_producer.checked_add(1)
    }

    pub(crate) fn add_producer(&mut self, id: u32, stream: u32, seen_us: u64, name: &str) {
        let name: Arc<str> = name.into();
        self.last_producer = self.last_producer.max(id);
        self.streams[stream as usize]
            .producers
            .insert(name.clone(), id);
        self.producers.insert(
            id,
            Producer {
                stream,
                name,
                mark: Mark::default(),
                seen_us,
            },
        );
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

    /// Forgets the producers that were not seen since; those with batches behind `settled`, which
    /// are not committed yet, stay.
    pub(crate) fn expire(&mut self, since_us: u64, settled: Ticket) {
        let streams = &mut self.streams;
        let forgotten = &mut self.forgotten;
        self.producers.retain(|_, producer| {
            let keep = producer.seen_us >= since_us || producer.mark.ticket > settled;
            if !keep {
                let stream = &mut streams[producer.stream as usize];
                stream.producers.remove(&producer.name);
                if producer.mark.appended.is_some() {
                    forgotten.push_back(hash_of(&stream.name, &producer.name));
                }
            }
            keep
        });
        let surplus = forgotten.len().saturating_sub(FORGOTTEN_MAX);
        forgotten.drain(..surplus);
    }

    /// What is known of a producer.
    pub(crate) fn mark(&self, producer: u32) -> Mark {
        let Some(producer) = self.producers.get(&producer) else {
            return Mark::default();
        };
        let mark = producer.mark;
        let hash = || hash_of(&self.streams[producer.stream as usize].name, &producer.name);
        Mark {
            forgotten: mark.appended.is_none() && self.forgotten.contains(&hash()),
            ..mark
        }
    }

    pub(crate) fn cursor(&self, stream: &str, name: &str) -> Option<u64> {
        let stream = self.stream(stream)?;
        self.streams[stream as usize].cursors.get(name).copied()
    }

    /// All cursors: stream, name, position.
    pub(crate) fn cursors(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.streams.iter().flat_map(|stream| {
            let cursors = stream.cursors.iter();
            cursors.map(|(name, &position)| (&*stream.name, &**name, position))
        })
    }

    /// How many cursors there would be with this one.
    pub(crate) fn cursors_with(&self, stream: u32, name: &str) -> usize {
        let is_new = !self.streams[stream as usize].cursors.contains_key(name);
        self.cursors + usize::from(is_new)
    }

    pub(crate) fn set_cursor(&mut self, stream: u32, name: &str, position: u64) {
        let cursors = &mut self.streams[stream as usize].cursors;
        if let Some(place) = cursors.get_mut(name) {
            *place = position;
        } else {
            cursors.insert(name.into(), position);
            self.cursors += 1;
        }
    }

    /// Applies a run that follows what is known; the reason why it does not, otherwise.
    /// `lived_us` is the log's own clock at the time.
    pub(crate) fn replay(&mut self, run: &RunView<'_>, lived_us: u64) -> Result<(), String> {
        match *run {
            RunView::Records(run) => {
                let Some(stream) = self.streams.get_mut(run.stream as usize) else {
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
                if id as usize != self.streams.len() || self.stream(name).is_some() {
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
                if id == 0 || stream as usize >= self.streams.len() {
                    return Err(format!("producer {id} of the unknown stream {stream}"));
                }
                self.add_producer(id, stream, seen_us, name);
            }
            RunView::Cursor {
                stream,
                position,
                name,
                ..
            } => {
                if stream as usize >= self.streams.len() {
                    return Err(format!("a cursor of the unknown stream {stream}"));
                }
                self.set_cursor(stream, name, position);
            }
            RunView::Checkpoint { bytes, before, .. } => {
                *self = State::decode(bytes, before).ok_or("a checkpoint that makes no sense")?;
            }
            RunView::Missing { bytes, .. } => {
                let (_, lost) = Missing::decode(bytes).ok_or("a gap that makes no sense")?;
                for lost in lost {
                    let Some(stream) = self.streams.get_mut(lost.stream as usize) else {
                        return Err(format!("a gap in the unknown stream {}", lost.stream));
                    };
                    if lost.first != stream.next {
                        let next = stream.next;
                        return Err(format!("a gap at {} where {next} is the next", lost.first));
                    }
                    stream.next = lost.next;
                }
            }
        }
        Ok(())
    }

    /// The content of a checkpoint.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        put_u32(to, self.streams.len() as u32);
        for stream in &self.streams {
            put_u64(to, stream.next);
            put_u64(to, stream.newest_us);
            put_name(to, &stream.name);
        }
        put_u32(to, self.last_producer);
        put_u32(to, self.producers.len() as u32);
        for (&id, producer) in &self.producers {
            put_u32(to, id);
            put_u32(to, producer.stream);
            put_u64(to, producer.seen_us);
            to.push(u8::from(producer.mark.appended.is_some()));
            put_u64(to, producer.mark.appended.unwrap_or(0));
            put_name(to, &producer.name);
        }
        put_u32(to, self.cursors as u32);
        for (id, stream) in self.streams.iter().enumerate() {
            for (name, &position) in &stream.cursors {
                put_u32(to, id as u32);
                put_u64(to, position);
                put_name(to, name);
            }
        }
        put_u32(to, self.forgotten.len() as u32);
        self.forgotten.iter().for_each(|&hash| put_u64(to, hash));
    }

    /// About how many bytes [`State::encode`] appends; never fewer.
    pub(crate) fn encoded_len(&self) -> u64 {
        let named = |fixed: u64, count: usize| (fixed + 256) * count as u64;
        20 + named(16, self.streams.len())
            + named(25, self.producers.len())
            + named(12, self.cursors)
            + 8 * (self.forgotten.len() + self.producers.len()) as u64
    }

    /// The state in a checkpoint. In the form of version 1 times are of the wall clock: then
    /// everybody counts as just seen.
    pub(crate) fn decode(bytes: &[u8], before: bool) -> Option<State> {
        let mut from = Cut(bytes);
        let mut state = State::default();
        for _ in 0..from.u32()? {
            let (next, newest_us) = (from.u64()?, from.u64()?);
            let id = state.add_stream(from.name()?);
            let stream = &mut state.streams[id as usize];
            (stream.next, stream.newest_us) = (next, newest_us);
        }
        let last_producer = from.u32()?;
        for _ in 0..from.u32()? {
            let (id, stream, seen_us) = (from.u32()?, from.u32()?, from.u64()?);
            let (has_mark, last_id) = (from.u8()? != 0, from.u64()?);
            if stream as usize >= state.streams.len() {
                return None;
            }
            let seen_us = if before { 0 } else { seen_us };
            state.add_producer(id, stream, seen_us, from.name()?);
            state.find_mut(id)?.mark.appended = has_mark.then_some(last_id);
        }
        state.last_producer = state.last_producer.max(last_producer);
        for _ in 0..from.u32()? {
            let (stream, position) = (from.u32()?, from.u64()?);
            let name = from.name()?;
            if stream as usize >= state.streams.len() {
                return None;
            }
            state.set_cursor(stream, name, position);
        }
        let forgotten = if before { 0 } else { from.u32()? };
        for _ in 0..forgotten {
            state.forgotten.push_back(from.u64()?);
        }
        from.0.is_empty().then_some(state)
    }
}

fn put_u32(to: &mut Vec<u8>, value: u32) {
    to.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(to: &mut Vec<u8>, value: u64) {
    to.extend_from_slice(&value.to_le_bytes());
}

/// Names have 1 to 255 bytes.
fn put_name(to: &mut Vec<u8>, name: &str) {
    to.push(name.len() as u8);
    to.extend_from_slice(name.as_bytes());
}

/// What is left to decode.
struct Cut<'a>(&'a [u8]);

impl<'a> Cut<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32_at(bytes, 0))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|bytes| u64_at(bytes, 0))
    }

    fn name(&mut self) -> Option<&'a str> {
        let length = self.u8()?;
        let name = std::str::from_utf8(self.take(length.into())?).ok()?;
        (!name.is_empty()).then_some(name)
    }
}
