//! What a repair loses: the records of the damaged runs, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use fastrand::Rng;

use super::recovery::{names, overwrite};
use super::{settle, small};
use crate::disk::sim::SimDisk;
use crate::disk::{Disk, DiskFile};
use crate::format::{Records, Stored};
use crate::tools::{Item, check, dump_file, extract, loss, repair};
use crate::{
    Change, Compression, Credit, EmbeddedLog, Log, Now, ProducerId, ReadError, Run, Settings,
    StreamSettings, Verify, View, Writer,
};

const STREAMS: usize = 4;

fn settings() -> Settings {
    Settings {
        segment_bytes: 32 << 10,
        group_bytes: 8 << 10,
        ..small()
    }
}

/// What is unique to a record: its stream, and its number there.
type Key = (u8, u64);

fn frame(random: &mut Rng, stream: u8, number: u64) -> Vec<u8> {
    let mut payload = vec![stream];
    payload.extend(number.to_le_bytes());
    // Some look like the beginnings of runs and batches.
    let tails: [&[u8]; 4] = [
        b"",
        b"some text",
        b"\x01\0\0\0\x40\0\0\0\0\0\0\0\0\0\0\0",
        b"TWb2TWb2TWb2TWb2",
    ];
    payload.extend_from_slice(random.choice(&tails).expect("tails"));
    payload.resize(payload.len() + random.usize(0..60), 7);
    let mut frame = (number + 1).to_le_bytes().to_vec();
    frame.extend((payload.len() as u32).to_le_bytes());
    frame.extend(payload);
    frame
}

fn keys_of(mut frames: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while !frames.is_empty() {
        let size = u32::from_le_bytes(frames[8..12].try_into().expect("a size")) as usize;
        let payload = &frames[12..12 + size];
        let number = u64::from_le_bytes(payload[1..9].try_into().expect("a number"));
        keys.push((payload[0], number));
        frames = &frames[12 + size..];
    }
    keys
}

/// A log of several streams and producers with many runs in a batch, some of them compressed; closed in order.
fn log_of(seed: u64) -> SimDisk {
    let mut random = Rng::with_seed(seed);
    let disk = SimDisk::new(seed);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("a new log");
    let is_administered = random.bool();
    let mut producers = Vec::new();
    for stream in 0..STREAMS {
        let name = format!("s{stream}");
        if is_administered && stream == 1 {
            let settings = StreamSettings {
                compression: Compression::Lz4,
                ..StreamSettings::default()
            };
            let change = Change::Create {
                stream: &name,
                settings,
            };
            retry(&mut writer, || log.administer(change).ok());
        }
        let id = retry(&mut writer, || log.stream(&name).ok());
        let named = retry(&mut writer, || log.producer(id, "p").ok());
        producers.push((id, [ProducerId::ANONYMOUS, named]));
    }
    let mut next = [0; STREAMS];
    for _ in 0..random.usize(10..60) {
        for _ in 0..random.usize(1..12) {
            let stream = random.usize(0..STREAMS);
            let (id, of) = producers[stream];
            let count = random.u32(1..6);
            let mut frames = Vec::new();
            for _ in 0..count {
                frames.extend(frame(&mut random, stream as u8, next[stream]));
                next[stream] += 1;
            }
            let run = Run {
                stream: id,
                producer: *random.choice(&of).expect("two"),
                frames: &frames,
                count,
                last_id: next[stream],
                timestamp_us: 0,
            };
            retry(&mut writer, || log.append(run).ok());
        }
        settle(&mut writer);
    }
    log.close();
    writer.close(Now::default());
    drop(log);
    disk.kill()
}

fn retry<T>(writer: &mut Writer<SimDisk>, mut make: impl FnMut() -> Option<T>) -> T {
    for _ in 0..10 {
        if let Some(made) = make() {
            return made;
        }
        settle(writer);
    }
    panic!("there is never room");
}

/// A run of records, where it stands and what is in it.
struct Placed {
    file: String,
    from: usize,
    to: usize,
    keys: Vec<Key>,
}

