//! The checkpoint: which file is which producer, and how far each is in the servers' hands.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::file_system::FileId;
use crate::fingerprint::Fingerprint;

/// The version of the format.
const VERSION: u32 = 1;

/// Everything that is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The version of the format: 1.
    pub version: u32,
    /// The server in use.
    pub server: Option<String>,
    /// The stream; none in a checkpoint of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Files, the older ones of each path first.
    pub files: Vec<Entry>,
    /// For each server, the producers whose messages it acknowledged last. A server that was restored from an older backup has less
    /// of one of them at least.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub last: BTreeMap<String, Vec<String>>,
    /// The directories in which files are followed: what was there when it was looked for files last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub directories: BTreeMap<PathBuf, Surveyed>,
}

impl Default for Checkpoint {
    fn default() -> Checkpoint {
        Checkpoint {
            version: VERSION,
            server: None,
            stream: None,
            files: Vec::new(),
            last: BTreeMap::new(),
            directories: BTreeMap::new(),
        }
    }
}

/// Up to what a directory is known: files that are newer have come since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surveyed {
    /// When the one that was written last was written, in nanoseconds since the Unix epoch.
    pub modified: i128,
    /// When the one that was made last was made, where the file system knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<i128>,
    /// Files that were made then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub newest: Vec<FileId>,
}

/// The remembered facts about a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name under which servers know it. No other file ever has it.
    pub producer: String,
    /// The path that was followed to it.
    pub followed: PathBuf,
    /// The path under which it was seen last.
    pub path: PathBuf,
    /// Which file it is.
    pub id: FileId,
    /// Everything before this offset is dealt with: acknowledged, or left out.
    pub acked: u64,
    /// The highest id that each server has acknowledged.
    #[serde(default)]
    pub servers: BTreeMap<String, u64>,
    /// How it begins.
    pub head: Fingerprint,
    /// What stands right before the offset that was dealt with when this was written.
    pub tail: Fingerprint,
    /// When it was last written, in nanoseconds since the Unix epoch.
    pub modified: i128,
    /// The file has been rotated away and was shipped whole.
    #[serde(default)]
    pub done: bool,
    /// The file was nowhere to be found at the last look.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// A server was set back, and has not said since how far it has this file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsure: bool,
}

impl Checkpoint {
    /// As it is written.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("it can be told in JSON")
    }

    /// Reads a checkpoint from its bytes.
    ///
    /// # Errors
    /// Why it is no checkpoint.
    pub fn decode(bytes: &[u8]) -> Result<Checkpoint, String> {
        let checkpoint: Checkpoint = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        match checkpoint.version {
            VERSION => Ok(checkpoint),
            other => Err(format!(
                "it is of version {other}; this is version {VERSION}"
            )),
        }
    }
}
