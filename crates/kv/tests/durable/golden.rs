//! The bytes of the key-value store's log and of its snapshots, held still.

use tidewire_kv::store::Mistakes;
use tidewire_log::Policy;
use tidewire_log::disk::sim::SimDisk;

use crate::disk::{line, now, open, settings, settle, step};
use crate::golden_check::{check, hex};
use crate::replay::START;

#[test]
fn golden_log_and_snapshot() {
    let disk = SimDisk::new(1);
    let opened = open(&disk, settings(0), Mistakes::default(), START).unwrap();
    for command in [
        "SET text hello",
        "SET gone soon PX 1000",
        "INCR integer",
        "RPUSH list a b 3",
        "HSET hash f v",
        "SADD set m",
        "ZADD zset 1.5 m",
        "XADD stream 7-1 f v",
        "XGROUP CREATE stream g 0",
        "DEL text",
    ] {
        line(&opened.store, START, command);
    }
    let (_store, kv_log, mut writer, mut keeper) = opened.keep();
    settle(&mut writer, 0);
    check("kv-log.txt", &files(&disk, &[]));
    assert_eq!(Policy::Sync, kv_log.policy());
    let before = disk.names();
    let asked = kv_log.snapshots().ask();
    for _ in 0..10_000 {
        keeper.step(now(0));
        step(&mut writer, 0);
        kv_log.update();
        if kv_log.snapshots().status().outcome(asked).is_some() {
            break;
        }
    }
    let outcome = kv_log.snapshots().status().outcome(asked);
    assert_eq!(outcome, Some(true));
    check("kv-snapshot.txt", &files(&disk, &before));
}

/// What is on a disk, but for files of these names.
fn files(disk: &SimDisk, but: &[String]) -> String {
    let names = disk.names();
    let shown = names.iter().filter(|name| !but.contains(name));
    shown
        .map(|name| hex(name, &disk.contents(name).unwrap()))
        .collect()
}
