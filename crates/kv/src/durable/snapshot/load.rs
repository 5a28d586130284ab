//! Reading a snapshot into an empty store.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tidewire_log::Range;
use tidewire_log::disk::{Disk, DiskFile};

use super::format::{
    BLOCK_HEAD, BlockHead, HEADER, Header, Totals, Wrong, name, position_of, position_of_moved,
};
use crate::store::{Loading, Malformed, Store};

/// Bytes of a file above which several threads put its items into the store.
const LARGE: u64 = 8 << 20;
/// Threads at most, and blocks that wait for each.
const THREADS: usize = 8;
const AHEAD: usize = 2;
/// Bytes of a block that are read at once.
const PIECE: usize = 1 << 20;

/// A snapshot that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The header of the snapshot.
    pub header: Header,
    /// Keys in the snapshot.
    pub keys: u64,
    /// Bytes of the file.
    pub size: u64,
}

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The operating system could not read the snapshot.
    #[error("{file}: {source}")]
    Io {
        /// The name of the file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The bytes of the snapshot differ from the bytes that were written.
    #[error("{file}: {wrong}. {instead}")]
    Damaged {
        /// The name of the file.
        file: String,
        /// The place of the damage, and what was found.
        wrong: Wrong,
        /// The data that a start can use instead of this snapshot.
        instead: Instead,
    },
    /// The snapshot belongs to another log.
    #[error(
        "{file}: the snapshot belongs to the log {found:016x}, and this is the log {expected:016x}"
    )]
    Foreign {
        /// The name of the file.
        file: String,
        /// The number of the log here.
        expected: u64,
        /// The number of the log in the snapshot.
        found: u64,
    },
    /// The snapshot has more databases than there are.
    #[error("{file}: the snapshot has {found} databases, and the server has {expected} now")]
    Databases {
        /// The name of the file.
        file: String,
        /// How many there are.
        expected: u16,
        /// The number of databases with which the snapshot was made.
        found: u16,
    },
    /// The progress callback stopped the load.
    #[error("the progress callback stopped the reading of the snapshot")]
    Stopped,
}

/// The data that a start can use instead of a damaged snapshot. The choice is the operator's: a
/// file that is missing for a moment is no reason to drop its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// An older one, from which the log goes on.
    Older(String),
    /// The log, which still begins with the first change.
    Log,
    /// There is no substitute in this directory.
    Nothing,
}

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instead::Older(older) => write!(
                f,
                "The log still has every change since {older}: to start from that older snapshot, move the damaged file away"
            ),
            Instead::Log => f.write_str(
                "The log still begins with the first change of all: to start from the log alone, move the damaged file away",
            ),
            Instead::Nothing => f.write_str(
                "No file was changed; a copy that `tidewire log backup` made can be restored",
            ),
        }
    }
}

/// The positions of the snapshots in a directory, the newest first.
pub(crate) fn positions<D: Disk>(disk: &D) -> io::Result<Vec<u64>> {
    let names = disk.list()?;
    let mut positions: Vec<u64> = names.iter().filter_map(|name| position_of(name)).collect();
    positions.sort_unstable_by(|a, b| b.cmp(a));
    Ok(positions)
}

/// Whether there is any snapshot in a directory.
///
/// # Errors
/// The error of the operating system.
pub fn is_there<D: Disk>(disk: &D) -> io::Result<bool> {
    Ok(!positions(disk)?.is_empty())
}

/// Gives a snapshot back the name that an earlier start was about to give it anew.
fn put_back<D: Disk>(disk: &D) -> io::Result<()> {
    for moved in disk.list()? {
        if let Some(position) = position_of_moved(&moved) {
            disk.rename(&moved, &name(position))?;
        }
    }
    Ok(())
}

