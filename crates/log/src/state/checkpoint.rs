//! Writing the whole state as a checkpoint, and reading it.

use super::State;
use crate::format::{Form, settings, u32_at, u64_at};

impl State {
    /// The content of a checkpoint, and its form.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) -> Form {
        let form = match self.administered {
            true => Form::Administered,
            false => Form::Plain,
        };
        if form == Form::Administered {
            put_u32(to, self.streams.next_number());
        }
        put_u32(to, self.streams.len() as u32);
        for (id, stream) in self.streams.iter() {
            if form == Form::Administered {
                put_u32(to, id);
                put_u64(to, stream.trimmed);
                settings::put(to, &stream.settings);
            }
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
        for (id, stream) in self.streams.iter() {
            for (name, &position) in &stream.cursors {
                put_u32(to, id);
                put_u64(to, position);
                put_name(to, name);
            }
        }
        put_u32(to, self.forgotten.len() as u32);
        self.forgotten.iter().for_each(|&hash| put_u64(to, hash));
        if form == Form::Administered {
            put_u32(to, self.deleted.len() as u32);
            for &(hash, next) in &self.deleted {
                put_u64(to, hash);
                put_u64(to, next);
            }
        }
        form
    }

    /// About how many bytes [`State::encode`] appends; never fewer.
    pub(crate) fn encoded_len(&self) -> u64 {
        let named = |fixed: u64, count: usize| (fixed + 256) * count as u64;
        28 + named(56, self.streams.len())
            + named(25, self.producers.len())
            + named(12, self.cursors)
            + 8 * (self.forgotten.len() + self.producers.len()) as u64
            + 16 * (self.deleted.len() + self.streams.len()) as u64
    }

    /// The state in a checkpoint. In the form of version 1 times are of the wall clock: then every
    /// producer counts as just seen.
    pub(crate) fn decode(bytes: &[u8], form: Form) -> Option<State> {
        let mut from = Cut(bytes);
        let mut state = State {
            administered: form == Form::Administered,
            ..State::default()
        };
        let next_number = match state.administered {
            true => from.u32()?,
            false => 0,
        };
        for _ in 0..from.u32()? {
            let (id, trimmed, set) = match state.administered {
                true => (
                    from.u32()?,
                    from.u64()?,
                    settings::decode(from.take(settings::LENGTH)?)?,
                ),
                false => (state.streams.next_number(), 0, Default::default()),
            };
            let (next, newest_us) = (from.u64()?, from.u64()?);
            let name = from.name()?;
            if id < state.streams.next_number() || state.stream(name).is_some() {
                return None;
            }
            let stream = state.insert_stream(id, name);
            (stream.next, stream.newest_us, stream.trimmed) = (next, newest_us, trimmed);
            state.put_settings(id, set);
        }
        state.streams.skip_to(next_number);
        let last_producer = from.u32()?;
        for _ in 0..from.u32()? {
            let (id, stream, seen_us) = (from.u32()?, from.u32()?, from.u64()?);
            let (has_mark, last_id) = (from.u8()? != 0, from.u64()?);
            let name = from.name()?;
            if !state.streams.contains(stream) {
                if stream >= state.streams.next_number() {
                    return None;
                }
                // Version 0.2.0 left one behind that had been forgotten and had come again, when its stream was deleted.
                // The number of that producer is not used again.
                state.last_producer = state.last_producer.max(id);
                continue;
            }
            let seen_us = match form {
                Form::Before => 0,
                Form::Plain | Form::Administered => seen_us,
            };
            state.add_producer(id, stream, seen_us, name);
            state.find_mut(id)?.mark.appended = has_mark.then_some(last_id);
        }
        state.last_producer = state.last_producer.max(last_producer);
        for _ in 0..from.u32()? {
            let (stream, position) = (from.u32()?, from.u64()?);
            let name = from.name()?;
            if !state.streams.contains(stream) {
                return None;
            }
            state.set_cursor(stream, name, position);
        }
        if form != Form::Before {
            for _ in 0..from.u32()? {
                state.forgotten.push_back(from.u64()?);
            }
        }
        if state.administered {
            for _ in 0..from.u32()? {
                state.deleted.push_back((from.u64()?, from.u64()?));
            }
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

/// The bytes that are not decoded yet.
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

#[cfg(test)]
mod tests {
    use super::super::Producer;
    use crate::disk::Disk;
    use crate::disk::sim::SimDisk;
    use crate::state::State;
    use crate::tests::{append, settle, small};
    use crate::tools::check;
    use crate::{Change, EmbeddedLog, Log, Mark, ProducerId};

    /// Makes the state that version 0.2.0 had for a forgotten producer that came back, when its stream
    /// was deleted.
    fn orphan(state: &mut State, stream: u32) -> u32 {
        let id = state.next_producer().expect("a number");
        let orphan = Producer {
            stream,
            name: "p".into(),
            mark: Mark::default(),
            seen_us: 5,
            held: 0,
        };
        state.last_producer = id;
        state.producers.insert(id, orphan);
        id
    }

    #[test]
    fn a_producer_without_a_stream_is_left_out() {
        for administered in [false, true] {
            let mut state = State {
                administered,
                ..State::default()
            };
            let kept = state.add_stream("kept");
            state.add_producer(1, kept, 7, "q");
            let gone = state.add_stream("gone");
            let (mut bytes, mut without) = (Vec::new(), Vec::new());
            if administered {
                state.delete_stream(gone);
            }
            state.encode(&mut without);
            let id = orphan(&mut state, if administered { gone } else { 9 });
            let form = state.encode(&mut bytes);
            assert_ne!(bytes, without);
            let decoded = State::decode(&bytes, form);
            // An entry of a stream that there never was makes no sense.
            assert_eq!(decoded.is_some(), administered);
            let Some(decoded) = decoded else { continue };
            assert_eq!(
                (decoded.producers(), decoded.find(id).is_some()),
                (1, false)
            );
            assert_eq!(decoded.next_producer(), Some(id + 1));
        }
    }

    #[test]
    fn a_log_with_one_opens() {
        let disk = SimDisk::new(1);
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), small()).expect("the log");
        let kept = log.stream("kept").expect("room");
        log.stream("gone").expect("room");
        settle(&mut writer);
        for _ in 0..3 {
            let done = log.administer(Change::Delete { stream: "gone" });
            settle(&mut writer);
            if done.is_ok() {
                break;
            }
        }
        assert_eq!(log.range("gone"), None);
        orphan(&mut log.shared().gather().state, 1);
        let segments = || {
            disk.list()
                .expect("names")
                .into_iter()
                .filter(|name| name.ends_with(".seg"))
                .count()
        };
        let before = segments();
        for group in 0.. {
            let first = group * 30 + 1;
            append(&log, kept, ProducerId::ANONYMOUS, first..=first + 29).expect("room");
            settle(&mut writer);
            if segments() > before {
                break;
            }
        }
        let range = log.range("kept").expect("a stream");
        drop((log, writer));
        let disk = disk.kill();
        assert_eq!(check(&disk).expect("reading").problems, []);
        let (log, mut writer, _) = EmbeddedLog::open(disk, small()).expect("the log");
        assert_eq!(log.range("kept"), Some(range));
        let producer = log.producer(kept, "p").expect("room");
        append(&log, kept, producer, 1..=3).expect("room");
        settle(&mut writer);
        assert_eq!(log.mark(producer).appended, Some(3));
    }
}
