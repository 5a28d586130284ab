//! What `send` has stored of a file that is to be shipped now.
//!
//! The two commands are different producers, and count differently: lines, and bytes. So the server cannot tell that a line comes twice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tidewire::bytes::Bytes;
use tidewire_ingest::client::{
    Begin, Error, Persistence, Producer, Producing, Reader, Record, Subscribing, To,
};
use tidewire_ship::{Checkpoint, Disk, FileSystem, From, Pattern, is_packed};

use super::Args;
use crate::exit::Failure;
use crate::send::{connected, patiently, server, token};
use crate::signals::Signals;
use crate::span::Span;

/// Records at the end of the stream that are compared, and their most bytes.
const RECORDS: u64 = 1024;
const BYTES: usize = 8 << 20;
/// How far back in the stream the records of a producer are looked for, and how many of the last ones are compared.
const FAR: u64 = 64 << 10;
const COMPARED: usize = 256;
/// Lines in a row that are stored already; all of a shorter file.
const ALIKE: usize = 4;
/// Files that are compared, and bytes of the end of each.
const FILES: usize = 64;
const TAIL: u64 = 1 << 20;
/// How long a server may take to show its stream.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked for signals meanwhile.
const SIGNALS: Duration = Duration::from_millis(50);

/// Behind the lines of the file that the server has of this producer.
pub(super) fn behind(
    args: &Args,
    name: &str,
    patterns: &[Pattern],
    checkpoint: &Checkpoint,
    signals: &Signals,
) -> Result<From, Failure> {
    let [Pattern::File(path)] = patterns else {
        return Err(Failure::usage(
            "--sent-by takes one file: how many lines of which file were sent is not known of several",
        ));
    };
    let shown = path.display();
    if checkpoint.files.iter().any(|entry| entry.followed == *path) {
        return Err(Failure::usage(format!(
            "the state knows {shown} already, and goes on where it was: leave --sent-by out"
        )));
    }
    let cannot = |e: std::io::Error| Failure::failed(format!("cannot read {shown}: {e}"));
    let seen = Disk.look(path).map_err(cannot)?;
    let seen = seen.ok_or_else(|| Failure::failed(format!("there is no file {shown}")))?;
    let lines = stored_by(args, name, signals)?.ok_or_else(|| {
        Failure::failed(format!(
            "nothing was shipped: the server knows no producer {name:?} in stream {}",
            args.stream
        ))
    })?;
    let records = records_by(args, name, signals)?;
    if records.is_empty() && lines > 0 {
        eprintln!(
            "tidewire: the lines that producer {name:?} has stored could not be read, so they are not compared with {shown}: it begins \
             behind its line {lines}"
        );
    }
    let offset = match behind_lines(path, lines, &records).map_err(cannot)? {
        Behind::Fewer => {
            return Err(Failure::failed(format!(
                "nothing was shipped: the server has {lines} lines of producer {name:?}, and {shown} has fewer: it is not the file that \
                 was sent, or was rotated since"
            )));
        }
        Behind::Differs(line) => {
            return Err(Failure::failed(format!(
                "nothing was shipped: message {line} of producer {name:?} is not line {line} of {shown}: the producer has sent another \
                 file, or several, or the file was changed or rotated since. --from start ships all of it, --from end begins behind \
                 what it has now"
            )));
        }
        Behind::Cut(offset) => {
            eprintln!(
                "tidewire: line {lines} of {shown} was sent before it was whole, and is shipped again as it is now: its beginning is \
                 stored twice"
            );
            offset
        }
        Behind::Unended(offset) => {
            eprintln!(
                "tidewire: line {lines} of {shown} has no end and was sent as it is: what is written behind it is a message of its own"
            );
            offset
        }
        Behind::At(offset) => offset,
    };
    Ok(From::Behind {
        file: seen.id,
        offset,
    })
}

/// Where shipping goes on in a file whose first lines were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    At(u64),
    /// The last of the lines has no end.
    Unended(u64),
    /// More has been added to the last of the lines since it was sent; it begins there.
    Cut(u64),
    /// This line is another one than was sent.
    Differs(u64),
    /// The file has fewer lines.
    Fewer,
}

