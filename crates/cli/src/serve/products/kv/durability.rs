//! The durability of keys: when changes are durable.

use std::fmt;
use std::str::FromStr;

use tidewire_log::Policy as Commits;

use crate::serve::logs::options::PolicyName;

/// The durability of keys: when changes are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Changes are never durable.
    None,
    /// Changes are durable as the local log promises.
    Here(Commits),
    /// A change is answered when it is in the home.
    Replicated,
}

impl Durability {
    /// When the log here commits, if there is one.
    pub(crate) fn policy(self) -> Option<Commits> {
        match self {
            Durability::None => None,
            Durability::Here(policy) => Some(policy),
            // Changes at home are to be here, too.
            Durability::Replicated => Some(Commits::Sync),
        }
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Durability, String> {
        match text {
            "none" => Ok(Durability::None),
            "replicated" => Ok(Durability::Replicated),
            _ => {
                let policy = text.parse::<PolicyName>();
                let policy = policy.map_err(|_| {
                    format!("{text:?} is no durability: give sync, replicated, interval:TIME, os or none")
                })?;
                Ok(Durability::Here(policy.0))
            }
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::None => f.write_str("none"),
            Durability::Replicated => f.write_str("replicated"),
            Durability::Here(policy) => PolicyName(*policy).fmt(f),
        }
    }
}