fn runs(disk: &SimDisk) -> Vec<Placed> {
    let mut runs = Vec::new();
    for file in names(disk) {
        let bytes = disk.contents(&file).expect("a segment");
        dump_file(disk, &file, |item| {
            if let Item::Records { offset, frames, .. } = item {
                let from = offset as usize;
                let length = bytes[from + 4..from + 8].try_into().expect("a length");
                runs.push(Placed {
                    file: file.clone(),
                    from,
                    to: from + 8 + u32::from_le_bytes(length) as usize,
                    keys: keys_of(frames),
                });
            }
            ControlFlow::Continue(())
        })
        .expect("reading");
    }
    runs
}

/// What can be read of all streams, passing over what is missing and, if `is_damaged`, over what is damaged.
fn readable(
    streams: &[String],
    is_damaged: bool,
    read: impl Fn(&str, u64) -> (u64, u64, Result<crate::Committed, ReadError>),
) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    for stream in streams {
        let mut at = 0;
        loop {
            let (first, next, found) = read(stream, at);
            if at < first {
                at = first;
                continue;
            }
            if at >= next {
                break;
            }
            match found {
                Ok(read) => {
                    for run in &read.runs {
                        keys.extend(keys_of(&run.bytes));
                    }
                    assert!(read.next > at);
                    at = read.next;
                }
                Err(ReadError::Missing { next, .. }) => at = next,
                Err(ReadError::Damaged(_)) if is_damaged => at += 1,
                Err(other) => panic!("{stream} at {at}: {other}"),
            }
        }
    }
    keys
}

fn in_view(disk: &SimDisk) -> BTreeSet<Key> {
    let Ok(view) = View::on(disk.clone()) else {
        return BTreeSet::new();
    };
    let streams = view.streams().iter().map(|stream| stream.name.clone());
    readable(&streams.collect::<Vec<_>>(), true, |stream, at| {
        let range = view.range(stream).expect("a stream");
        let read = view.read(stream, at.max(range.first), Credit(2000));
        (range.first, range.next, read)
    })
}

fn in_log(disk: &SimDisk, verify: Verify) -> BTreeSet<Key> {
    let settings = Settings {
        verify,
        ..settings()
    };
    let (log, _writer, recovery) = EmbeddedLog::open(disk.fork(), settings).expect("repaired");
    assert_eq!(recovery.cut, None);
    let streams = log.streams("", 100).into_iter();
    let streams = streams.map(|stream| stream.name.to_string());
    readable(&streams.collect::<Vec<_>>(), false, |stream, at| {
        let range = log.range(stream).expect("a stream");
        let read = log.read(stream, at.max(range.first), Credit(2000));
        (range.first, range.next, read)
    })
}

/// Does something to the log; the changed bytes of each file, and the files that are gone.
fn harm(random: &mut Rng, disk: &SimDisk) -> (BTreeMap<String, Vec<(usize, usize)>>, String) {
    let files = names(disk);
    let file = random.choice(&files).expect("segments").clone();
    let bytes = disk.contents(&file).expect("a segment");
    let used = bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |at| at + 1);
    let mut changed = BTreeMap::new();
    let put = |file: &str, at: usize, new: &[u8]| {
        let before = disk.contents(file).expect("a segment");
        let differs = (at..at + new.len()).filter(|&byte| before[byte] != new[byte - at]);
        let differs = differs.map(|byte| (byte, byte + 1)).collect::<Vec<_>>();
        overwrite(disk, file, at, new);
        differs
    };
    let told = match random.u8(0..6) {
        // A bit, mostly.
        0..=2 => {
            let at = random.usize(0..used);
            disk.flip(&file, at as u64, random.u8(0..8));
            changed.insert(file.clone(), vec![(at, at + 1)]);
            format!("a bit of byte {at} of {file}")
        }
        // A page, or what was one.
        3 => {
            let size = *random.choice(&[64, 512, 4096]).expect("three");
            let at = random.usize(0..used) / size * size;
            let size = size.min(used - at);
            let mut page = vec![0; size];
            if random.bool() {
                random.fill(&mut page);
            }
            changed.insert(file.clone(), put(&file, at, &page));
            format!("{size} bytes at {at} of {file}")
        }
        // A torn tail.
        4 => {
            let at = random.usize(0..used);
            let zeros = vec![0; used - at];
            changed.insert(file.clone(), put(&file, at, &zeros));
            if random.bool() {
                let opened = disk.open(&file).expect("a segment");
                opened.truncate(at as u64).expect("shorter");
            }
            format!("{file} from {at} on")
        }
        // A file that is gone, or two that have each other's names.
        _ if random.bool() || files.len() < 2 => {
            disk.remove(&file).expect("it is there");
            changed.insert(file.clone(), vec![(0, usize::MAX)]);
            format!("{file}, which is gone")
        }
        _ => {
            let other = random.choice(&files).expect("segments");
            if *other != file {
                disk.rename(&file, "aside").expect("renaming");
                disk.rename(other, &file).expect("renaming");
                disk.rename("aside", other).expect("renaming");
            }
            format!("{file} and {other}, which have each other's names")
        }
    };
    for name in names(disk) {
        disk.open(&name)
            .expect("a file")
            .sync_data()
            .expect("syncing");
    }
    disk.sync_directory().expect("syncing");
    (changed, told)
}

