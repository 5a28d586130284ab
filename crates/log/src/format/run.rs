//! The runs of a batch: records, and what is written about streams, producers and cursors.

use super::layout::{Fault, RECORDS_HEADER, RUN_PREFIX, checksum_fault, u32_at, u64_at};
use super::settings;
use crate::{Compression, StreamSettings};

const RECORDS: u8 = 1;
const STREAM: u8 = 2;
const PRODUCER_BEFORE: u8 = 3;
const CURSOR: u8 = 4;
const CHECKPOINT_BEFORE: u8 = 5;
const PRODUCER: u8 = 6;
const CHECKPOINT: u8 = 7;
const MISSING: u8 = 8;
const STREAM_SET: u8 = 9;
const DELETED: u8 = 10;
const TRIMMED: u8 = 11;
const CHECKPOINT_ADMINISTERED: u8 = 12;

/// Where the checksum is in the header of a run of records.
const RECORDS_CRC: usize = 44;

/// The position of a cursor that was deleted. No stream ever gets there.
pub(crate) const CURSOR_GONE: u64 = u64::MAX;

/// The bits of the flags of a run of records that name its compression.
const COMPRESSION_SHIFT: u32 = 4;

/// Records as they are stored, with their checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) crc: u32,
    pub(crate) compression: Compression,
}

/// A run of records of one producer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records<'a> {
    pub(crate) stream: u32,
    pub(crate) producer: u32,
    pub(crate) timestamp_us: u64,
    /// The position of the first record in its stream.
    pub(crate) first: u64,
    /// The id of the last one.
    pub(crate) last_id: u64,
    pub(crate) count: u32,
    /// The frames in their stored form.
    pub(crate) frames: &'a [u8],
    pub(crate) compression: Compression,
    header: &'a [u8],
}

impl<'a> Records<'a> {
    /// The header of the run, for frames with this checksum. The checksum in it goes on from there
    /// over the header itself: so the frames can be summed before their position is known.
    pub(crate) fn header(
        run: &crate::Run<'_>,
        timestamp_us: u64,
        first: u64,
        frames: Stored<'_>,
    ) -> [u8; RECORDS_HEADER] {
        let mut bytes = [0; RECORDS_HEADER];
        let length = (RECORDS_HEADER - RUN_PREFIX + frames.bytes.len()) as u32;
        bytes[..RUN_PREFIX].copy_from_slice(&prefix(RECORDS, length));
        bytes[1] = frames.compression.code() << COMPRESSION_SHIFT;
        bytes[8..12].copy_from_slice(&run.stream.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&run.producer.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&timestamp_us.to_le_bytes());
        bytes[24..32].copy_from_slice(&first.to_le_bytes());
        bytes[32..40].copy_from_slice(&run.last_id.to_le_bytes());
        bytes[40..44].copy_from_slice(&run.count.to_le_bytes());
        let crc = crc32c::crc32c_append(frames.crc, &bytes[..RECORDS_CRC]);
        bytes[RECORDS_CRC..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The run with its frames in another form.
    pub(crate) fn with<'b>(self, frames: &'b [u8]) -> Records<'b>
    where
        'a: 'b,
    {
        Records { frames, ..self }
    }

    /// Whether a run that begins like this is one of records.
    pub(crate) fn is(prefix: &[u8]) -> bool {
        prefix[0] == RECORDS
    }

    /// Decodes only the header, for which `bytes` has the [`RECORDS_HEADER`] bytes; `frames` stays
    /// empty. Returns also the length of the frames; `None` if the run is no run of records.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<(Records<'a>, usize)> {
        let bytes = bytes.get(..RECORDS_HEADER)?;
        if bytes[0] != RECORDS {
            return None;
        }
        let length = u32_at(bytes, 4) as usize;
        let frames = length.checked_sub(RECORDS_HEADER - RUN_PREFIX)?;
        let compression = Compression::of(bytes[1] >> COMPRESSION_SHIFT)?;
        let records = Records {
            stream: u32_at(bytes, 8),
            producer: u32_at(bytes, 12),
            timestamp_us: u64_at(bytes, 16),
            first: u64_at(bytes, 24),
            last_id: u64_at(bytes, 32),
            count: u32_at(bytes, 40),
            frames: &[],
            compression,
            header: bytes,
        };
        Some((records, frames))
    }

