use std::io::{self, IoSlice};

use super::{BLOCK, Faults, PowerLost, SECTOR, SimDisk, SimFile, Survival};
use crate::disk::{Disk, DiskFile};

const SEEDS: u64 = 200;

fn write(file: &SimFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_at(&[IoSlice::new(bytes)], offset)
}

/// A disk with a file `a` of `len` bytes of 1, synced and named for good.
fn with_file(seed: u64, len: usize) -> (SimDisk, SimFile) {
    let disk = SimDisk::new(seed);
    let file = disk.create("a").unwrap();
    write(&file, &vec![1; len], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_directory().unwrap();
    (disk, file)
}

#[test]
fn what_is_synced_always_survives() {
    for seed in 0..SEEDS {
        let (disk, file) = with_file(seed, 5 * SECTOR + 17);
        let other = disk.create("b").unwrap();
        write(&other, &[9; 3000], 0).unwrap();
        write(&file, &[2; 700], 8 * SECTOR as u64).unwrap();
        let after = disk.crash();
        let kept = after.contents("a").unwrap();
        assert_eq!(
            &kept[..5 * SECTOR + 17],
            &[1; 5 * SECTOR + 17],
            "seed {seed}"
        );
        // A crash with nothing under way changes nothing.
        assert_eq!(after.crash().contents("a").unwrap(), kept, "seed {seed}");
    }
}

#[test]
fn what_is_not_synced_may_be_kept_lost_or_torn_sector_by_sector() {
    let (mut whole, mut gone, mut mixed, mut torn, mut short) = (0, 0, 0, 0, 0);
    for seed in 0..SEEDS {
        let (disk, file) = with_file(seed, 4 * SECTOR);
        write(&file, &[2; 4 * SECTOR], 0).unwrap();
        write(&file, &[3; 4 * SECTOR], 4 * SECTOR as u64).unwrap();
        let kept = disk.crash().contents("a").unwrap();
        let (first, second) = kept.split_at(4 * SECTOR);
        let sectors = first
            .chunks(SECTOR)
            .map(|sector| (sector[0], sector[SECTOR - 1]));
        let sectors = sectors.collect::<Vec<_>>();
        whole += usize::from(first.iter().all(|byte| *byte == 2));
        gone += usize::from(first.iter().all(|byte| *byte == 1));
        torn += usize::from(sectors.iter().any(|(head, tail)| head != tail));
        // A later sector written, an earlier one not.
        mixed += usize::from(
            sectors
                .windows(2)
                .any(|pair| pair[0].1 == 1 && pair[1].0 == 2),
        );
        short += usize::from(second.len() < 4 * SECTOR);
        assert!(
            first.iter().all(|byte| matches!(byte, 1 | 2)),
            "seed {seed}"
        );
        assert!(
            second.iter().all(|byte| matches!(byte, 0 | 3)),
            "seed {seed}"
        );
    }
    for seen in [whole, gone, mixed, torn, short] {
        assert!(seen > 0, "{whole} {gone} {mixed} {torn} {short}");
    }
}

#[test]
fn a_length_may_come_through_without_its_data_and_the_reverse_reads_as_the_end() {
    let mut zeros = 0;
    for seed in 0..SEEDS {
        let (disk, file) = with_file(seed, SECTOR);
        file.reserve(9000).unwrap();
        write(&file, &[2; SECTOR], SECTOR as u64).unwrap();
        let kept = disk.crash().contents("a").unwrap();
        assert!([SECTOR, 9000].contains(&kept.len()), "seed {seed}");
        zeros += usize::from(kept.len() == 9000 && kept[SECTOR..].iter().all(|byte| *byte == 0));
    }
    assert!(zeros > 0);
}

#[test]
fn sectors_behind_a_cut_never_outlive_it() {
    for seed in 0..SEEDS {
        let (disk, file) = with_file(seed, 4 * SECTOR);
        write(&file, &[2; 2 * SECTOR], 2 * SECTOR as u64).unwrap();
        file.truncate(SECTOR as u64).unwrap();
        file.reserve(8 * SECTOR as u64).unwrap();
        write(&file, &[3; SECTOR], 3 * SECTOR as u64).unwrap();
        let kept = disk.crash().contents("a").unwrap();
        let last = &kept[kept.len().min(3 * SECTOR)..kept.len().min(4 * SECTOR)];
        match kept.len() / SECTOR {
            // The cut never happened: what was written after it has no place yet.
            4 => assert!(last.iter().all(|byte| matches!(byte, 1 | 2)), "seed {seed}"),
            1 => {}
            8 => {
                assert!(
                    kept[SECTOR..3 * SECTOR].iter().all(|byte| *byte == 0),
                    "seed {seed}"
                );
                assert!(last.iter().all(|byte| matches!(byte, 0 | 3)), "seed {seed}");
            }
            other => panic!("seed {seed}: {other} sectors"),
        }
        assert_eq!(kept[0], 1, "seed {seed}");
    }
}

#[test]
fn a_name_is_lost_unless_the_directory_is_synced() {
    let (mut kept, mut lost, mut back, mut reordered) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let (disk, _file) = with_file(seed, 10);
        let file = disk.create("b").unwrap();
        write(&file, b"synced", 0).unwrap();
        file.sync_data().unwrap();
        disk.remove("a").unwrap();
        let after = disk.crash();
        let names = after.names();
        let has = |name: &str| names.iter().any(|found| found == name);
        if has("b") {
            kept += 1;
            assert_eq!(after.contents("b").unwrap(), b"synced", "seed {seed}");
        } else {
            lost += 1;
            assert!(after.open("b").is_err());
        }
        back += u32::from(has("a"));
        reordered += u32::from(!has("a") && !has("b"));

        let (disk, file) = with_file(seed, 10);
        disk.rename("a", "b").unwrap();
        disk.sync_directory().unwrap();
        write(&file, b"more", 0).unwrap();
        assert_eq!(disk.crash().names(), ["b"], "seed {seed}");
    }
    for seen in [kept, lost, back, reordered] {
        assert!(seen > 0, "{kept} {lost} {back} {reordered}");
    }
}