/// "repair: over 1,000 random damages, records lost are exactly those of the damaged runs, `check` is good after it,
/// and reading gives at least what it gave before."
#[test]
fn a_repair_loses_the_records_of_the_damaged_runs_and_nothing_else() {
    for seed in 0..1000 {
        let mut random = Rng::with_seed(seed ^ 0x5a17_a9e0);
        let disk = log_of(seed / 10);
        let placed = runs(&disk);
        let whole = placed.iter().flat_map(|run| run.keys.iter().copied());
        let whole = whole.collect::<BTreeSet<_>>();
        let (changed, told) = harm(&mut random, &disk);
        let is_hit = |run: &&Placed| {
            let changed = changed.get(&run.file).into_iter().flatten();
            changed
                .into_iter()
                .any(|&(from, to)| from < run.to && to > run.from)
        };
        let hit = placed
            .iter()
            .filter(is_hit)
            .flat_map(|run| run.keys.iter().copied());
        let hit = hit.collect::<BTreeSet<_>>();
        let expected = whole.difference(&hit).copied().collect::<BTreeSet<_>>();
        let before = in_view(&disk);
        if let Some(would_lose) = loss(&disk).expect("reading") {
            repair(&disk, &would_lose).unwrap_or_else(|error| panic!("{seed}: {told}: {error}"));
            // What was rescued of damaged batches was not counted.
            let there = check(&disk).expect("reading");
            let said = (would_lose.batches, would_lose.records);
            assert_eq!((there.batches, there.records), said, "{seed}: {told}");
        }
        assert_eq!(loss(&disk).expect("reading"), None, "{seed}: {told}");
        assert_eq!(
            check(&disk).expect("reading").problems,
            [],
            "{seed}: {told}"
        );
        for verify in [Verify::All, Verify::Tail] {
            let after = in_log(&disk, verify);
            let lost = expected.difference(&after).collect::<Vec<_>>();
            assert!(lost.is_empty(), "{seed}: {told}: lost besides: {lost:?}");
            let forged = after.difference(&expected).collect::<Vec<_>>();
            assert!(
                forged.is_empty(),
                "{seed}: {told}: there all the same: {forged:?}"
            );
            let worse = before.difference(&after).collect::<Vec<_>>();
            assert!(worse.is_empty(), "{seed}: {told}: read before: {worse:?}");
        }
    }
}