/// How many messages the first server has of this producer; `None` if it does not know it.
fn stored_by(args: &Args, name: &str, signals: &Signals) -> Result<Option<u64>, Failure> {
    let producing = Producing {
        producer: name.into(),
        first_id: 1,
        ..args.producing()?
    };
    let to = server(&args.to[0], &args.tls)?;
    let retry = args.give_up().unwrap_or(Duration::MAX / 2);
    let connect = |persistence: Persistence| {
        let producer = Producer::start(to.clone(), producing.clone(), persistence, None)?;
        Ok(match connected(&producer, || signals.has_come())? {
            true => Some(producer.status().settled),
            false => {
                // The producer's thread may be waiting for a connection.
                std::mem::forget(producer);
                None
            }
        })
    };
    let ended = || Failure::failed("nothing was shipped: ended before the server was reached");
    patiently(Span(retry), connect)
        .map_err(|e| Failure::failed(format!("nothing was shipped: {e}")))?
        .ok_or_else(ended)
}

/// Where line number `lines` of the file ends, if `records`, by their ids, are its lines of these numbers. A last line without an end counts,
/// as it does where it is sent.
fn behind_lines(
    path: &Path,
    lines: u64,
    records: &BTreeMap<u64, Bytes>,
) -> std::io::Result<Behind> {
    let mut file = BufReader::with_capacity(256 << 10, File::open(path)?);
    let (mut offset, mut line) = (0, Vec::new());
    let (mut has_end, mut differs) = (true, None);
    for number in 1..=lines {
        let record = records.get(&number);
        let begins = offset;
        if record.is_none() && number < lines {
            let read = file.skip_until(b'\n')?;
            if read == 0 {
                return Ok(Behind::Fewer);
            }
            offset += read as u64;
            continue;
        }
        line.clear();
        if file.read_until(b'\n', &mut line)? == 0 {
            return Ok(Behind::Fewer);
        }
        offset += line.len() as u64;
        has_end = line.last() == Some(&b'\n');
        line.truncate(line.len() - usize::from(has_end));
        match record {
            Some(record) if *record == line => {}
            Some(record)
                if number == lines
                    && differs.is_none()
                    && !record.is_empty()
                    && line.starts_with(record) =>
            {
                return Ok(Behind::Cut(begins));
            }
            Some(_) => drop(differs.get_or_insert(number)),
            None => {}
        }
    }
    Ok(match (differs, has_end) {
        (Some(number), _) => Behind::Differs(number),
        (None, true) => Behind::At(offset),
        (None, false) => Behind::Unended(offset),
    })
}

/// The last records that the stream shows of a producer, by their ids; none where the server does not show them.
fn records_by(args: &Args, name: &str, signals: &Signals) -> Result<BTreeMap<u64, Bytes>, Failure> {
    let name = name.to_owned();
    let found = asked(args, signals, move |to, subscribing| {
        for back in [RECORDS, FAR] {
            let mut found = BTreeMap::new();
            let is_all = each_record(to, subscribing, back, |record| {
                if record.producer == name.as_bytes() {
                    found.insert(record.id, record.payload);
                    if found.len() > COMPARED {
                        found.pop_first();
                    }
                }
                true
            })?;
            if is_all || !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(BTreeMap::new())
    })?;
    Ok(found.unwrap_or_default())
}

/// Refuses to begin a new state with a file whose lines another kind of producer has stored in the stream, as far as that shows in its last
/// records.
pub(super) fn check(
    args: &Args,
    (patterns, exclude): (&[Pattern], &[Pattern]),
    checkpoint: &Checkpoint,
    signals: &Signals,
) -> Result<(), Failure> {
    if !checkpoint.files.is_empty() || !checkpoint.directories.is_empty() {
        return Ok(());
    }
    let files = found(patterns, exclude);
    if files.is_empty() {
        return Ok(());
    }
    let Some(stored) = last_records(args, signals)? else {
        return Ok(());
    };
    let prefix = args.prefix()?;
    for path in files {
        let lines = last_lines(&path).unwrap_or_default();
        for (producer, records) in &stored {
            let Some(position) = in_a_row(&lines, records) else {
                continue;
            };
            let (shown, stream) = (path.display(), &args.stream);
            match shipped(producer, &prefix) {
                Some(other) if Path::new(other) == path => eprintln!(
                    "tidewire: lines of {shown} are in stream {stream} already (position {position}), as another --state \
                     shipped them: all of its lines are stored again"
                ),
                // Another host, or another file, whose lines are alike.
                Some(_) => {}
                None => return Err(Failure::failed(refusal(&path, stream, producer, position))),
            }
        }
    }
    Ok(())
}

fn refusal(path: &Path, stream: &str, producer: &[u8], position: u64) -> String {
    let producer = String::from_utf8_lossy(producer);
    let (by, goes_on) = match producer.is_empty() {
        true => ("a producer without a name".into(), String::new()),
        false => (
            format!("producer {producer}"),
            format!("--sent-by {producer} goes on behind what that producer has sent; "),
        ),
    };
    format!(
        "nothing was shipped: lines of {} are in stream {stream} already (position {position}), sent by {by}, and would be \
         stored twice. {goes_on}--from end begins behind what the file has now, --from start ships all of it",
        path.display()
    )
}

/// The path in the name of a producer of `ship` with this prefix; that of a producer of another prefix is empty. `None` for other names.
fn shipped<'a>(producer: &'a [u8], prefix: &str) -> Option<&'a str> {
    let name = std::str::from_utf8(producer).ok()?;
    let (name, random) = name.rsplit_once('#')?;
    let is_random = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let ours = name.strip_prefix(prefix);
    is_random.then(|| {
        ours.and_then(|rest| rest.strip_prefix(':'))
            .unwrap_or_default()
    })
}

