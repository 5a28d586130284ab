//! The interface of a home: it takes transactions, and tells what it holds.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The home to which records are carried.
///
/// No call blocks: a request is answered later, at most once, perhaps never. Answers may come in any order, even after
/// the asker has given up.
pub trait Home: Send {
    /// Sends a request, under a number that was not used before.
    fn ask(&mut self, number: u64, ask: Ask);

    /// The next answer of the home, with the number of its request.
    fn answer(&mut self) -> Option<(u64, Answer)>;
}

/// A request to a home.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Asks for the contents of the home, without disturbing its owner. Answered by
    /// [`Answer::Held`].
    Look,
    /// Opens the home for the asker: a former owner cannot commit anything any more, and an open
    /// transaction is either committed or never will be. Then asks for the contents. Answered by
    /// [`Answer::Held`].
    Open,
    /// Commit the whole transaction or nothing of it. Answered by [`Answer::Committed`].
    Carry(Transaction),
}

/// An answer of a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The contents of the home.
    Held(Held),
    /// The transaction is there, and stays.
    Committed,
    /// The request was not done, or its outcome is unknown.
    Failed(Arc<str>),
    /// Another process has opened the home since.
    Fenced(Arc<str>),
}

/// The process that opened a home last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The random number of the owner's log.
    pub log: u64,
    /// A random number that the owner's process drew when it started.
    pub session: u64,
}

/// How far a stream is at home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The position after the last record there, in the owner's log.
    pub next: u64,
    /// A hash of that record, by which a log can be told from its copy that has gone another way.
    pub print: u64,
}

/// The committed marks of a home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The owner; `None`: no record was ever carried to the home.
    pub owner: Option<Owner>,
    /// The places of streams, by name. Empty for a partition of a fleet, which has `places`.
    pub streams: BTreeMap<Arc<str>, Place>,
    /// Claim of a partition of a fleet, with its owner.
    pub claim: Option<Claim>,
    /// The last ids of the home's producers: of a partition of a fleet.
    pub producers: Marks,
    /// Notes that owners have left beside the records, by name.
    pub notes: Words,
    /// Where readers are, in streams of one server's log.
    pub cursors: Cursors,
    /// How far each log has come in each tenure of a partition of a fleet.
    pub places: BTreeMap<(u64, u64), BTreeMap<Arc<str>, Place>>,
    /// Whether the home ever had a record, by what it has rather than by its marks.
    pub has_records: bool,
    /// The number of each owner's last transaction that is known there, by which a [`Witness`](crate::Witness) knows it again.
    /// Of owners that left long ago there is none, and there is none where the home does not number transactions.
    pub proofs: BTreeMap<Owner, u64>,
    /// Why readers do not see all that is committed, if so: nothing may be promised then.
    pub hidden: Option<Arc<str>>,
}

/// Notes that are left in the home, by their names.
pub type Words = BTreeMap<Arc<str>, Arc<[u8]>>;

/// Last ids, by stream and producer.
pub type Marks = BTreeMap<(Arc<str>, Arc<str>), u64>;

/// Positions of named cursors, by stream and name.
pub type Cursors = BTreeMap<(Arc<str>, Arc<str>), u64>;

/// Positions of named cursors, by stream and name; `None` for removed cursors.
pub type Moves = BTreeMap<(Arc<str>, Arc<str>), Option<u64>>;

/// Since when a partition of a fleet has its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// See [`Tenure::number`](tidewire_log::Tenure::number).
    pub tenure: u64,
    /// How many partitions there are. With another number producers would belong elsewhere.
    pub partitions: u32,
}

/// Consecutive messages of one producer in one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The stream.
    pub stream: Arc<str>,
    /// Producer of the messages; empty for anonymous messages.
    pub producer: Arc<str>,
    /// The position of the first one in the owner's log.
    pub first: u64,
    /// How many there are.
    pub count: u32,
    /// The time at which the records were received: microseconds since the Unix epoch.
    pub timestamp_us: u64,
    /// The messages, framed as in [`tidewire_log::Run::frames`].
    pub frames: Vec<u8>,
}

/// Records, and the marks that say how far they go: what must never disagree.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The owner that sends the transaction.
    pub owner: Owner,
    /// The records, in the order of each stream.
    pub records: Vec<Record>,
    /// Up to which place each stream is in the home after the transaction.
    pub streams: BTreeMap<Arc<str>, Place>,
    /// The last ids of the producers, by stream and name.
    pub producers: Marks,
    /// Claim of a partition of a fleet: its streams are the streams of this tenure.
    pub claim: Option<Claim>,
    /// The notes of the transaction.
    pub notes: Words,
    /// Positions of readers: never behind the end of the records that are in the home with this
    /// transaction.
    pub cursors: Moves,
}

impl Transaction {
    /// A transaction without records, by which an owner leaves its name.
    pub fn new(owner: Owner) -> Transaction {
        Transaction {
            owner,
            records: Vec::new(),
            streams: BTreeMap::new(),
            producers: BTreeMap::new(),
            claim: None,
            notes: Words::new(),
            cursors: Moves::new(),
        }
    }
}