    /// Checks the run, found at `offset` with `frames` behind its header, against its checksum.
    pub(crate) fn verify(&self, frames: &[u8], offset: u64) -> Result<(), Fault> {
        let stored = u32_at(self.header, RECORDS_CRC);
        let frames_crc = crc32c::crc32c(frames);
        let computed = crc32c::crc32c_append(frames_crc, &self.header[..RECORDS_CRC]);
        if computed == stored {
            Ok(())
        } else {
            let what = format!("a run of {} records", self.count);
            Err(checksum_fault(offset, &what, stored, computed))
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunView<'a> {
    /// Records.
    Records(Records<'a>),
    /// A stream has this name.
    Stream {
        id: u32,
        name: &'a str,
        whole: &'a [u8],
    },
    /// A producer of a stream has this name.
    Producer {
        id: u32,
        stream: u32,
        /// By the log's own clock; 0 in version 1, which had it by the wall clock.
        seen_us: u64,
        name: &'a str,
        whole: &'a [u8],
    },
    /// The named cursor of a stream was set.
    Cursor {
        stream: u32,
        position: u64,
        name: &'a str,
        whole: &'a [u8],
    },
    /// The whole state after this batch.
    Checkpoint {
        bytes: &'a [u8],
        form: Form,
        whole: &'a [u8],
    },
    /// A stream has this name and these settings.
    StreamSet {
        id: u32,
        /// The position that the stream's next record will have: the first one, if the stream is
        /// new.
        first: u64,
        settings: StreamSettings,
        name: &'a str,
        whole: &'a [u8],
    },
    /// A stream was deleted.
    Deleted { id: u32, whole: &'a [u8] },
    /// The records of a stream before a position are not kept any more.
    Trimmed {
        stream: u32,
        position: u64,
        whole: &'a [u8],
    },
    /// Lost batches and positions.
    Missing { bytes: &'a [u8], whole: &'a [u8] },
}

/// How a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The form of version 1.
    Before,
    /// As long as no stream was ever administered.
    Plain,
    /// A batch with changed settings of streams, and with deleted streams.
    Administered,
}

impl Form {
    fn kind(self) -> u8 {
        match self {
            Form::Before => CHECKPOINT_BEFORE,
            Form::Plain => CHECKPOINT,
            Form::Administered => CHECKPOINT_ADMINISTERED,
        }
    }
}

/// Positions of a stream that are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Missing {
    pub(crate) stream: u32,
    /// The first position that is lost, and the one after the last.
    pub(crate) first: u64,
    pub(crate) next: u64,
}

/// Length of one entry of missing positions.
const MISSING_ENTRY: usize = 20;

impl Missing {
    fn entry(bytes: &[u8]) -> Missing {
        Missing {
            stream: u32_at(bytes, 0),
            first: u64_at(bytes, 4),
            next: u64_at(bytes, 12),
        }
    }

    fn put(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.stream.to_le_bytes());
        to.extend_from_slice(&self.first.to_le_bytes());
        to.extend_from_slice(&self.next.to_le_bytes());
    }

    /// Decodes the contents of such a run: the last lost batch, and the lost positions.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(u64, Vec<Missing>)> {
        let (through, rest) = bytes.split_at_checked(8)?;
        if !rest.len().is_multiple_of(MISSING_ENTRY) {
            return None;
        }
        let lost = rest.chunks_exact(MISSING_ENTRY).map(Missing::entry);
        let lost = lost.collect::<Vec<_>>();
        let makes_sense = lost.iter().all(|lost| lost.first < lost.next);
        makes_sense.then_some((u64_at(through, 0), lost))
    }
}