/// A payload may look like a run of another stream, with a checksum that holds. Where the length of the run that it is in
/// is damaged, it is found by the search; it is no record of that stream all the same.
#[test]
fn a_payload_that_looks_like_a_run_is_none() {
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("a new log");
    let target = log.stream("target").expect("room");
    let own = log.stream("own").expect("room");
    let mut random = Rng::with_seed(1);
    let append = |writer: &mut Writer<SimDisk>, stream, frames: &[u8]| {
        let run = Run {
            stream,
            producer: ProducerId::ANONYMOUS,
            frames,
            count: 1,
            last_id: 1,
            timestamp_us: 0,
        };
        retry(writer, || log.append(run).ok());
    };
    append(&mut writer, target, &frame(&mut random, 0, 0));
    settle(&mut writer);
    // The next record of the target, as the log itself would write it.
    let forged = frame(&mut random, 0, 666);
    let run = Run {
        stream: target,
        producer: ProducerId::ANONYMOUS,
        frames: &forged,
        count: 1,
        last_id: 1,
        timestamp_us: 0,
    };
    let stored = Stored {
        bytes: &forged,
        crc: crc32c::crc32c(&forged),
        compression: Compression::None,
    };
    let mut payload = vec![1];
    payload.extend(7_u64.to_le_bytes());
    payload.extend_from_slice(&Records::header(&run, 0, 1, stored));
    payload.extend_from_slice(&forged);
    let mut carrier = 1_u64.to_le_bytes().to_vec();
    carrier.extend((payload.len() as u32).to_le_bytes());
    carrier.extend(payload);
    append(&mut writer, own, &carrier);
    append(&mut writer, own, &frame(&mut random, 1, 8));
    settle(&mut writer);
    append(&mut writer, own, &frame(&mut random, 1, 9));
    settle(&mut writer);
    drop((log, writer));
    let disk = disk.kill();
    let placed = runs(&disk);
    let carrier = placed
        .iter()
        .find(|run| run.keys == [(1, 7)])
        .expect("it is there");
    // The batch's length leads nowhere now.
    disk.flip(&carrier.file, carrier.from as u64 + 6, 3);
    let would_lose = loss(&disk).expect("reading").expect("damage");
    repair(&disk, &would_lose).expect("repairing");
    assert_eq!(check(&disk).expect("reading").problems, []);
    let expected = BTreeSet::from([(0, 0), (1, 8), (1, 9)]);
    assert_eq!(in_log(&disk, Verify::All), expected);
}

/// What a hostile payload makes the search sum is bounded.
#[test]
fn a_search_in_a_payload_of_beginnings_of_runs_ends() {
    let disk = SimDisk::new(1);
    let settings = Settings {
        segment_bytes: 8 << 20,
        group_bytes: 2 << 20,
        payload_max: 1 << 20,
        ..small()
    };
    let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings).expect("a new log");
    let stream = log.stream("s").expect("room");
    let mut payload = Vec::new();
    while payload.len() < 1 << 20 {
        let left = (1 << 20) - payload.len() as u32;
        payload.extend([1, 0, 0, 0]);
        payload.extend(left.saturating_sub(8).to_le_bytes());
        payload.extend([0; 32]);
    }
    payload.truncate(1 << 20);
    let mut frames = 1_u64.to_le_bytes().to_vec();
    frames.extend((payload.len() as u32).to_le_bytes());
    frames.extend(payload);
    let run = Run {
        stream,
        producer: ProducerId::ANONYMOUS,
        frames: &frames,
        count: 1,
        last_id: 1,
        timestamp_us: 0,
    };
    retry(&mut writer, || log.append(run).ok());
    settle(&mut writer);
    log.close();
    writer.close(Now::default());
    drop(log);
    let disk = disk.kill();
    let placed = runs(&disk);
    disk.flip(&placed[0].file, placed[0].from as u64 + 7, 1);
    let would_lose = loss(&disk).expect("reading").expect("damage");
    assert_eq!(would_lose.gaps[0].kept, 0);
    repair(&disk, &would_lose).expect("repairing");
    assert_eq!(check(&disk).expect("reading").problems, []);
}

/// What a repair could not keep is in the file that it has kept, and is shown, with what is damaged.
#[test]
fn what_a_repair_has_cut_can_be_extracted() {
    let disk = log_of(3);
    let placed = runs(&disk);
    let hurt = &placed[placed.len() / 2];
    // In the last byte of a payload.
    assert!(disk.flip(&hurt.file, hurt.to as u64 - 1, 1));
    let would_lose = loss(&disk).expect("reading").expect("damage");
    let repaired = repair(&disk, &would_lose).expect("repairing");
    let (mut whole, mut damaged) = (Vec::new(), Vec::new());
    extract(&disk, &repaired.kept_in[0], |found| {
        let keys = keys_of(&found.frames);
        assert_eq!(keys.len(), found.count as usize);
        match found.is_damaged {
            true => damaged.extend(keys),
            false => whole.extend(keys),
        }
        ControlFlow::Continue(())
    })
    .expect("reading");
    assert_eq!(damaged, hurt.keys);
    let others = placed
        .iter()
        .filter(|run| run.file == hurt.file && run.from != hurt.from);
    let others = others.flat_map(|run| run.keys.iter().copied());
    assert_eq!(whole, others.collect::<Vec<_>>());
}
