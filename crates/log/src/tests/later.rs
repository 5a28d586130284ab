//! A log of a later version: every tool refuses it, in words, and changes nothing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::recovery::{names, overwrite, segments};
use super::small;
use crate::disk::sim::SimDisk;
use crate::format::{SEGMENT_HEADER, u32_at};
use crate::tools::{backup, check, dump, dump_file, info, loss};
use crate::{EmbeddedLog, OpenError, View};

/// Has the header of a segment say something else, under a checksum that holds.
fn say(disk: &SimDisk, file: &str, at: usize, value: u32) {
    let mut header = disk.contents(file).expect("a segment");
    header.truncate(SEGMENT_HEADER);
    header[at..at + 4].copy_from_slice(&value.to_le_bytes());
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    overwrite(disk, file, 0, &header);
}

/// Has all batches of a segment say that they are of version 3.
fn batches_of_version_3(disk: &SimDisk, file: &str) {
    let bytes = disk.contents(file).expect("a segment");
    let mut at = SEGMENT_HEADER;
    while bytes[at..].starts_with(b"TWb") {
        // A field more, which only a later version knows, and a checksum over all of it.
        let mut header = bytes[at..at + 80].to_vec();
        header[3] = b'3';
        let crc = crc32c::crc32c(&bytes[at + 8..at + 96]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        overwrite(disk, file, at, &header);
        at += u32_at(&bytes, at + 48) as usize;
    }
}

fn files(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let names = disk.names().into_iter();
    names
        .map(|name| (name.clone(), disk.contents(&name).expect("it is listed")))
        .collect()
}

#[test]
fn every_tool_refuses_a_later_version_and_changes_nothing() {
    let whole = segments();
    let names = names(&whole);
    let last = names.last().expect("segments");
    type Harm = fn(&SimDisk, &str);
    let cases: [(&str, Harm); 6] = [
        ("format version 3", |disk, file| {
            say(disk, file, 8, 3);
            batches_of_version_3(disk, file);
        }),
        ("format version 9", |disk, file| say(disk, file, 8, 9)),
        ("needed features 0x8", |disk, file| say(disk, file, 12, 8)),
        // The log was opened as one of messages.
        ("a log of kind 3", |disk, file| say(disk, file, 32, 3)),
        ("needed features 0x1", |disk, file| say(disk, file, 12, 7)),
        // The batch's header is of another length, or damaged besides.
        ("a batch of format version 3", |disk, file| {
            overwrite(disk, file, 12, &[0xff; 8]);
            batches_of_version_3(disk, file);
        }),
    ];
    for (found, harm) in cases {
        for file in [&names[0], last] {
            let disk = whole.fork();
            harm(&disk, file);
            let before = files(&disk);
            let show = |_: crate::tools::Item<'_>| ControlFlow::Continue(());
            let refused = [
                EmbeddedLog::open(disk.clone(), small()).map(drop),
                View::on(disk.clone()).map(drop),
                info(&disk).map(drop),
                check(&disk).map(drop),
                loss(&disk).map(drop),
                dump(&disk, 0, show),
                dump_file(&disk, file, show),
            ];
            for (which, refused) in refused.into_iter().enumerate() {
                let error = refused.expect_err(found);
                assert!(matches!(error, OpenError::Later { .. }), "{which}: {error}");
                let says = error.to_string();
                for part in [
                    found,
                    file.as_str(),
                    "a later version",
                    "Nothing was changed",
                ] {
                    assert!(says.contains(part), "{which}: {says}");
                }
                assert!(!says.contains("damage"), "{which}: {says}");
            }
            backup(&disk, &SimDisk::new(2)).expect_err(found);
            assert!(files(&disk) == before, "{found}: something was changed");
        }
    }
}

/// One bit makes a 3 of the 2 in a batch's first bytes: that is damage, and nothing else.
#[test]
fn a_flipped_bit_is_no_later_version() {
    let whole = segments();
    let file = &names(&whole)[0];
    for (at, bit) in [(67, 0), (8, 0), (12, 3)] {
        let disk = whole.fork();
        assert!(disk.flip(file, at, bit));
        let error = EmbeddedLog::open(disk.clone(), small()).expect_err("damage");
        assert!(matches!(error, OpenError::Damaged { .. }), "{at}: {error}");
        assert!(!check(&disk).expect("reading").problems.is_empty());
        assert!(loss(&disk).expect("reading").is_some());
    }
}
