//! The settings of shipping.

use std::time::Duration;

use regex::bytes::Regex;

use crate::file_system::FileId;

/// What becomes of a line that is longer than the server takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oversized {
    /// The line becomes several messages.
    #[default]
    Split,
    /// The line is left out, counted and reported.
    Skip,
    /// The line's file is not shipped any further.
    Fail,
}

/// Where files begin that are there when their directory is looked through for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum From {
    /// At their start.
    #[default]
    Start,
    /// Behind their last whole line. Files that come later begin at their start.
    End,
    /// This file begins at an offset, because a server has what is before it already; all others at their start.
    Behind {
        /// Which file.
        file: FileId,
        /// Where it begins.
        offset: u64,
    },
}

/// The settings of a [`Shipper`](crate::Shipper).
#[derive(Clone, Debug)]
pub struct Settings {
    /// The prefix of the names of producers; at most 100 bytes.
    pub producer: String,
    /// Servers, the one to begin with first; at least one. The first of the state's own choice is
    /// taken instead if it is one of these.
    pub servers: Vec<String>,
    /// The stream, of which the state says for which one it is; empty for one that is not named.
    pub stream: String,
    /// How often files are looked at, and names once in four times. Default 250 ms.
    pub poll: Duration,
    /// Ends when everything there is was shipped.
    pub once: bool,
    /// Where files begin that are there at first. Default: at their start.
    pub from: From,
    /// Files that were last written longer ago than this when they are met are not followed before they are written again. Default: all
    /// are followed.
    pub ignore_older: Option<Duration>,
    /// How long a file that was rotated away must be quiet before what follows it is begun, and
    /// before a line without an end is taken for whole. Default 2 s.
    pub rotate_wait: Duration,
    /// How long a file that was rotated away is still looked at after that. Default 10 min.
    pub linger: Duration,
    /// After how long without anything new a line that has no end is shipped. Default: never, as long
    /// as its file has its name.
    pub partial_after: Option<Duration>,
    /// Messages begin at lines that match. Default: every line is one.
    pub multiline_start: Option<Regex>,
    /// After how long without anything new a message of several lines counts as whole. Default 5 s.
    pub multiline_after: Duration,
    /// What becomes of lines that are too long.
    pub oversized: Oversized,
    /// Most lanes at once; further files wait for their turn. Default 16.
    pub lanes: usize,
    /// Most files that are followed; of what is more there is a warning. Default 10,000.
    pub files: usize,
    /// Most files that are held open at once, which takes a descriptor each; of what is more there is a warning, and it waits until one is
    /// closed. What else needs descriptors (lanes, directories that are listed, the checkpoint) is not counted. Default: no limit.
    pub open: usize,
    /// Most bytes of removed files that are held open because they are not shipped yet; of what is more, the file that was removed
    /// first is given up. Default 4 GiB.
    pub held: u64,
    /// How often positions are written down. Default 1 s.
    pub save_every: Duration,
    /// Gives up when no server could be reached for so long; zero when each was tried once. Default: never.
    pub give_up: Option<Duration>,
    /// Goes on where a server has lost what it had acknowledged, or has forgotten a producer.
    pub accept_loss: bool,
    /// Bytes read at once from a file. Default 256 KiB; at least 1 KiB.
    pub chunk: usize,
    /// The seed of the random parts of producers' names: no two shippers may have the same one. Default: a random one.
    pub seed: u64,
}

#[allow(clippy::disallowed_methods, reason = "where chance is given from")]
impl Default for Settings {
    fn default() -> Settings {
        Settings {
            producer: "ship".into(),
            servers: Vec::new(),
            stream: String::new(),
            poll: Duration::from_millis(250),
            once: false,
            from: From::default(),
            ignore_older: None,
            rotate_wait: Duration::from_secs(2),
            linger: Duration::from_secs(600),
            partial_after: None,
            multiline_start: None,
            multiline_after: Duration::from_secs(5),
            oversized: Oversized::default(),
            lanes: 16,
            files: 10_000,
            open: usize::MAX,
            held: 4 << 30,
            save_every: Duration::from_secs(1),
            give_up: None,
            accept_loss: false,
            chunk: 256 << 10,
            seed: fastrand::u64(..),
        }
    }
}