/// The named files that are not empty.
fn found(patterns: &[Pattern], exclude: &[Pattern]) -> Vec<PathBuf> {
    let found = patterns
        .iter()
        .filter_map(|pattern| Disk.find(pattern).ok());
    let files = found.flat_map(|found| found.files);
    let files = files.filter(|seen| seen.len > 0 && !is_packed(&seen.path));
    let files = files.filter(|seen| !exclude.iter().any(|pattern| pattern.names(&seen.path)));
    files.take(FILES).map(|seen| seen.path).collect()
}

/// The last whole lines of a file.
fn last_lines(path: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    let from = len.saturating_sub(TAIL);
    file.seek(SeekFrom::Start(from))?;
    let mut file = BufReader::new(std::io::Read::take(file, TAIL));
    if from > 0 {
        file.skip_until(b'\n')?;
    }
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        file.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Ok(lines);
        }
        lines.push(line);
    }
}

/// The position of lines of the file that are among the records of a producer in a row: [`ALIKE`], or all that the file has, or all that the
/// producer has, if these are two at least.
fn in_a_row(lines: &[Vec<u8>], records: &[(u64, Bytes)]) -> Option<u64> {
    let wanted = lines.len().min(ALIKE).min(records.len().max(2));
    if wanted == 0 {
        return None;
    }
    let mut places: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (at, window) in lines.windows(wanted).enumerate() {
        places.entry(&window[0]).or_default().push(at);
    }
    records.windows(wanted).find_map(|window| {
        let alike = |at: &usize| {
            let lines = lines[*at..].iter();
            window.iter().zip(lines).all(|(one, other)| one.1 == *other)
        };
        let at = places.get(&*window[0].1)?;
        at.iter().any(alike).then_some(window[0].0)
    })
}

/// Positions and payloads of each producer.
type Stored = BTreeMap<Bytes, Vec<(u64, Bytes)>>;

/// The last records of the stream. `None` where the server does not show them, or not soon: that is no reason not to ship.
fn last_records(args: &Args, signals: &Signals) -> Result<Option<Stored>, Failure> {
    asked(args, signals, |to, subscribing| {
        let (mut stored, mut bytes) = (Stored::new(), 0);
        each_record(to, subscribing, RECORDS, |record| {
            bytes += record.payload.len();
            if bytes > BYTES {
                return false;
            }
            let records = stored.entry(record.producer).or_default();
            records.push((record.position, record.payload));
            true
        })?;
        Ok(stored)
    })
}

/// What the first server that answers has to say. `None` where none does, or not soon.
fn asked<T: Send + 'static>(
    args: &Args,
    signals: &Signals,
    ask: impl Fn(&To, &Subscribing) -> Result<T, Error> + Send + 'static,
) -> Result<Option<T>, Failure> {
    let to = args.to.iter().map(|to| server(to, &args.tls));
    let to = to.collect::<Result<Vec<To>, Failure>>()?;
    let subscribing = Subscribing {
        stream: args.stream.clone(),
        token: token(args.token_file.as_deref())?,
        ..Subscribing::default()
    };
    let (tell, told) = mpsc::channel();
    // A thread that waits for a server ends with the process.
    std::thread::spawn(move || {
        let asked = to.into_iter().map(|to| ask(&to, &subscribing));
        // The first one that answers, if only with a refusal.
        let is_answer = |asked: &Result<T, Error>| match asked {
            Ok(_) => true,
            Err(e) => !e.is_passing(),
        };
        let mut asked = asked;
        let _ = tell.send(asked.find(is_answer).and_then(Result::ok));
    });
    let most = args.give_up().unwrap_or(PATIENCE);
    let mut left = most.clamp(Duration::from_secs(1), PATIENCE);
    loop {
        match told.recv_timeout(SIGNALS.min(left)) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
            Err(_) => return Ok(None),
        }
        left = left.saturating_sub(SIGNALS);
        if signals.has_come() {
            return Err(Failure::failed(
                "nothing was shipped: ended before the server was reached",
            ));
        }
    }
}

