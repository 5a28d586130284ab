//! Segments under the names of others: a repair goes by what is in them.

use super::recovery::{names, segments};
use super::small;
use crate::disk::sim::{Faults, SimDisk};
use crate::disk::{Disk, DiskFile};
use crate::tools::{Loss, check, loss, repair};
use crate::{Credit, EmbeddedLog, Log, ReadError, Verify};

/// Gives files the names of others: the first that of the second, and so on, the last that of the first.
fn rotate(disk: &SimDisk, names: &[String]) {
    disk.rename(&names[names.len() - 1], "last")
        .expect("renaming");
    for at in (1..names.len()).rev() {
        disk.rename(&names[at - 1], &names[at]).expect("renaming");
    }
    disk.rename("last", &names[0]).expect("renaming");
    disk.sync_directory().expect("syncing");
}

fn write(disk: &SimDisk, name: &str, bytes: &[u8]) {
    let file = disk.create(name).expect("a file");
    file.write_at(&[std::io::IoSlice::new(bytes)], 0)
        .expect("writing");
    file.sync_data().expect("syncing");
    disk.sync_directory().expect("syncing");
}

/// How many records are there, and how many are missing.
fn found(disk: &SimDisk) -> (u64, u64) {
    assert_eq!(check(disk).expect("reading").problems, []);
    let settings = crate::Settings {
        verify: Verify::All,
        ..small()
    };
    let (log, _writer, recovery) = EmbeddedLog::open(disk.clone(), settings).expect("the log");
    assert_eq!(recovery.cut, None);
    let (mut at, mut records, mut missing) = (0, 0, 0);
    while at < log.range("s").expect("a stream").next {
        match log.read("s", at, Credit(1 << 20)) {
            Ok(read) => {
                records += read.next - at;
                at = read.next;
            }
            Err(ReadError::Missing { next, .. }) => {
                missing += next - at;
                at = next;
            }
            Err(other) => panic!("{other}"),
        }
    }
    (records, missing)
}

fn repaired(disk: &SimDisk) -> Loss {
    assert!(EmbeddedLog::open(disk.fork(), small()).is_err());
    let would_lose = loss(disk).expect("reading").expect("something to do");
    let done = repair(disk, &would_lose).expect("repairing");
    for kept in &done.kept_in {
        assert!(disk.names().contains(kept), "{kept}");
    }
    assert_eq!(loss(disk).expect("reading"), None);
    would_lose
}

#[test]
fn segments_under_each_others_names_get_their_own() {
    for count in [2, 3] {
        let disk = segments();
        let names = names(&disk);
        rotate(&disk, &names[..count]);
        let would_lose = repaired(&disk);
        assert_eq!(would_lose.renamed.len(), count);
        assert_eq!((would_lose.gaps, would_lose.kept_in), (vec![], vec![]));
        assert_eq!(super::recovery::names(&disk), names);
        assert_eq!(found(&disk), (1500, 0));
    }
}

#[test]
fn a_segment_under_a_name_that_none_has_gets_its_own() {
    // Before all others, between two, behind all others; and of a repair that was broken off.
    for other in [
        "00000000000000000000.seg",
        "00000000000000000002.seg",
        "00000000000009999999.seg",
        "00000000000000000007.found",
    ] {
        let disk = segments();
        let names = names(&disk);
        disk.rename(&names[1], other).expect("renaming");
        let would_lose = repaired(&disk);
        let renamed = (other.to_owned(), names[1].clone());
        assert_eq!(would_lose.renamed, [renamed]);
        assert_eq!(found(&disk), (1500, 0));
    }
}

