//! Opening a log whose files hold anything: it opens or refuses, it does not panic, loop, or take
//! memory that the files do not; what opens can be read to the end, and opens again as it is.

use std::io::IoSlice;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::time::Duration;

use tidewire_log::disk::sim::SimDisk;
use tidewire_log::disk::{Disk, DiskFile};
use tidewire_log::{
    Change, ChangeRefused, Compression, Credit, EmbeddedLog, Log, Now, OpenError, Policy,
    ProducerId, ReadError, Refused, Run, Settings, Step, StreamSettings, Verify, tools,
};

const SEGMENT: &str = "00000000000000000001.seg";
const SEGMENT_HEADER: usize = 64;
const BATCH_HEADER: usize = 80;

/// The first byte says whether the rest is a segment, or changes to a good log.
pub fn log_recovery(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else {
        return;
    };
    let disk = if how & 1 == 0 {
        let disk = SimDisk::new(1);
        write(&disk, SEGMENT, rest, 0);
        disk
    } else {
        changed(good(how & 16 != 0), rest, how & 2 != 0)
    };
    let verify = [Verify::All, Verify::Tail][usize::from(how >> 2 & 1)];
    let policy = [Policy::Sync, Policy::Os][usize::from(how >> 3 & 1)];
    let settings = Settings {
        verify,
        policy,
        ..small()
    };
    if let Look::Later = look(&disk) {
        return refused_everywhere(&disk, &settings);
    }
    match EmbeddedLog::open(disk.fork(), settings.clone()) {
        Ok((log, writer, _)) => {
            read_all(&log);
            writer.close(Now::default());
        }
        Err(OpenError::Damaged { .. }) => {}
        Err(other) => panic!("{other}"),
    }
    repair(&disk, &settings);
    opens_the_same_again(&disk, &settings);
}

fn small() -> Settings {
    Settings {
        segment_bytes: 4 << 10,
        group_bytes: 1 << 10,
        payload_max: 512,
        identity: Some(7),
        ..Settings::default()
    }
}

fn write(disk: &SimDisk, name: &str, bytes: &[u8], offset: u64) {
    let file = disk
        .open(name)
        .or_else(|_| disk.create(name))
        .expect("a file");
    file.write_at(&[IoSlice::new(bytes)], offset)
        .expect("writing");
}

/// A log of a few segments, with everything in it that can be: of streams that were never administered, or of
/// such that were.
fn good(administered: bool) -> &'static SimDisk {
    static GOOD: [OnceLock<SimDisk>; 2] = [OnceLock::new(), OnceLock::new()];
    GOOD[usize::from(administered)].get_or_init(|| {
        let disk = SimDisk::new(1);
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), small()).expect("the log");
        for id in 1..150_u64 {
            while administered && id % 20 == 0 && administer(&log, id / 20) == Err(BUSY) {
                writer.step(Now::default());
            }
            let stream = log.stream(["a", "b"][id as usize % 2]).expect("a stream");
            let producer = match id % 5 {
                0 => ProducerId::ANONYMOUS,
                which => log
                    .producer(stream, &format!("p{which}"))
                    .expect("a producer"),
            };
            let mut frames = id.to_le_bytes().to_vec();
            frames.extend_from_slice(&40_u32.to_le_bytes());
            frames.extend_from_slice(&[id as u8; 40]);
            let frames = &frames[..];
            let run = Run {
                stream,
                producer,
                frames,
                count: 1,
                last_id: id,
                timestamp_us: id * 1000,
            };
            log.append(run).expect("room");
            if id % 7 == 0 {
                log.set_cursor("a", "c", id / 4).expect("room");
            }
            while id % 3 == 0 && writer.step(Now::default()) == Step::Worked {}
        }
        drop((log, writer));
        disk.kill()
    })
}

/// Why a change has to wait for the writer.
const BUSY: ChangeRefused = ChangeRefused::Log(Refused::Busy);

/// Streams are compressed, cut off, limited, deleted and made anew, and cursors are deleted.
fn administer(log: &EmbeddedLog<SimDisk>, step: u64) -> Result<(), ChangeRefused> {
    let compressed = |compression| StreamSettings {
        compression,
        ..StreamSettings::default()
    };
    let (stream, cursor) = ("a", "c");
    let change = match step {
        1 => Change::Set {
            stream,
            settings: compressed(Compression::Zstd),
        },
        2 => Change::Create {
            stream: "made",
            settings: StreamSettings {
                limit_bytes: Some(1 << 20),
                retain_age: Some(Duration::from_secs(1)),
                ..compressed(Compression::Lz4)
            },
        },
        3 => Change::Delete { stream: "b" },
        4 => Change::Set {
            stream,
            settings: StreamSettings {
                retain_bytes: Some(600),
                ..compressed(Compression::Lz4)
            },
        },
        5 => Change::DeleteCursor { stream, cursor },
        6 => Change::Delete { stream: "made" },
        _ => Change::Set {
            stream,
            settings: compressed(Compression::None),
        },
    };
    let done = log.administer(change);
    assert!(matches!(done, Ok(_) | Err(BUSY)), "{change:?}: {done:?}");
    done.map(|_| ())
}