#[test]
fn a_rename_is_whole_or_not_at_all() {
    for seed in 0..SEEDS {
        let (disk, _file) = with_file(seed, 10);
        let new = disk.create("a.new").unwrap();
        write(&new, b"new", 0).unwrap();
        new.sync_data().unwrap();
        disk.sync_directory().unwrap();
        disk.rename("a.new", "a").unwrap();
        let found = disk.crash().contents("a").unwrap();
        assert!(found == b"new" || found == [1; 10], "seed {seed}");
    }
}

#[test]
fn after_a_failed_sync_a_later_one_proves_nothing() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let (disk, file) = with_file(seed, 2 * SECTOR);
        disk.set_faults(Faults {
            sync: Some(2),
            ..Faults::default()
        });
        write(&file, &[2; 10], 0).unwrap();
        file.sync_data().unwrap();
        write(&file, &[3; SECTOR], SECTOR as u64).unwrap();
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        assert_eq!(
            disk.contents("a").unwrap()[SECTOR],
            3,
            "processes see it all the same"
        );
        let kept = disk.crash_with(Survival::Everything).contents("a").unwrap();
        assert_eq!(kept[0], 2, "seed {seed}: the first sync was good");
        lost += usize::from(kept[SECTOR] == 1);
    }
    assert!(lost > SEEDS as usize / 2, "{lost}");
}

#[test]
fn after_a_failed_directory_sync_the_names_are_gone() {
    let disk = SimDisk::new(1);
    disk.set_faults(Faults {
        sync_directory: Some(1),
        ..Faults::default()
    });
    let _file = disk.create("a").unwrap();
    disk.sync_directory().unwrap_err();
    disk.sync_directory().unwrap();
    assert!(disk.open("a").is_ok());
    assert!(disk.crash_with(Survival::Everything).names().is_empty());
}