/// Takes up to so many of the last records of the stream one by one, while they are wanted; whether these are all that it has.
fn each_record(
    to: &To,
    subscribing: &Subscribing,
    most: u64,
    mut take: impl FnMut(Record) -> bool,
) -> Result<bool, Error> {
    let from = |begin| Subscribing {
        begin,
        ..subscribing.clone()
    };
    let tail = Reader::connect(to.clone(), from(Begin::Tail), Persistence::once())?;
    let welcome = tail.welcome();
    drop(tail);
    let begin = welcome.next.saturating_sub(most).max(welcome.first);
    let is_all = begin == welcome.first;
    if begin == welcome.next {
        return Ok(is_all);
    }
    let begin = from(Begin::Position(begin));
    for record in Reader::connect(to.clone(), begin, Persistence::once())? {
        // Records that could not be read are not compared.
        let Ok(record) = record else { break };
        let is_last = record.position + 1 >= welcome.next;
        if record.position >= welcome.next || !take(record) || is_last {
            break;
        }
    }
    Ok(is_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_a_row_are_found_among_records() {
        let lines = |text: &str| -> Vec<Vec<u8>> {
            let lines = text.split(' ').filter(|line| !line.is_empty());
            lines.map(|line| line.as_bytes().to_vec()).collect()
        };
        let records = |text: &str| -> Vec<(u64, Bytes)> {
            let lines = lines(text).into_iter();
            (10..).zip(lines.map(Bytes::from)).collect()
        };
        for (file, stored, expected) in [
            ("a b c d e", "1 2 a b c d", Some(12)),
            ("a b c d e", "1 2 b c d e", Some(12)),
            ("a b c d e", "a b c 1 d e", None),
            ("a b", "1 a b 2", Some(11)),
            ("a b c", "1 a b 2", None),
            ("a b c", "a b", Some(10)),
            ("a b c", "a", None),
            ("a", "1 a", Some(11)),
            ("a a b a a a c", "a a a c", Some(10)),
            ("", "a", None),
            ("a", "", None),
        ] {
            let found = in_a_row(&lines(file), &records(stored));
            assert_eq!(found, expected, "{file:?} in {stored:?}");
        }
    }

    #[test]
    fn producers_of_ship_are_known_by_their_names() {
        let name = |name: &'static str| shipped(name.as_bytes(), "host");
        assert_eq!(name("host:/var/a.log#0123456789abcdef"), Some("/var/a.log"));
        assert_eq!(name("other:/var/a.log#0123456789abcdef"), Some(""));
        assert_eq!(name("job"), None);
        assert_eq!(name("job#1"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn lines_are_counted_as_they_are_sent() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.log");
        std::fs::write(&path, "one\n\nthree\nfo").unwrap();
        for (lines, records, expected) in [
            (0, "", Behind::At(0)),
            (1, "", Behind::At(4)),
            (2, "", Behind::At(5)),
            (4, "", Behind::Unended(13)),
            (5, "", Behind::Fewer),
            (3, "1one 3three", Behind::At(11)),
            (3, "1 2 3three", Behind::Differs(1)),
            (3, "2 3thr", Behind::Cut(5)),
            (3, "2x 3thr", Behind::Differs(2)),
            (3, "3threes", Behind::Differs(3)),
            (3, "3", Behind::Differs(3)),
            (4, "3thr", Behind::Differs(3)),
            (4, "4fo", Behind::Unended(13)),
            (4, "4f", Behind::Cut(11)),
        ] {
            let told = records.split_whitespace().map(|record| {
                let (id, text) = record.split_at(1);
                (id.parse().unwrap(), Bytes::from(text.as_bytes().to_vec()))
            });
            let found = behind_lines(&path, lines, &told.collect()).unwrap();
            assert_eq!(found, expected, "{lines} {records:?}");
        }
    }
}
