//! The bytes of a log, held to what docs/formats/log-format.md shows.

use std::fmt::Write;

use super::recovery::{FIRST, open};
use super::settle;
use crate::disk::sim::SimDisk;
use crate::{Log, ProducerId, Run};

/// Sixteen bytes a line.
fn hex(bytes: &[u8], from: usize) -> String {
    let mut text = String::new();
    for (line, bytes) in bytes.chunks(16).enumerate() {
        let shown = bytes.iter().map(|byte| format!(" {byte:02x}"));
        let shown: String = shown.collect();
        let readable = |byte: u8| {
            if byte.is_ascii_graphic() {
                byte as char
            } else {
                '.'
            }
        };
        let readable: String = bytes.iter().map(|&byte| readable(byte)).collect();
        let at = from + line * 16;
        writeln!(text, "{at:4} {shown:<48}  {readable}").expect("a string");
    }
    text
}

#[test]
fn a_log_has_the_bytes_that_the_documentation_shows() {
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = open(&disk).expect("the log");
    let stream = log.stream("s").expect("a stream");
    let run = Run {
        stream,
        producer: ProducerId::ANONYMOUS,
        frames: b"\x01\0\0\0\0\0\0\0\x02\0\0\0hi",
        count: 1,
        last_id: 1,
        timestamp_us: 1_000_000,
    };
    log.append(run).expect("room");
    settle(&mut writer);
    let segment = disk.contents(FIRST).expect("a segment");
    let used = segment.iter().rposition(|&byte| byte != 0).expect("bytes") + 1;
    let used = used.next_multiple_of(8);
    let claims = disk.contents("claims").expect("a file");
    let slots = [&claims[..84], &claims[4096..4180]];
    let newest = slots
        .iter()
        .position(|slot| slot[24] == 1)
        .expect("a claim");
    let segment = hex(&segment[..used], 0);
    let claims = hex(slots[newest], newest * 4096);
    let shown = include_str!("../../../../docs/formats/log-format.md");
    assert!(shown.contains(&segment), "the segment is\n{segment}");
    assert!(shown.contains(&claims), "the claims are\n{claims}");
}