/// Reads the newest snapshot, if there is any, into a store that is empty. `range` is what the log has of the
/// store's stream, `progress` is told bytes read, and how many there are.
///
/// # Errors
/// See [`SnapshotError`]; the store is of no use then.
pub fn load<D: Disk>(
    disk: &D,
    log: u64,
    range: Range,
    store: &Store,
    now_ms: u64,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<Found>, SnapshotError> {
    let found = put_back(disk).and_then(|()| positions(disk));
    let all = found.map_err(|source| SnapshotError::Io {
        file: "listing the snapshots".into(),
        source,
    })?;
    let Some(&newest) = all.first() else {
        return Ok(None);
    };
    let file = name(newest);
    let instead = || match all.get(1) {
        // A log that ends before the snapshot does not hold everything that the snapshot was made
        // of.
        _ if range.next < newest => Instead::Nothing,
        Some(&older) if older >= range.first => Instead::Older(name(older)),
        _ if range.first == 0 => Instead::Log,
        _ => Instead::Nothing,
    };
    let failed = |failure| match failure {
        Failure::Io(source) => SnapshotError::Io {
            file: file.clone(),
            source,
        },
        Failure::Wrong(wrong) => SnapshotError::Damaged {
            file: file.clone(),
            wrong,
            instead: instead(),
        },
        Failure::Stopped => SnapshotError::Stopped,
    };
    let opened = disk.open(&file).map_err(|error| failed(error.into()))?;
    let mut reader = Reader::open(opened).map_err(failed)?;
    let header = reader.header;
    if header.log != log {
        return Err(SnapshotError::Foreign {
            file,
            expected: log,
            found: header.log,
        });
    }
    if header.databases > store.databases() {
        return Err(SnapshotError::Databases {
            file,
            expected: store.databases(),
            found: header.databases,
        });
    }
    if header.position != newest {
        let expected = format!("the position {newest}, as its name says");
        let wrong = Wrong::new(24, expected, header.position.to_string());
        return Err(failed(Failure::Wrong(wrong)));
    }
    let loading = Loading::new(store, now_ms);
    let totals = if reader.size > LARGE {
        in_parallel(&mut reader, &loading, progress)
    } else {
        in_order(&mut reader, &loading, progress)
    };
    let totals = totals.map_err(failed)?;
    let at_end = |what| Failure::Wrong(Wrong::new(reader.offset, "whole values", what));
    loading
        .finish()
        .map_err(|Malformed(what)| failed(at_end(what)))?;
    let keys = store.keys();
    if keys != totals.keys {
        let expected = format!("{} keys", totals.keys);
        let wrong = Wrong::new(reader.offset, expected, keys.to_string());
        return Err(failed(Failure::Wrong(wrong)));
    }
    Ok(Some(Found {
        header,
        keys,
        size: reader.size,
    }))
}

enum Failure {
    Io(io::Error),
    Wrong(Wrong),
    Stopped,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

impl From<Wrong> for Failure {
    fn from(wrong: Wrong) -> Failure {
        Failure::Wrong(wrong)
    }
}

/// A block of the snapshot: its position and its contents.
struct Block {
    head: BlockHead,
    offset: u64,
    payload: Vec<u8>,
}

impl Block {
    fn load(&self, loading: &Loading<'_>) -> Result<(), Failure> {
        self.head.check(&self.payload, self.offset)?;
        let malformed = |Malformed(what)| Wrong::new(self.offset, "items", what);
        Ok(loading.items(&self.payload).map_err(malformed)?)
    }
}

struct Reader<F> {
    file: F,
    header: Header,
    size: u64,
    offset: u64,
    next: u32,
    /// Bytes of items.
    bytes: u64,
}

impl<F: DiskFile> Reader<F> {
    fn open(file: F) -> Result<Reader<F>, Failure> {
        let size = file.len()?;
        let mut reader = Reader {
            file,
            header: Header {
                log: 0,
                position: 0,
                began_ms: 0,
                databases: 0,
            },
            size,
            offset: 0,
            next: 0,
            bytes: 0,
        };
        reader.header = Header::decode(&reader.exactly::<HEADER>()?)?;
        Ok(reader)
    }

    fn exactly<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<(), Failure> {
        if self.file.read_at(into, self.offset)? < into.len() {
            let expected = format!("{} bytes more", into.len());
            return Err(Wrong::new(self.offset, expected, "the end of the file").into());
        }
        self.offset += into.len() as u64;
        Ok(())
    }

    /// The next block, unchecked; the last one says how much there was.
    fn next(&mut self) -> Result<Result<Block, Totals>, Failure> {
        let offset = self.offset;
        let head = BlockHead::decode(&self.exactly::<BLOCK_HEAD>()?, offset)?;
        if head.number != self.next {
            let expected = format!("the block {}", self.next);
            return Err(Wrong::new(offset + 4, expected, head.number.to_string()).into());
        }
        self.next += 1;
        if head.size as u64 > self.size.saturating_sub(self.offset) {
            let expected = format!("{} bytes more", head.size);
            return Err(Wrong::new(self.offset, expected, "the end of the file").into());
        }
        let mut payload = vec![0; head.size];
        for piece in payload.chunks_mut(PIECE) {
            self.fill(piece)?;
        }
        if !head.is_end {
            self.bytes += head.size as u64;
            return Ok(Ok(Block {
                head,
                offset,
                payload,
            }));
        }
        head.check(&payload, offset)?;
        let totals = Totals::decode(&payload).filter(|totals| totals.bytes == self.bytes);
        let totals = totals
            .ok_or_else(|| Wrong::new(offset, "how much there is in all", "something else"))?;
        if self.offset != self.size {
            return Err(Wrong::new(self.offset, "the end of the file", "more").into());
        }
        Ok(Err(totals))
    }
}

fn in_order<F: DiskFile>(
    reader: &mut Reader<F>,
    loading: &Loading<'_>,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Totals, Failure> {
    loop {
        match reader.next()? {
            Ok(block) => block.load(loading)?,
            Err(totals) => return Ok(totals),
        }
        if progress(reader.offset, reader.size).is_break() {
            return Err(Failure::Stopped);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a start reads before there are loops, and blocks on the disk"
)]
fn in_parallel<F: DiskFile>(
    reader: &mut Reader<F>,
    loading: &Loading<'_>,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Totals, Failure> {
    let threads = thread::available_parallelism().map_or(1, |n| n.get().min(THREADS));
    let failure = Arc::new(Mutex::new(None));
    let put = |why| {
        let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(why);
    };
    let (blocks, taken) = sync_channel::<Block>(threads * AHEAD);
    let taken = Mutex::new(taken);
    let totals = thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(block) = next else {
                        return;
                    };
                    if let Err(why) = block.load(loading) {
                        put(why);
                    }
                }
            });
        }
        let all = loop {
            match reader.next() {
                Ok(Ok(block)) => {
                    let failed = failure
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .is_some();
                    // Threads that take blocks end when there are no more.
                    if failed || blocks.send(block).is_err() {
                        break None;
                    }
                }
                Ok(Err(totals)) => break Some(totals),
                Err(why) => {
                    put(why);
                    break None;
                }
            }
            if progress(reader.offset, reader.size).is_break() {
                put(Failure::Stopped);
                break None;
            }
        };
        drop(blocks);
        all
    });
    let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
    match (failure.take(), totals) {
        (Some(why), _) => Err(why),
        (None, Some(totals)) => Ok(totals),
        (None, None) => Err(Failure::Io(io::Error::other(
            "a thread that reads has ended",
        ))),
    }
}
