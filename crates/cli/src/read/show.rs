//! How a record is written.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use tidewire_ingest::client::{Record, is_obeyed, printable};

/// A form of writing records, a line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Position, time, producer and id, then the payload; for people.
    Text,
    /// A JSON object.
    Json,
    /// The payload alone.
    Raw,
}

/// A record for programs. A payload that is no UTF-8 comes in base64, under another name.
#[derive(Serialize)]
struct Shown<'a> {
    position: u64,
    id: u64,
    producer: Option<&'a str>,
    timestamp: String,
    timestamp_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl Form {
    pub(super) fn write(self, record: &Record, out: &mut impl Write) -> io::Result<()> {
        match self {
            Form::Raw => out.write_all(&record.payload)?,
            Form::Json => {
                let mut json = Serializer::with_formatter(&mut *out, Plain);
                shown(record).serialize(&mut json)?;
            }
            Form::Text => {
                let (position, id) = (record.position, record.id);
                let producer = match &record.producer[..] {
                    [] => Cow::Borrowed("-"),
                    name => Cow::Owned(printable(&String::from_utf8_lossy(name))),
                };
                let at = time(record.timestamp_us);
                let payload = record.payload.utf8_chunks();
                write!(out, "{position} {at} {producer} {id} ")?;
                for chunk in payload {
                    // Control characters are shown, so that a terminal does not obey them.
                    for c in chunk.valid().chars() {
                        match c {
                            '\t' => out.write_all(b"\t")?,
                            c if is_obeyed(c) => write!(out, "{}", c.escape_default())?,
                            c => write!(out, "{c}")?,
                        }
                    }
                    for byte in chunk.invalid() {
                        write!(out, "\\x{byte:02x}")?;
                    }
                }
            }
        }
        out.write_all(b"\n")
    }
}

/// JSON in which a terminal finds nothing to obey: such characters are escaped, which means the same.
struct Plain;

impl Formatter for Plain {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(is_obeyed) {
            let (before, from) = rest.split_at(at);
            to.write_all(before.as_bytes())?;
            let mut chars = from.chars();
            // All obeyed characters have one UTF-16 unit.
            let obeyed = chars.next().map_or(0, u32::from);
            write!(to, "\\u{obeyed:04x}")?;
            rest = chars.as_str();
        }
        to.write_all(rest.as_bytes())
    }
}

fn shown(record: &Record) -> Shown<'_> {
    let producer = std::str::from_utf8(&record.producer).unwrap_or_default();
    let text = std::str::from_utf8(&record.payload).ok();
    Shown {
        position: record.position,
        id: record.id,
        producer: (!producer.is_empty()).then_some(producer),
        timestamp: time(record.timestamp_us),
        timestamp_us: record.timestamp_us,
        payload: text,
        payload_base64: text.is_none().then(|| STANDARD.encode(&record.payload)),
    }
}

/// Microseconds since the Unix epoch as people write them, in UTC.
pub(crate) fn time(us: u64) -> String {
    // No message was received at a time that the formatter's calendar cannot name.
    const LAST: u64 = 253_402_300_799;
    let since = Duration::from_micros(us).min(Duration::from_secs(LAST));
    humantime::format_rfc3339_micros(UNIX_EPOCH + since).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(form: Form, payload: &'static [u8]) -> String {
        let record = Record {
            position: 7,
            id: 9,
            producer: "p".into(),
            timestamp_us: 1_700_000_000_000_001,
            payload: payload.into(),
        };
        let mut out = Vec::new();
        form.write(&record, &mut out).unwrap();
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn one_line_whatever_the_payload() {
        assert_eq!(
            lines(Form::Text, b"hi\x1b[2J\n\xff"),
            "7 2023-11-14T22:13:20.000001Z p 9 hi\\u{1b}[2J\\n\\xff\n"
        );
        // Names of files, and lines, that look like others.
        assert_eq!(
            lines(Form::Text, "a\u{202e}fdp.exe\u{85}\u{2028}ä".as_bytes()),
            "7 2023-11-14T22:13:20.000001Z p 9 a\\u{202e}fdp.exe\\u{85}\\u{2028}ä\n"
        );
        let payload = "\u{9b}2J \u{7f}\u{2066}\u{2028}\u{1b} \"ä€😀";
        let line = lines(Form::Json, payload.as_bytes());
        assert!(line.trim_end().chars().all(|c| !is_obeyed(c)), "{line}");
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["payload"], payload);
        assert_eq!(lines(Form::Raw, b"hi"), "hi\n");
        let json: serde_json::Value = serde_json::from_str(&lines(Form::Json, b"h\n")).unwrap();
        assert_eq!(json["payload"], "h\n");
        assert_eq!((&json["position"], &json["id"]), (&7.into(), &9.into()));
        let json: serde_json::Value = serde_json::from_str(&lines(Form::Json, b"\xff")).unwrap();
        assert_eq!(json["payload_base64"], "/w==");
        assert!(json.get("payload").is_none());
    }

    #[test]
    fn names_are_escaped() {
        let record = Record {
            position: 0,
            id: 1,
            producer: "\x1b[2Jx".into(),
            timestamp_us: 0,
            payload: "hi".into(),
        };
        let mut out = Vec::new();
        Form::Text.write(&record, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(" \\u{1b}[2Jx 1 hi"), "{text}");
    }

    #[test]
    fn times_beyond_the_calendar_are_shown_somehow() {
        assert_eq!(time(u64::MAX), "9999-12-31T23:59:59.000000Z");
    }
}