/// Every 6 bytes say what is changed: which file, where, and to what; `mend` makes the checksums of
/// headers right again, so that what they say is looked at.
fn changed(good: &SimDisk, changes: &[u8], mend: bool) -> SimDisk {
    let disk = good.fork();
    let names: Vec<String> = disk
        .names()
        .into_iter()
        .filter(|name| name != "spare")
        .collect();
    for change in changes.chunks_exact(6).take(16) {
        let name = &names[usize::from(change[0]) % names.len()];
        let Some(mut bytes) = disk.contents(name).filter(|bytes| !bytes.is_empty()) else {
            continue;
        };
        let at = usize::from(u16::from_le_bytes([change[1], change[2]])) % bytes.len();
        match change[3] % 8 {
            0 => disk.remove(name).expect("removing"),
            1 => disk
                .open(name)
                .and_then(|file| file.truncate(at as u64))
                .expect("cutting"),
            2 => {
                let to = &names[usize::from(change[4]) % names.len()];
                let _ = disk.rename(name, to);
            }
            3 => write(&disk, name, &vec![0; bytes.len() - at], at as u64),
            _ => {
                bytes[at] = change[4];
                let from = if mend {
                    mend_header(&mut bytes, at, change[5])
                } else {
                    at
                };
                write(&disk, name, &bytes[from..], from as u64);
            }
        }
    }
    disk
}

/// Makes the checksum of the header that a byte is in right, if it is in one; says from where on
/// something has changed.
fn mend_header(bytes: &mut [u8], at: usize, also: u8) -> usize {
    if at < SEGMENT_HEADER && bytes.len() >= SEGMENT_HEADER {
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        return 0;
    }
    let start = (SEGMENT_HEADER..=at)
        .rev()
        .find(|&from| bytes[from..].starts_with(b"TWb2"));
    let Some(start) = start.filter(|start| start + BATCH_HEADER <= bytes.len()) else {
        return at;
    };
    // Somewhere in the header as well, so that headers are changed more often than by chance.
    bytes[start + 8 + usize::from(also) % (BATCH_HEADER - 8)] ^= also >> 6;
    let crc = crc32c::crc32c(&bytes[start + 8..start + BATCH_HEADER]);
    bytes[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    start
}

/// What the tools found.
enum Look {
    Readable,
    /// A later version has written it.
    Later,
}

/// The names and contents of all files.
fn contents(disk: &SimDisk) -> Vec<(String, Option<Vec<u8>>)> {
    let names = disk.names().into_iter();
    names
        .map(|name| (name.clone(), disk.contents(&name)))
        .collect()
}

/// The tools look and change nothing.
fn look(disk: &SimDisk) -> Look {
    let before = contents(disk);
    let look = match tools::info(disk) {
        Err(OpenError::Later { .. }) => Look::Later,
        info => {
            let info = info.expect("reading");
            let report = tools::check(disk).expect("reading");
            assert!(info.records <= report.records, "{info:?} {report:?}");
            tools::dump(disk, 0, |_| ControlFlow::Continue(())).expect("reading");
            Look::Readable
        }
    };
    assert_eq!(before, contents(disk));
    look
}

/// What a later version has written is refused by every tool, and by the server, and stays as it is.
fn refused_everywhere(disk: &SimDisk, settings: &Settings) {
    let before = contents(disk);
    let later = |refused: Option<OpenError>, of: &str| match refused {
        Some(OpenError::Later { .. }) => {}
        other => panic!("{of}: {other:?}"),
    };
    later(tools::check(disk).err(), "check");
    later(
        tools::dump(disk, 0, |_| ControlFlow::Continue(())).err(),
        "dump",
    );
    later(tools::loss(disk).err(), "loss");
    later(
        EmbeddedLog::open(disk.clone(), settings.clone()).err(),
        "open",
    );
    assert_eq!(before, contents(disk));
}

/// Reads every stream to its end, or to what is damaged, and says where that is.
fn read_all(log: &EmbeddedLog<SimDisk>) -> Vec<u64> {
    let ends = ["a", "b"].map(|stream| {
        let Some(range) = log.range(stream) else {
            return 0;
        };
        let mut next = range.first;
        while next < range.next {
            match log.read(stream, next, Credit(1000)) {
                Ok(read) => {
                    assert!(read.next > next && read.next <= range.next);
                    next = read.next;
                }
                Err(ReadError::Missing { asked, next: to }) => {
                    assert!(asked == next && to > next && to <= range.next);
                    next = to;
                }
                Err(ReadError::Damaged(_)) => break,
                Err(gone) => panic!("{gone}"),
            }
        }
        next
    });
    ends.to_vec()
}

/// Whatever it was, after a repair it opens.
fn repair(disk: &SimDisk, settings: &Settings) {
    let disk = disk.fork();
    if let Some(loss) = tools::loss(&disk).expect("reading") {
        tools::repair(&disk, &loss).expect("repairing");
        assert_eq!(tools::loss(&disk).expect("reading"), None, "after {loss:?}");
    }
    if let Err(error) = EmbeddedLog::open(disk, settings.clone()) {
        panic!("after a repair: {error}");
    }
}

fn opens_the_same_again(disk: &SimDisk, settings: &Settings) {
    let disk = disk.fork();
    let Ok((log, writer, _)) = EmbeddedLog::open(disk.clone(), settings.clone()) else {
        return;
    };
    let ends = read_all(&log);
    drop((log, writer));
    let (log, _writer, recovery) = match EmbeddedLog::open(disk.kill(), settings.clone()) {
        Ok(opened) => opened,
        Err(error) => panic!("opened once, and not again: {error}"),
    };
    assert_eq!(recovery.cut, None, "it was cut back before");
    assert_eq!(read_all(&log), ends);
}
