//! How streams are written.

use std::io::{self, Write};

use serde_json::{Value, json};
use tidewire_ingest::client::{PlaceState, StreamState, printable};

use super::micros;
use crate::read::time;
use crate::size::Size;
use crate::span::Span;

/// Output of `stream list`.
pub(super) fn list(streams: &[StreamState], json: bool, out: &mut impl Write) -> io::Result<()> {
    if json {
        return streams.iter().try_for_each(|stream| {
            serde_json::to_writer(&mut *out, &value(stream))?;
            writeln!(out)
        });
    }
    let head = [
        "STREAM",
        "FIRST",
        "NEXT",
        "BYTES",
        "RETAIN",
        "LIMIT",
        "STORED",
        "PRODUCERS",
        "CURSORS",
        "READERS",
        "LAG",
        "PINS",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(streams.iter().map(row));
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            let widths = rows.iter().map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:<width$}  "))
            .collect();
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn row(stream: &StreamState) -> [String; 12] {
    [
        printable(&stream.name),
        stream.first.to_string(),
        stream.next.to_string(),
        stream.bytes.to_string(),
        retain(stream),
        limit(stream.settings.limit_bytes),
        stream.settings.compression.name().to_owned(),
        stream.producers.to_string(),
        stream.cursors.to_string(),
        stream.readers.to_string(),
        stream.lag.to_string(),
        pins(stream),
    ]
}

fn pins(stream: &StreamState) -> String {
    let pins = stream.pins;
    pins.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string())
}

fn retain(stream: &StreamState) -> String {
    let settings = &stream.settings;
    let bytes = settings.retain_bytes.map(|bytes| Size(bytes).to_string());
    let age = settings.retain_age.map(|age| Span(age).to_string());
    match (bytes, age) {
        (None, None) => "-".to_owned(),
        (bytes, age) => {
            let both: Vec<_> = bytes.into_iter().chain(age).collect();
            both.join(",")
        }
    }
}

fn limit(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| Size(bytes).to_string())
}

fn value(stream: &StreamState) -> Value {
    let settings = &stream.settings;
    json!({
        "stream": stream.name,
        "first": stream.first,
        "next": stream.next,
        "bytes": stream.bytes,
        "pins": stream.pins,
        "newest_us": stream.newest_us,
        "retain_bytes": settings.retain_bytes,
        "retain_age_us": settings.retain_age.map(micros),
        "limit_bytes": settings.limit_bytes,
        "compression": settings.compression.name(),
        "producers": stream.producers,
        "cursors": stream.cursors,
        "readers": stream.readers,
        "lag": stream.lag,
    })
}

/// Output of `stream show`.
pub(super) fn one(
    stream: &StreamState,
    cursors: &[PlaceState],
    readers: &[PlaceState],
    json: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    if json {
        let mut whole = value(stream);
        let place = |place: &PlaceState| {
            json!({
                "cursor": place.cursor,
                "peer": place.peer,
                "position": place.position,
                "lag": place.lag,
            })
        };
        // The lists replace the counts of their items.
        whole["cursors"] = cursors.iter().map(place).collect();
        whole["readers"] = readers.iter().map(place).collect();
        serde_json::to_writer(&mut *out, &whole)?;
        return writeln!(out);
    }
    let newest = match stream.newest_us {
        0 => "-".to_owned(),
        us => time(us),
    };
    let (first, next, bytes) = (stream.first, stream.next, stream.bytes);
    writeln!(out, "stream     {}", printable(&stream.name))?;
    writeln!(
        out,
        "positions  {first}..{next}, {bytes} bytes, newest {newest}"
    )?;
    writeln!(
        out,
        "pins       {} bytes of the oldest segments",
        pins(stream)
    )?;
    writeln!(out, "retain     {}", retain(stream))?;
    writeln!(out, "limit      {}", limit(stream.settings.limit_bytes))?;
    writeln!(out, "stored     {}", stream.settings.compression.name())?;
    writeln!(out, "producers  {}", stream.producers)?;
    for cursor in cursors {
        let (position, lag) = (cursor.position, cursor.lag);
        let name = printable(&cursor.cursor);
        writeln!(out, "cursor     {name} at {position}, {lag} behind")?;
    }
    for reader in readers {
        let (position, lag) = (reader.position, reader.lag);
        let peer = printable(&reader.peer);
        writeln!(out, "reader     {peer} at {position}, {lag} behind")?;
    }
    Ok(())
}