#[test]
fn damage_in_a_segment_under_another_name_costs_its_run() {
    let disk = segments();
    let names = names(&disk);
    rotate(&disk, &names[..2]);
    // The first one has the second name, and its header is damaged: its first batch says what it is.
    disk.flip(&names[1], 30, 3);
    disk.flip(&names[0], 9000, 5);
    let would_lose = repaired(&disk);
    assert_eq!(would_lose.renamed.len(), 2);
    assert_eq!(would_lose.gaps.len(), 1, "{would_lose:?}");
    assert_eq!(would_lose.gaps[0].damage.file, names[1]);
    assert_eq!(found(&disk), (1499, 1));
}

#[test]
fn what_has_the_name_of_another_is_kept_aside() {
    let whole = segments();
    let names = names(&whole);
    let mut foreign = whole.contents(&names[1]).expect("a segment");
    // A segment of another log.
    let mut header =
        crate::format::SegmentHeader::decode(&foreign, whole_number(&names[1])).expect("a header");
    header.log += 1;
    foreign[..64].copy_from_slice(&header.encode());
    for bytes in [&b""[..], b"something else", &[0; 5000], &foreign] {
        let disk = whole.fork();
        disk.rename(&names[1], "00000000000000000002.seg")
            .expect("renaming");
        write(&disk, &names[1], bytes);
        let would_lose = repaired(&disk);
        assert_eq!(would_lose.renamed.len(), 1);
        assert_eq!(would_lose.kept_in, [format!("{}.cut", names[1])]);
        assert_eq!(would_lose.gaps, []);
        let kept = disk.contents(&would_lose.kept_in[0]).expect("it is kept");
        assert_eq!(kept, bytes);
        assert_eq!(found(&disk), (1500, 0));
    }
}

fn whole_number(name: &str) -> u64 {
    name[..20].parse().expect("a number")
}

/// Where the first one's copy has taken the place of the second, that is lost, and no more.
#[test]
fn a_copy_under_another_name_is_not_that() {
    let disk = segments();
    let names = names(&disk);
    let copy = disk.contents(&names[0]).expect("a segment");
    disk.remove(&names[1]).expect("removing");
    write(&disk, &names[1], &copy);
    let would_lose = repaired(&disk);
    assert_eq!(would_lose.renamed, []);
    assert_eq!(would_lose.gaps.len(), 1);
    let (records, missing) = found(&disk);
    assert!(
        records > 500 && records + missing == 1500,
        "{records} {missing}"
    );
}

#[test]
fn two_files_that_say_the_same_are_refused_by_name() {
    let disk = segments();
    let names = names(&disk);
    let copy = disk.contents(&names[1]).expect("a segment");
    let others = ["00000000000000000002.seg", "00000000000000000003.seg"];
    disk.rename(&names[1], others[0]).expect("renaming");
    write(&disk, others[1], &copy);
    let before = disk.names();
    let refused = loss(&disk).expect_err("nobody knows which").to_string();
    for name in others.into_iter().chain([&*names[1]]) {
        assert!(refused.contains(name), "{refused}");
    }
    assert_eq!(disk.names(), before);
    disk.remove(others[1]).expect("removing");
    repaired(&disk);
    assert_eq!(found(&disk), (1500, 0));
}

#[test]
fn renaming_that_loses_power_is_begun_again() {
    let whole = segments();
    let names = names(&whole);
    rotate(&whole, &names[..3]);
    disk_with_noise(&whole);
    let would_lose = loss(&whole).expect("reading").expect("names");
    for power in 1..40 {
        let disk = whole.fork();
        disk.set_faults(Faults {
            power: Some(power),
            ..Faults::default()
        });
        let done = repair(&disk, &would_lose).is_ok();
        let disk = disk.crash();
        if let Some(again) = loss(&disk).expect("reading") {
            repair(&disk, &again).expect("repairing");
        }
        assert_eq!(found(&disk), (1500, 0), "power {power}");
        if done {
            return;
        }
    }
    panic!("never done");
}

/// Files that are none of the log's.
fn disk_with_noise(disk: &SimDisk) {
    write(disk, "00000000000000000001.seg.cut", b"kept earlier");
    write(disk, "1.seg", b"no name of a segment");
}
