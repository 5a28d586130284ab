//! What is asked of the network: sessions of producers, one for each file being shipped.

/// Opens lanes.
pub trait Network {
    /// A session of a producer with a server.
    type Lane: Lane;

    /// Begins a session of `producer` with `server`; that it cannot be had shows later.
    ///
    /// # Errors
    /// The producer can never be opened there.
    fn open(&mut self, server: &str, producer: &str) -> Result<Self::Lane, Ended>;
}

/// A session of a producer with a server. Ids rise, with gaps.
pub trait Lane {
    /// How it stands now.
    fn stand(&self) -> Stand;

    /// Hands over messages, ids first, and keeps them until they are acknowledged; how many there was
    /// room for.
    fn offer(&mut self, messages: &mut dyn Iterator<Item = (u64, &[u8])>) -> usize;
}

/// How a lane stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// The server has not been heard; why, if something is in the way.
    Connecting(Option<String>),
    /// Messages may be offered.
    Open {
        /// All messages up to this id are in the server's log. Before any message was offered, the
        /// id is the producer's mark.
        settled: Option<u64>,
        /// The server knew this producer, which was away for too long, and does not know any more what it has of it.
        forgotten: bool,
        /// Most bytes of one message.
        payload_max: u32,
        /// Why the server takes nothing at present, or why it cannot be reached.
        trouble: Option<String>,
    },
    /// No more events of the lane come.
    Ended(Ended),
}

/// Why a lane ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Said to the user.
    pub why: String,
    /// Whether it concerns the server or one producer.
    pub matter: Matter,
}

/// The reaction to the end of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matter {
    /// Trying again may help.
    Passing,
    /// This producer, and so its file, cannot go on; other producers can.
    Producer,
    /// The server takes no more producers at present. Producers that it knows go on, and this one
    /// may later.
    Crowded,
    /// The server has less than it had acknowledged; the next lane's welcome says how much.
    SetBack,
    /// No producer can go on with this server.
    Server,
}
