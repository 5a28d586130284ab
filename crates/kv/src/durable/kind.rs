//! Telling a log of keys from one of messages, also where the log does not say it.

use tidewire_log::disk::Disk;
use tidewire_log::{Credit, Kind, OpenError, View, tools};

use super::{STREAM, is_of_store, snapshot};
use crate::store::{Reader, effects};

/// Bytes of a message before its payload.
const HEADER: usize = 12;
/// Credit for the first record, more than enough.
const BEGINNING: Credit = Credit(1);

/// Whether the log on a disk holds messages or keys. Logs of version 0.2.0 and before do not record
/// it: their kind is found out from their records, or from a snapshot beside them. `None`: there
/// are no records, so the log may be of either kind.
///
/// # Errors
/// The error of reading the directory.
pub fn kind_of<D: Disk>(disk: D) -> Result<Option<Kind>, OpenError> {
    if let Some(kind) = tools::kind(&disk)? {
        return Ok(Some(kind));
    }
    if snapshot::is_there(&disk).unwrap_or(false) {
        return Ok(Some(Kind::Keys));
    }
    let view = View::on(disk)?;
    let mut names = view.streams().iter().map(|stream| &*stream.name);
    if names.clone().next().is_none() {
        return Ok(None);
    }
    if !names.all(is_of_store) {
        return Ok(Some(Kind::Messages));
    }
    // A log of messages may have a stream of the same name.
    let Some(range) = view.range(STREAM).filter(|range| range.first < range.next) else {
        return Ok(None);
    };
    let read = view.read(STREAM, range.first, BEGINNING);
    let first = read.ok().and_then(|read| read.runs.into_iter().next());
    Ok(first.map(
        |run| match run.producer.is_empty() && begins_with_unit(&run.bytes) {
            true => Kind::Keys,
            false => Kind::Messages,
        },
    ))
}

/// Whether the payload of the first of these messages is that of a store's log.
#[must_use]
pub fn begins_with_unit(frames: &[u8]) -> bool {
    payload(frames).is_some_and(is_of_unit)
}

fn is_of_unit(payload: &[u8]) -> bool {
    match Reader::default().record(payload) {
        Ok(Some(unit)) => effects(&unit).is_ok(),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// Payload of the first message.
fn payload(frames: &[u8]) -> Option<&[u8]> {
    let header = frames.first_chunk::<HEADER>()?;
    let size = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    frames.get(HEADER..HEADER.checked_add(size)?)
}

#[cfg(test)]
mod tests {
    use tidewire_log::disk::sim::SimDisk;
    use tidewire_log::{EmbeddedLog, Log, Now, ProducerId, Run, Settings, StreamId};

    use super::*;

    fn log_with(kind: Option<Kind>, records: &[(&str, &[u8])]) -> SimDisk {
        let disk = SimDisk::new(1);
        let settings = Settings {
            kind,
            ..Settings::default()
        };
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings).expect("a new log");
        for (stream, payload) in records {
            let stream: StreamId = log.stream(stream).expect("room");
            let mut frames = 1_u64.to_le_bytes().to_vec();
            frames.extend((payload.len() as u32).to_le_bytes());
            frames.extend_from_slice(payload);
            let run = Run {
                stream,
                producer: ProducerId::ANONYMOUS,
                frames: &frames,
                count: 1,
                last_id: 1,
                timestamp_us: 0,
            };
            log.append(run).expect("room");
            writer.step(Now::default());
        }
        log.close();
        writer.close(Now::default());
        disk
    }

    /// The first record of a store's log.
    const UNIT: &[u8] = b"\x02\x01\0\x03\x03SET\x01k\x01v";

    #[test]
    fn a_log_is_known_by_its_header_or_by_what_is_in_it() {
        let messages = [("s", &b"hello"[..])];
        let keys = [(STREAM, UNIT)];
        for (kind, records, expected) in [
            (None, &messages[..], Some(Kind::Messages)),
            (None, &keys[..], Some(Kind::Keys)),
            (None, &[(STREAM, &b"hello"[..])][..], Some(Kind::Messages)),
            (
                None,
                &[(STREAM, UNIT), ("s", b"hello")][..],
                Some(Kind::Messages),
            ),
            (None, &[][..], None),
            // The recorded kind is believed, even if the records look like the other kind.
            (Some(Kind::Messages), &keys[..], Some(Kind::Messages)),
            (Some(Kind::Keys), &keys[..], Some(Kind::Keys)),
        ] {
            let disk = log_with(kind, records);
            assert_eq!(
                kind_of(disk).expect("a log"),
                expected,
                "{kind:?} {records:?}"
            );
        }
    }

    #[test]
    fn a_log_of_one_kind_is_not_opened_as_the_other() {
        let disk = log_with(Some(Kind::Keys), &[(STREAM, UNIT)]);
        let settings = Settings {
            kind: Some(Kind::Messages),
            ..Settings::default()
        };
        let refused = EmbeddedLog::open(disk.clone(), settings).map(drop);
        let refused = refused.expect_err("it is of keys").to_string();
        assert!(
            refused.contains("a log of keys, and not of messages"),
            "{refused}"
        );
        // A log that is opened without naming a kind keeps its kind.
        drop(EmbeddedLog::open(disk.clone(), Settings::default()).expect("a log"));
        assert_eq!(kind_of(disk).expect("a log"), Some(Kind::Keys));
    }
}
