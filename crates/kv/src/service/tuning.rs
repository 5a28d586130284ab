//! Settings under Redis's names that change nothing here: they are checked, kept and told again, so that
//! programs that set them go on. The settings that have an effect are in `config.rs`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::values::{between, memory};

/// The values that a setting accepts.
enum Takes {
    Number(i64, i64),
    YesOrNo,
    Bytes,
}

/// A setting that is only kept.
pub(super) struct Tuning {
    pub(super) name: &'static str,
    usual: &'static str,
    takes: Takes,
}

const fn of(name: &'static str, usual: &'static str, takes: Takes) -> Tuning {
    Tuning { name, usual, takes }
}

const COUNT: Takes = Takes::Number(0, i64::MAX);

/// All settings without effect. The documentation lists them: keep it up to date.
const ALL: &[Tuning] = &[
    of("active-defrag-cycle-max", "25", Takes::Number(1, 99)),
    of("active-defrag-cycle-min", "1", Takes::Number(1, 99)),
    of("active-expire-effort", "1", Takes::Number(1, 10)),
    of("activedefrag", "no", Takes::YesOrNo),
    of("activerehashing", "yes", Takes::YesOrNo),
    of("dynamic-hz", "yes", Takes::YesOrNo),
    of("hz", "10", Takes::Number(1, 500)),
    of("lazyfree-lazy-eviction", "yes", Takes::YesOrNo),
    of("lazyfree-lazy-expire", "yes", Takes::YesOrNo),
    of("lazyfree-lazy-server-del", "yes", Takes::YesOrNo),
    of("lazyfree-lazy-user-del", "yes", Takes::YesOrNo),
    of("lazyfree-lazy-user-flush", "yes", Takes::YesOrNo),
    of("list-compress-depth", "0", COUNT),
    of("maxmemory-eviction-tenacity", "10", Takes::Number(0, 100)),
    of("stop-writes-on-bgsave-error", "yes", Takes::YesOrNo),
    of("stream-node-max-bytes", "4096", Takes::Bytes),
    of("stream-node-max-entries", "100", COUNT),
];

/// The setting of this name, in lower case.
pub(super) fn find(name: &str) -> Option<&'static Tuning> {
    ALL.iter().find(|t| t.name == name)
}

impl Tuning {
    /// The value in the form in which it is kept.
    ///
    /// # Errors
    /// Why the value is not accepted.
    pub(super) fn check(&self, value: &str) -> Result<String, String> {
        match self.takes {
            Takes::Number(least, most) => between(value, least, most).map(|n| n.to_string()),
            Takes::YesOrNo => {
                let lower = value.to_ascii_lowercase();
                let known = matches!(&*lower, "yes" | "no");
                known
                    .then_some(lower)
                    .ok_or_else(|| "argument must be 'yes' or 'no'".to_string())
            }
            Takes::Bytes => {
                let bytes = memory(value).ok_or("argument must be a memory value")?;
                Ok(bytes.to_string())
            }
        }
    }
}

/// The values that were set.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<BTreeMap<&'static str, String>>);

impl Kept {
    pub(super) fn set(&self, tuning: &'static Tuning, value: String) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(tuning.name, value);
    }

    /// All settings with their values.
    pub(super) fn all(&self) -> Vec<(&'static str, String)> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = |tuning: &Tuning| kept.get(tuning.name).map_or(tuning.usual, String::as_str);
        let all = ALL.iter();
        all.map(|tuning| (tuning.name, value(tuning).to_string()))
            .collect()
    }
}
