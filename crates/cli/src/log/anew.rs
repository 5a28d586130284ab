//! Making a log anew, record by record, as its home has kept it.
//!
//! The one idea: a position of the restored log means the same record as before, or none. Positions whose records are no
//! longer in the home are not used again, and are reported.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tidewire_kafka::Found;
use tidewire_log::{ChangeRefused, EmbeddedLog, Log, ProducerId, Run, Settings, StreamId};
use tidewire_replicate::{Held, Record};

use super::momentary;
use super::storing::{last_id, patiently};

/// The largest payload that may be in the home; any server's log may have taken it.
const PAYLOAD_MAX: u32 = 32 << 20;

/// Bytes that are put together, at most.
const RUN_MAX: usize = 512 << 10;

/// No log reaches this position, and there is space for further records behind it.
const POSITION_MAX: u64 = 1 << 62;

/// A log that is made.
pub(super) struct Anew {
    log: EmbeddedLog,
    streams: BTreeMap<Arc<str>, Stream>,
    /// The record that was restored last, as long as a run may go on with the next one.
    last: Option<Record>,
    /// Streams whose names sort before this one are whole.
    whole: Arc<str>,
    made: Made,
}

struct Stream {
    id: StreamId,
    /// The position of the next record.
    next: u64,
}

/// The result of a restore.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) records: u64,
    pub(super) streams: usize,
    pub(super) cursors: usize,
    /// Producers of which no record is left.
    pub(super) producers: usize,
    /// Positions that are not at home any more, by stream: the first, and the one behind the last.
    pub(super) missing: Vec<(Arc<str>, u64, u64)>,
    /// How many records at home are foreign, and what is wrong with the first.
    pub(super) passed: Option<(u64, String)>,
}

impl Anew {
    /// Begins a log with the number of the lost log: for its home, the two are one log.
    pub(super) fn begin(directory: &Path, identity: u64) -> Result<Anew, String> {
        let settings = Settings {
            identity: Some(identity),
            payload_max: PAYLOAD_MAX,
            group_bytes: 2 * PAYLOAD_MAX as usize,
            // As many streams as the home has. A server's own limits hold for its clients.
            streams_max: usize::MAX,
            producers_max: usize::MAX,
            cursors_max: usize::MAX,
            ..momentary()
        };
        let (log, _) = EmbeddedLog::start(directory, settings).map_err(|e| e.to_string())?;
        Ok(Anew {
            log,
            streams: BTreeMap::new(),
            last: None,
            whole: "".into(),
            made: Made::default(),
        })
    }

    /// Whether everything that the marks name is there. The marks never change; this is asked after each record, and a complete
    /// stream stays complete.
    pub(super) fn is_whole(&mut self, held: &Held) -> bool {
        let mut places = held.streams.range(self.whole.clone()..);
        let behind = places.find(|(stream, place)| {
            let stream = self.streams.get(*stream);
            stream.is_none_or(|stream| stream.next < place.next)
        });
        if let Some((stream, _)) = behind {
            self.whole = stream.clone();
        }
        behind.is_none()
    }

    /// Records put in so far.
    pub(super) fn records(&self) -> u64 {
        self.made.records
    }

    /// Puts the next record in. Messages that were one run, and are each a record at home, are one
    /// run again.
    pub(super) fn put(&mut self, found: Found) -> Result<(), String> {
        let record = found.record;
        let wrong = |what: String| format!("offset {}: {what}", found.offset);
        let end = record.first.checked_add(record.count.into());
        let end = end.filter(|end| *end <= POSITION_MAX);
        let end = end.ok_or_else(|| wrong("no record has such a position".into()))?;
        let last = self.last.as_mut();
        let goes_on = last.filter(|last| {
            last.stream == record.stream
                && last.producer == record.producer
                && last.timestamp_us == record.timestamp_us
                && last.first + u64::from(last.count) == record.first
                && last.frames.len() + record.frames.len() <= RUN_MAX
        });
        self.made.records += u64::from(record.count);
        if let Some(last) = goes_on {
            last.count += record.count;
            last.frames.extend_from_slice(&record.frames);
            if let Some(stream) = self.streams.get_mut(&last.stream) {
                stream.next = end;
            }
            return Ok(());
        }
        self.append_last()?;
        let id = self.reach(&record.stream, record.first).map_err(wrong)?;
        let stream = Stream { id, next: end };
        self.streams.insert(record.stream.clone(), stream);
        self.last = Some(record);
        Ok(())
    }

    /// Appends the last run, which no further record continues.
    fn append_last(&mut self) -> Result<(), String> {
        let Some(record) = self.last.take() else {
            return Ok(());
        };
        let id = self.streams[&record.stream].id;
        let producer = match record.producer.is_empty() {
            true => ProducerId::ANONYMOUS,
            false => patiently(|| self.log.producer(id, &record.producer))?,
        };
        let last_id = last_id(&record.frames).ok_or("a record without a message")?;
        let run = Run {
            stream: id,
            producer,
            frames: &record.frames,
            count: record.count,
            last_id,
            timestamp_us: record.timestamp_us,
        };
        patiently(|| self.log.append(run)).map(drop)
    }

