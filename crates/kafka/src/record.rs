//! The records at home, as any Kafka client reads them, in two forms; see docs/howto/replicate.md.

use tidewire_replicate::Record;

use crate::format::Malformed;

/// The form of a record of the topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Consecutive messages of one producer, framed.
    #[default]
    Run,
    /// A record holds one message: its payload, and nothing else.
    Message,
}

impl Form {
    /// Most bytes of messages in a record of this form, if runs have at most `run` bytes; a larger message is a record alone.
    pub const fn record_bytes(self, run: usize) -> usize {
        match self {
            Form::Run => run,
            Form::Message => 1,
        }
    }
}

/// A record of messages, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Offset of the record in the partition.
    pub offset: u64,
    /// The contents of the record.
    pub record: Record,
}

/// The version of the format.
const VERSION: &str = "tidewire";
/// Header with the producer of the messages.
const PRODUCER: &str = "tidewire-producer";
/// The position of the first one, in the owner's log.
const POSITION: &str = "tidewire-position";
/// How many there are: of runs.
const COUNT: &str = "tidewire-count";
/// The id of the one that there is.
const ID: &str = "tidewire-id";
/// The header with the time at which the messages were received, in microseconds since the Unix
/// epoch.
const RECEIVED: &str = "tidewire-received-us";

const RUN: &str = "1";
const MESSAGE: &str = "2";

/// Bytes of a message before its payload: its id, and the length of the payload.
const HEADER: usize = 12;

/// A record to be sent: its headers by name, and its value.
pub(crate) struct Sent<'a> {
    pub(crate) headers: [(&'static str, String); 5],
    pub(crate) value: &'a [u8],
}

/// The Kafka record that is sent for a record. A record with several messages is always a run.
pub(crate) fn sent(record: &Record, form: Form) -> Sent<'_> {
    let id = match (form, record.count, record.frames.first_chunk()) {
        (Form::Message, 1, Some(id)) => Some(u64::from_le_bytes(*id)),
        _ => None,
    };
    let (version, number, value) = match id {
        Some(id) => (
            MESSAGE,
            (ID, id),
            record.frames.get(HEADER..).unwrap_or_default(),
        ),
        None => (RUN, (COUNT, record.count.into()), &record.frames[..]),
    };
    Sent {
        headers: [
            (VERSION, version.to_owned()),
            (PRODUCER, record.producer.to_string()),
            (POSITION, record.first.to_string()),
            (number.0, number.1.to_string()),
            (RECEIVED, record.timestamp_us.to_string()),
        ],
        value,
    }
}

/// A record, from its key, its headers by name and its value.
pub(crate) fn record<'a>(
    key: &[u8],
    header: impl Fn(&str) -> Option<&'a [u8]>,
    value: &[u8],
) -> Result<Record, Malformed> {
    let text = |name: &str| header(name).and_then(|bytes| std::str::from_utf8(bytes).ok());
    let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
    let (count, frames) = match text(VERSION) {
        Some(RUN) => {
            let count = number(COUNT).and_then(|count| u32::try_from(count).ok());
            let count = count.ok_or(Malformed("it has no count"))?;
            if count == 0 || frames(value) != Some(count) {
                return Err(Malformed(
                    "its messages are not as many as it says, or cut off",
                ));
            }
            (count, value.to_vec())
        }
        Some(MESSAGE) => {
            let id = number(ID).ok_or(Malformed("it has no id"))?;
            let size = u32::try_from(value.len()).map_err(|_| Malformed("it is too large"))?;
            let mut frame = Vec::with_capacity(HEADER + value.len());
            frame.extend_from_slice(&id.to_le_bytes());
            frame.extend_from_slice(&size.to_le_bytes());
            frame.extend_from_slice(value);
            (1, frame)
        }
        _ => {
            return Err(Malformed(
                "it has no header tidewire, or not version 1 or 2",
            ));
        }
    };
    Ok(Record {
        stream: std::str::from_utf8(key)
            .map_err(|_| Malformed("its key names no stream"))?
            .into(),
        producer: text(PRODUCER)
            .ok_or(Malformed("it names no producer"))?
            .into(),
        first: number(POSITION).ok_or(Malformed("it has no position"))?,
        count,
        timestamp_us: number(RECEIVED).ok_or(Malformed("it has no time"))?,
        frames,
    })
}

/// How many messages there are, if there is nothing else.
fn frames(mut bytes: &[u8]) -> Option<u32> {
    let mut count = 0u32;
    while !bytes.is_empty() {
        let header = bytes.first_chunk::<HEADER>()?;
        let size = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        bytes = bytes.get(HEADER..)?.get(size..)?;
        count = count.checked_add(1)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        Record {
            stream: "s".into(),
            producer: "p".into(),
            first: 5,
            count: 1,
            timestamp_us: 9,
            frames: b"\x01\0\0\0\0\0\0\0\x02\0\0\0hi".to_vec(),
        }
    }

    fn decoded(of: &Record, form: Form, value: &[u8]) -> Result<Record, Malformed> {
        let headers = sent(of, form).headers;
        let header = |name: &str| {
            let found = headers.iter().find(|(header, _)| *header == name)?;
            Some(found.1.as_bytes())
        };
        record(of.stream.as_bytes(), header, value)
    }

    #[test]
    fn records_go_both_ways_and_others_are_refused() {
        let record = sample();
        let run = Form::Run;
        assert_eq!(decoded(&record, run, &record.frames), Ok(record.clone()));
        for len in 0..record.frames.len() {
            assert!(decoded(&record, run, &record.frames[..len]).is_err());
        }
        let twice = [&record.frames[..], &record.frames[..]].concat();
        assert!(decoded(&record, run, &twice).is_err());
        assert!(super::record(b"s", |_| None, &record.frames).is_err());
    }

    #[test]
    fn a_message_alone_is_its_payload() {
        let record = sample();
        let Sent { headers, value } = sent(&record, Form::Message);
        assert_eq!(value, b"hi");
        let headers = headers
            .each_ref()
            .map(|(name, text)| (*name, text.as_str()));
        assert_eq!(
            headers,
            [
                ("tidewire", "2"),
                ("tidewire-producer", "p"),
                ("tidewire-position", "5"),
                ("tidewire-id", "1"),
                ("tidewire-received-us", "9"),
            ]
        );
        assert_eq!(decoded(&record, Form::Message, b"hi"), Ok(record.clone()));
        let empty = Record {
            frames: [&u64::MAX.to_le_bytes()[..], &[0; 4]].concat(),
            ..record.clone()
        };
        assert_eq!(sent(&empty, Form::Message).value, b"");
        assert_eq!(decoded(&empty, Form::Message, b""), Ok(empty.clone()));
        // A record of two messages goes as a run, whichever form is asked for.
        let two = Record {
            count: 2,
            frames: [&record.frames[..], &record.frames[..]].concat(),
            ..record
        };
        assert_eq!(sent(&two, Form::Message).value, two.frames);
        assert_eq!(decoded(&two, Form::Message, &two.frames), Ok(two.clone()));
    }
}