#[test]
fn a_failed_write_leaves_a_part_from_the_start() {
    let mut parts = std::collections::BTreeSet::new();
    for seed in 0..SEEDS {
        let (disk, file) = with_file(seed, SECTOR);
        disk.set_faults(Faults {
            write: Some(1),
            ..Faults::default()
        });
        write(&file, &[2; SECTOR], 0).unwrap_err();
        let found = disk.contents("a").unwrap();
        let part = found.iter().take_while(|byte| **byte == 2).count();
        assert!(found[part..].iter().all(|byte| *byte == 1), "seed {seed}");
        parts.insert(part);
        write(&file, &[3; SECTOR], 0).unwrap();
    }
    assert!(parts.len() > 20, "{parts:?}");
}

#[test]
fn power_goes_at_the_operation_asked_for_and_stays_away() {
    let (disk, file) = with_file(3, 10);
    disk.set_faults(Faults {
        power: Some(2),
        ..Faults::default()
    });
    write(&file, b"one", 0).unwrap();
    let error = write(&file, b"two", 0).unwrap_err();
    assert!(PowerLost::is(&error));
    for error in [
        file.sync_data().unwrap_err(),
        disk.create("b").unwrap_err(),
        disk.list().unwrap_err(),
        file.read_at(&mut [0; 4], 0).unwrap_err(),
    ] {
        assert!(PowerLost::is(&error));
    }
    assert!(!disk.has_power());
    let after = disk.crash();
    let file = after.open("a").unwrap();
    write(&file, b"three", 0).unwrap();
    file.sync_data().unwrap();
}

#[test]
fn a_killed_process_leaves_the_page_cache_which_can_still_be_lost() {
    let (disk, file) = with_file(3, 10);
    write(&file, &[2; 10], 0).unwrap();
    let after = disk.kill();
    assert!(PowerLost::is(&file.sync_data().unwrap_err()));
    assert_eq!(after.contents("a").unwrap(), [2; 10]);
    assert_eq!(
        after
            .fork()
            .crash_with(Survival::Nothing)
            .contents("a")
            .unwrap(),
        [1; 10]
    );
    after.open("a").unwrap().sync_data().unwrap();
    assert_eq!(
        after.crash_with(Survival::Nothing).contents("a").unwrap(),
        [2; 10]
    );
}

#[test]
fn a_full_disk_refuses_what_was_not_reserved() {
    let full = |result: io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
    };
    let (disk, file) = with_file(3, 10);
    disk.set_capacity(4 * BLOCK);
    file.reserve(3 * BLOCK).unwrap();
    assert_eq!(disk.used(), 3 * BLOCK);
    let other = disk.create("b").unwrap();
    full(disk.create("c").map(drop));
    full(other.reserve(BLOCK + 1));
    full(write(&other, &[1; 10], BLOCK));
    write(&file, &[1; 10], 3 * BLOCK - 10).unwrap();
    write(&other, &[1; 10], BLOCK - 10).unwrap();

    // Room comes back when the name goes and no handle is open.
    disk.remove("a").unwrap();
    full(other.reserve(2 * BLOCK));
    drop(file);
    other.reserve(2 * BLOCK).unwrap();
    disk.set_capacity(2 * BLOCK);
    full(other.reserve(3 * BLOCK));
}

#[test]
fn a_flipped_bit_is_read_back_flipped_also_after_a_sync_and_a_crash() {
    let (disk, file) = with_file(3, 10);
    write(&file, &[4; 2], 4).unwrap();
    assert!(disk.flip("a", 5, 0));
    assert!(!disk.flip("a", 10, 0));
    assert!(!disk.flip("b", 0, 0));
    let mut byte = [0];
    file.read_at(&mut byte, 5).unwrap();
    assert_eq!(byte, [5]);
    file.sync_data().unwrap();
    assert_eq!(
        disk.crash().contents("a").unwrap(),
        [1, 1, 1, 1, 4, 5, 1, 1, 1, 1]
    );
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let run = |seed| {
        let (disk, file) = with_file(seed, 3000);
        for round in 0..10 {
            write(&file, &[round; 900], u64::from(round) * 700).unwrap();
        }
        let _ = disk.create("b").unwrap();
        let after = disk.crash();
        (after.list().unwrap(), after.contents("a"))
    };
    assert_eq!(run(5), run(5));
    assert!((0..20).any(|seed| run(seed) != run(5)));
}