    /// Has a stream go on at this position.
    fn reach(&mut self, name: &Arc<str>, first: u64) -> Result<StreamId, String> {
        let log = &self.log;
        let (id, next) = match self.streams.get(name) {
            Some(stream) => (stream.id, stream.next),
            None if first == 0 => (patiently(|| log.stream(name))?, 0),
            None => {
                let begin = || match log.begin_stream(name, first) {
                    Err(ChangeRefused::Log(why)) => Err(why),
                    begun => Ok(begun.map_err(|e| e.to_string())),
                };
                let id = patiently(begin)??;
                self.made.missing.push((name.clone(), 0, first));
                (id, first)
            }
        };
        if first < next {
            return Err(format!(
                "position {first} of stream {name:?} is there for the second time: {next} is the next"
            ));
        }
        if first > next {
            patiently(|| log.pass(id, first))?;
            self.made.missing.push((name.clone(), next, first));
        }
        Ok(id)
    }

    /// Puts in what the marks know beside the records, and closes the log. `is_cut`: the home does not have its first records any
    /// more.
    pub(super) fn finish(mut self, held: &Held, is_cut: bool) -> Result<Made, String> {
        self.append_last()?;
        for (name, place) in &held.streams {
            let next = self.streams.get(name).map(|stream| stream.next);
            if next.is_some_and(|next| next >= place.next) {
                continue;
            }
            if next.is_some() || !is_cut || place.next > POSITION_MAX {
                return Err("the marks in the home name more records than the home has".into());
            }
            let id = self.reach(name, place.next)?;
            let next = place.next;
            self.streams.insert(name.clone(), Stream { id, next });
        }
        self.remember_producers(held)?;
        for ((stream, name), &position) in &held.cursors {
            if let Some(of) = self.streams.get(stream) {
                let position = position.min(of.next);
                patiently(|| self.log.set_cursor(stream, name, position))
                    .map_err(|why| format!("cursor {name:?} of stream {stream:?}: {why}"))?;
                self.made.cursors += 1;
            }
        }
        self.log.close();
        if let Some(failure) = self.log.progress().failure {
            return Err(failure.to_string());
        }
        self.made.streams = self.streams.len();
        Ok(self.made)
    }