impl<'a> RunView<'a> {
    /// The bytes of the run that the checksum of the batch's body covers.
    pub(crate) fn covered(&self) -> &'a [u8] {
        match *self {
            RunView::Records(run) => run.header,
            RunView::Stream { whole, .. }
            | RunView::Producer { whole, .. }
            | RunView::Cursor { whole, .. }
            | RunView::Checkpoint { whole, .. }
            | RunView::StreamSet { whole, .. }
            | RunView::Deleted { whole, .. }
            | RunView::Trimmed { whole, .. }
            | RunView::Missing { whole, .. } => whole,
        }
    }

    /// Length of the run in bytes, with its prefix.
    pub(crate) fn length(&self) -> usize {
        let frames = match self {
            RunView::Records(run) => run.frames.len(),
            _ => 0,
        };
        self.covered().len() + frames
    }

    /// `whole` is the run with its prefix.
    pub(crate) fn decode(whole: &'a [u8]) -> Option<RunView<'a>> {
        let body = &whole[RUN_PREFIX..];
        let name = |from: usize| {
            let name = std::str::from_utf8(body.get(from..)?).ok()?;
            (1..=255).contains(&name.len()).then_some(name)
        };
        let flags = match whole[0] {
            // The compression of records is checked with the rest.
            RECORDS => whole[1] & ((1 << COMPRESSION_SHIFT) - 1),
            _ => whole[1],
        };
        if (flags, whole[2], whole[3]) != (0, 0, 0) {
            // Flags that no version has written yet.
            return None;
        }
        match whole[0] {
            RECORDS => {
                let (run, _) = Records::decode(whole)?;
                let frames = &whole[RECORDS_HEADER..];
                (run.count > 0).then_some(RunView::Records(Records { frames, ..run }))
            }
            STREAM => Some(RunView::Stream {
                name: name(4)?,
                id: u32_at(body, 0),
                whole,
            }),
            kind @ (PRODUCER | PRODUCER_BEFORE) => Some(RunView::Producer {
                name: name(16)?,
                id: u32_at(body, 0),
                stream: u32_at(body, 4),
                seen_us: if kind == PRODUCER { u64_at(body, 8) } else { 0 },
                whole,
            }),
            CURSOR => Some(RunView::Cursor {
                name: name(12)?,
                stream: u32_at(body, 0),
                position: u64_at(body, 4),
                whole,
            }),
            kind @ (CHECKPOINT | CHECKPOINT_BEFORE | CHECKPOINT_ADMINISTERED) => {
                let forms = [Form::Before, Form::Plain, Form::Administered];
                let form = forms.into_iter().find(|form| form.kind() == kind)?;
                Some(RunView::Checkpoint {
                    bytes: body,
                    form,
                    whole,
                })
            }
            STREAM_SET => Some(RunView::StreamSet {
                name: name(12 + settings::LENGTH)?,
                id: u32_at(body, 0),
                first: u64_at(body, 4),
                settings: settings::decode(&body[12..])?,
                whole,
            }),
            DELETED => (body.len() == 4).then(|| RunView::Deleted {
                id: u32_at(body, 0),
                whole,
            }),
            TRIMMED => (body.len() == 12).then(|| RunView::Trimmed {
                stream: u32_at(body, 0),
                position: u64_at(body, 4),
                whole,
            }),
            MISSING => Some(RunView::Missing { bytes: body, whole }),
            _ => None,
        }
    }
}

/// The runs of a batch, with the offset of each in its file.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    body: &'a [u8],
    at: usize,
    left: u32,
    offset: u64,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(body: &'a [u8], offset: u64, count: u32) -> Runs<'a> {
        Runs {
            body,
            at: 0,
            left: count,
            offset,
        }
    }

    fn take(&mut self) -> Result<RunView<'a>, Fault> {
        let offset = self.offset + self.at as u64;
        let rest = &self.body[self.at..];
        if rest.len() < RUN_PREFIX {
            return Err(Fault::new(offset, "a run", "the end of the batch"));
        }
        let length = RUN_PREFIX + u32_at(rest, 4) as usize;
        let Some(whole) = rest.get(..length) else {
            let found = format!("a run of {length} bytes where {} are left", rest.len());
            return Err(Fault::new(offset, "a run", found));
        };
        let Some(run) = RunView::decode(whole) else {
            let found = format!("one of kind {} and {length} bytes", whole[0]);
            return Err(Fault::new(offset, "a run of a known kind", found));
        };
        self.at += length;
        Ok(run)
    }

    /// The bytes behind the last run must be zeros, fewer than are needed to align the next batch.
    pub(crate) fn verify_padding(&self) -> Result<(), Fault> {
        let rest = &self.body[self.at..];
        if rest.len() < super::layout::ALIGN && rest.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let offset = self.offset + self.at as u64;
        Err(Fault::new(
            offset,
            "the end of the batch",
            format!("{} more bytes", rest.len()),
        ))
    }
}

