//! A newest segment that was made shorter is opened, as nothing proves that it was, and what cannot be excluded is said.

use super::recovery::{FIRST, batches, open};
use crate::disk::sim::SimDisk;
use crate::disk::{Disk, DiskFile};
use crate::{ProducerId, Short};

/// What is said of a log whose newest segment was cut to `length`.
fn cut_to(disk: &SimDisk, length: usize) -> Option<Short> {
    let disk = disk.kill();
    disk.open(FIRST)
        .and_then(|file| file.truncate(length as u64))
        .expect("a segment");
    open(&disk).expect("it proves nothing").2.short
}

#[test]
fn a_newest_segment_that_was_cut_short_is_said_to_be() {
    let (disk, ends) = batches(20);
    assert_eq!(
        open(&disk.kill()).expect("the log").2.short,
        None,
        "after a kill"
    );
    for (index, &end) in ends.iter().enumerate().skip(2) {
        // Right behind a batch, and within the next one.
        for length in [end, end + 24] {
            let short = cut_to(&disk, length).expect("nothing was said");
            assert_eq!((short.length, short.file.as_str()), (length as u64, FIRST));
            assert!(
                short.last > index as u64 && short.durable_through <= short.last,
                "{short:?}"
            );
        }
    }
}

/// The segment is as short as it is because the log was closed.
#[test]
fn a_log_that_was_closed_is_not_said_to_be_short() {
    let (disk, _) = batches(3);
    let (log, mut writer, _) = open(&disk.kill()).expect("the log");
    let stream = crate::Log::stream(&log, "s").expect("a stream");
    super::append(&log, stream, ProducerId::ANONYMOUS, 1..=5).expect("room");
    super::settle(&mut writer);
    let disk = log.disk().clone();
    writer.close(crate::Now::default());
    assert_eq!(open(&disk.kill()).expect("the log").2.short, None);
}