    /// Producers whose last record is not there any more are known as they were.
    fn remember_producers(&mut self, held: &Held) -> Result<(), String> {
        let log = &self.log;
        for ((stream, name), &last) in &held.producers {
            let Some(stream) = self.streams.get(stream) else {
                continue;
            };
            let producer = patiently(|| log.producer(stream.id, name))?;
            if log.mark(producer).appended < Some(last) {
                patiently(|| log.remember(producer, last))?;
                self.made.producers += 1;
            }
        }
        if self.made.producers > 0 {
            patiently(|| log.begin_segment())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidewire_log::{Credit, Range, View};
    use tidewire_replicate::Place;

    use super::*;

    fn found(
        stream: &str,
        producer: &str,
        first: u64,
        ids: std::ops::RangeInclusive<u64>,
    ) -> Found {
        let mut frames = Vec::new();
        for id in ids.clone() {
            frames.extend(id.to_le_bytes());
            frames.extend(0_u32.to_le_bytes());
        }
        Found {
            offset: 3,
            record: Record {
                stream: stream.into(),
                producer: producer.into(),
                first,
                count: ids.count() as u32,
                timestamp_us: 1,
                frames,
            },
        }
    }

    fn held(streams: &[(&str, u64)]) -> Held {
        let places = streams
            .iter()
            .map(|&(name, next)| (name.into(), Place { next, print: 0 }));
        Held {
            streams: places.collect(),
            ..Held::default()
        }
    }

    fn range(at: &Path, stream: &str) -> Option<(u64, u64)> {
        let range = View::open(at).expect("a log").range(stream);
        range.map(|Range { first, next }| (first, next))
    }

    /// Streams that begin later, one of which nothing is left, one with a gap, producers and cursors.
    #[test]
    fn what_is_left_has_its_positions_and_what_is_not_is_said() {
        let place = tempfile::tempdir().expect("a directory");
        let at = place.path();
        let mut held = held(&[("s", 120), ("t", 3), ("gone", 9)]);
        for (stream, producer, last) in [("s", "p", 10), ("s", "q", 7), ("gone", "q", 8)] {
            held.producers
                .insert((stream.into(), producer.into()), last);
        }
        for (stream, name, position) in [("s", "c", 110), ("t", "far", 99), ("else", "c", 1)] {
            held.cursors.insert((stream.into(), name.into()), position);
        }
        let mut anew = Anew::begin(at, 5).expect("a log");
        anew.put(found("s", "p", 100, 1..=5)).expect("room");
        anew.put(found("t", "", 0, 1..=3)).expect("room");
        assert!(!anew.is_whole(&held));
        anew.put(found("s", "p", 115, 6..=10)).expect("room");
        let made = anew.finish(&held, true).expect("a log");
        let missing = [("s", 0, 100), ("s", 105, 115), ("gone", 0, 9)];
        let expected = Made {
            records: 13,
            streams: 3,
            cursors: 2,
            producers: 2,
            missing: missing
                .map(|(name, first, next)| (name.into(), first, next))
                .into(),
            passed: None,
        };
        assert_eq!(made, expected);

        assert_eq!(range(at, "s"), Some((100, 120)));
        assert_eq!(range(at, "t"), Some((0, 3)));
        assert_eq!(range(at, "gone"), Some((9, 9)));
        let (log, _) = EmbeddedLog::start(at, momentary()).expect("a log");
        assert_eq!(log.identity(), 5);
        assert_eq!(
            (log.cursor("s", "c"), log.cursor("t", "far")),
            (Some(110), Some(3))
        );
        for (stream, producer, last) in [("s", "p", 10), ("s", "q", 7), ("gone", "q", 8)] {
            let stream = log.stream(stream).expect("a stream");
            let producer = log.producer(stream, producer).expect("a producer");
            assert_eq!(log.mark(producer).appended, Some(last));
        }
    }

    /// In the home, each message of the run was a record of its own.
    #[test]
    fn messages_that_were_one_run_are_one_again() {
        let place = tempfile::tempdir().expect("a directory");
        let at = place.path();
        let mut anew = Anew::begin(at, 5).expect("a log");
        let mut next = 0;
        let mut put = |stream: &str, producer: &str, id: u64, at_us: u64| {
            let mut one = found(stream, producer, next, id..=id);
            one.record.timestamp_us = at_us;
            next += 1;
            anew.put(one).expect("room");
        };
        // Two runs of p by their times, then one of q, then p again.
        let put_in = [
            ("p", 1, 1),
            ("p", 2, 1),
            ("p", 3, 2),
            ("q", 1, 2),
            ("p", 4, 2),
            ("p", 5, 2),
        ];
        for (producer, id, at_us) in put_in {
            put("s", producer, id, at_us);
        }
        // A gap ends one, too.
        anew.put(found("s", "p", 10, 6..=6)).expect("room");
        let made = anew.finish(&held(&[("s", 11)]), false).expect("a log");
        assert_eq!((made.records, made.missing.len()), (7, 1));
        let (log, _) = EmbeddedLog::start(at, momentary()).expect("a log");
        let mut runs = Vec::new();
        for from in [0, 10] {
            let read = log.read("s", from, Credit(1 << 20)).expect("runs");
            let all = read.runs.into_iter();
            runs.extend(all.map(|run| (run.producer.to_string(), run.first, run.count)));
        }
        let run = |producer: &str, first: u64, count: u32| (producer.to_owned(), first, count);
        let expected = [
            run("p", 0, 2),
            run("p", 2, 1),
            run("q", 3, 1),
            run("p", 4, 2),
            run("p", 10, 1),
        ];
        assert_eq!(runs, expected);
    }

    #[test]
    fn a_log_is_whole_when_its_last_stream_is_in_whatever_order() {
        let names = ["a", "b", "c"];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let place = tempfile::tempdir().expect("a directory");
            let mut anew = Anew::begin(place.path(), 5).expect("a log");
            let held = held(&names.map(|name| (name, 2)));
            let puts = order.map(|which| (names[which], 0));
            let puts = puts.into_iter().chain(order.map(|which| (names[which], 1)));
            for (stream, first) in puts {
                assert!(!anew.is_whole(&held));
                anew.put(found(stream, "", first, 1..=1)).expect("room");
            }
            assert!(anew.is_whole(&held));
        }
    }

    #[test]
    fn a_home_that_has_lost_its_end_is_none() {
        for (cut, streams) in [(false, &[("s", 5), ("t", 1)][..]), (true, &[("s", 6)])] {
            let place = tempfile::tempdir().expect("a directory");
            let mut anew = Anew::begin(place.path(), 5).expect("a log");
            anew.put(found("s", "p", 0, 1..=5)).expect("room");
            let why = anew
                .finish(&held(streams), cut)
                .expect_err("less than it says");
            assert!(why.contains("more records than the home has"), "{why}");
        }
    }

    #[test]
    fn positions_that_make_no_sense_are_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let mut anew = Anew::begin(place.path(), 5).expect("a log");
        anew.put(found("s", "", 7, 1..=5)).expect("room");
        let again = anew
            .put(found("s", "", 11, 1..=5))
            .expect_err("it is there");
        assert!(
            again.contains("offset 3: position 11") && again.contains("12"),
            "{again}"
        );
        let beyond = anew.put(found("s", "", u64::MAX, 1..=1));
        assert!(beyond.is_err_and(|why| why.contains("no record has such a position")));
    }
}