impl<'a> Iterator for Runs<'a> {
    type Item = Result<(u64, RunView<'a>), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let offset = self.offset + self.at as u64;
        let run = self.take();
        if run.is_err() {
            self.left = 0;
        }
        Some(run.map(|run| (offset, run)))
    }
}

/// Appends a stream's definition.
pub(crate) fn put_stream(to: &mut Vec<u8>, id: u32, name: &str) {
    to.extend_from_slice(&prefix(STREAM, 4 + name.len() as u32));
    to.extend_from_slice(&id.to_le_bytes());
    to.extend_from_slice(name.as_bytes());
}

/// Appends a producer's definition.
pub(crate) fn put_producer(to: &mut Vec<u8>, id: u32, stream: u32, seen_us: u64, name: &str) {
    to.extend_from_slice(&prefix(PRODUCER, 16 + name.len() as u32));
    to.extend_from_slice(&id.to_le_bytes());
    to.extend_from_slice(&stream.to_le_bytes());
    to.extend_from_slice(&seen_us.to_le_bytes());
    to.extend_from_slice(name.as_bytes());
}

/// Appends a cursor's position.
pub(crate) fn put_cursor(to: &mut Vec<u8>, stream: u32, position: u64, name: &str) {
    to.extend_from_slice(&prefix(CURSOR, 12 + name.len() as u32));
    to.extend_from_slice(&stream.to_le_bytes());
    to.extend_from_slice(&position.to_le_bytes());
    to.extend_from_slice(name.as_bytes());
}

/// Appends the lost parts: batches up to `through`, and positions.
pub(crate) fn put_missing(to: &mut Vec<u8>, through: u64, lost: &[Missing]) {
    to.extend_from_slice(&prefix(MISSING, (8 + MISSING_ENTRY * lost.len()) as u32));
    to.extend_from_slice(&through.to_le_bytes());
    lost.iter().for_each(|lost| lost.put(to));
}

/// Appends what is set about a stream; `first` is the position that its next record will have.
pub(crate) fn put_stream_set(
    to: &mut Vec<u8>,
    id: u32,
    first: u64,
    set: &StreamSettings,
    name: &str,
) {
    let length = 12 + settings::LENGTH + name.len();
    to.extend_from_slice(&prefix(STREAM_SET, length as u32));
    to.extend_from_slice(&id.to_le_bytes());
    to.extend_from_slice(&first.to_le_bytes());
    settings::put(to, set);
    to.extend_from_slice(name.as_bytes());
}

/// Appends that a stream is deleted.
pub(crate) fn put_deleted(to: &mut Vec<u8>, id: u32) {
    to.extend_from_slice(&prefix(DELETED, 4));
    to.extend_from_slice(&id.to_le_bytes());
}

/// Appends from where on the records of a stream are kept.
pub(crate) fn put_trimmed(to: &mut Vec<u8>, stream: u32, position: u64) {
    to.extend_from_slice(&prefix(TRIMMED, 12));
    to.extend_from_slice(&stream.to_le_bytes());
    to.extend_from_slice(&position.to_le_bytes());
}

/// Appends a checkpoint whose content `put` appends; it returns the form.
pub(crate) fn put_checkpoint(to: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>) -> Form) {
    let start = to.len();
    to.extend_from_slice(&[0; RUN_PREFIX]);
    let form = put(to);
    let length = (to.len() - start - RUN_PREFIX) as u32;
    to[start..start + RUN_PREFIX].copy_from_slice(&prefix(form.kind(), length));
}

fn prefix(kind: u8, length: u32) -> [u8; RUN_PREFIX] {
    let mut bytes = [0; RUN_PREFIX];
    bytes[0] = kind;
    bytes[4..].copy_from_slice(&length.to_le_bytes());
    bytes
}
