//! A log that version 1 has written before it was killed: two segments, stream `s` with 200 records
//! of the producer `p` and a cursor at 42, stream `t` with 20 anonymous records.

use std::io::IoSlice;

use super::{append, ids, settle, small};
use crate::disk::sim::SimDisk;
use crate::disk::{Disk, DiskFile};
use crate::tools::{check, info, loss, repair};
use crate::{EmbeddedLog, Log, ProducerId, Settings, Verify};

const FILES: [(&str, &[u8]); 3] = [
    (
        "00000000000000000001.seg",
        include_bytes!("../../tests/fixtures/version-1/00000000000000000001.seg"),
    ),
    (
        "00000000000000000001.idx",
        include_bytes!("../../tests/fixtures/version-1/00000000000000000001.idx"),
    ),
    (
        "00000000000000000016.seg",
        include_bytes!("../../tests/fixtures/version-1/00000000000000000016.seg"),
    ),
];

fn fixture() -> SimDisk {
    let disk = SimDisk::new(1);
    for (name, bytes) in FILES {
        let file = disk.create(name).expect("room");
        file.write_at(&[IoSlice::new(bytes)], 0).expect("room");
        file.sync_data().expect("syncing");
    }
    disk.sync_directory().expect("syncing");
    disk
}

#[test]
fn a_log_of_version_1_is_read_and_goes_on_in_version_2() {
    for verify in [Verify::All, Verify::Tail] {
        let disk = fixture();
        let settings = Settings { verify, ..small() };
        assert_eq!(check(&disk).expect("reading").problems, []);
        let (log, mut writer, recovery) =
            EmbeddedLog::open(disk.clone(), settings.clone()).expect("version 1");
        assert_eq!(recovery.cut, None);
        assert_eq!(ids(&log, "s", 0, 1000), (1..=200).collect::<Vec<_>>());
        assert_eq!(ids(&log, "t", 0, 1000), (1..=20).collect::<Vec<_>>());
        assert_eq!(log.cursor("s", "c"), Some(42));
        let stream = log.stream("s").expect("known");
        let producer = log.producer(stream, "p").expect("known");
        assert_eq!(log.mark(producer).appended, Some(200));

        append(&log, stream, producer, 201..=210).expect("room");
        settle(&mut writer);
        drop((log, writer));
        let disk = disk.crash();
        for (name, bytes) in FILES.iter().filter(|(name, _)| name.ends_with(".seg")) {
            let now = disk.contents(name).expect("it stays");
            assert_eq!(&now[..bytes.len()], *bytes, "nothing is added to {name}");
            assert!(now[bytes.len()..].iter().all(|&byte| byte == 0));
        }
        let found = info(&disk).expect("reading");
        assert_eq!(found.segments.len(), 3);
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings).expect("both");
        assert_eq!(ids(&log, "s", 0, 1000), (1..=210).collect::<Vec<_>>());
        assert_eq!(log.cursor("s", "c"), Some(42));
        let stream = log.stream("s").expect("known");
        let producer = log.producer(stream, "p").expect("known");
        assert_eq!(log.mark(producer).appended, Some(210));
        append(&log, stream, ProducerId::ANONYMOUS, 1..=1).expect("room");
        settle(&mut writer);
    }
}

/// Batches of version 1 in a segment of version 2.
#[test]
fn a_damaged_log_of_version_1_is_repaired_as_one_of_version_2() {
    // In the header of a batch, in its checksum of the body, and in frames.
    for (at, costs) in [
        (64 + 8, (0, 0)),
        (64 + 60, (0, 0)),
        (64 + 200, (10, 0)),
        (3144, (10, 0)),
    ] {
        let disk = fixture();
        assert!(disk.flip(FILES[0].0, at, 4));
        EmbeddedLog::open(disk.clone(), small()).expect_err("damage");
        let would_lose = loss(&disk).expect("reading").expect("damage");
        let [gap] = &would_lose.gaps[..] else {
            panic!("{would_lose:?}");
        };
        assert_eq!(gap.batches.0, gap.batches.1, "one batch");
        repair(&disk, &would_lose).expect("repairing");
        assert_eq!(check(&disk).expect("reading").problems, []);
        let (log, ..) = EmbeddedLog::open(disk.crash(), small()).expect("repaired");
        let lost = |name: &str| {
            let of = gap.positions.iter().filter(|lost| lost.0 == name);
            of.map(|lost| lost.2 - lost.1).sum::<u64>()
        };
        assert_eq!((lost("s"), lost("t")), costs, "{at}: {gap:?}");
        let range = log.range("s").expect("its name is known");
        assert_eq!(range.next, 200);
        assert_eq!(log.cursor("s", "c"), Some(42));
    }
}
