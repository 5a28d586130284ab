//! The owner of a record, where several logs share producers: a word behind the name of its
//! producer.

/// The time for which the producers of one partition of a fleet belong to one log.
///
/// A log that is a member of a fleet stores a producer under its name followed by a zero byte, the
/// partition, a dot and the tenure's number. So each tenure has producers of its own. Code that
/// shows records removes this suffix.
///
/// ```
/// use tidewire_log::Tenure;
///
/// let tenure = Tenure { partition: 3, number: 12 };
/// assert_eq!(tenure.name("web-7"), "web-7\u{0}3.12");
/// assert_eq!(Tenure::split("web-7\u{0}3.12"), ("web-7", Some(tenure)));
/// assert_eq!(Tenure::split("web-7"), ("web-7", None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure {
    /// The partition, from 0 on.
    pub partition: u32,
    /// Increases by one with each log that takes over the partition; the first is 1.
    pub number: u64,
}

impl Tenure {
    /// Bytes that a tenure takes of a name, at most.
    pub const BYTES_MAX: usize = 1 + 10 + 1 + 20;

    /// The name of a producer in the log.
    #[must_use]
    pub fn name(self, producer: &str) -> String {
        format!("{producer}\0{}.{}", self.partition, self.number)
    }

    /// The name that the producer gave, and the tenure in which it is stored; `None` if there is no fleet.
    #[must_use]
    pub fn split(name: &str) -> (&str, Option<Tenure>) {
        match name.rsplit_once('\0') {
            Some((producer, word)) => match read(word) {
                Some(tenure) => (producer, Some(tenure)),
                None => (name, None),
            },
            None => (name, None),
        }
    }
}

fn read(word: &str) -> Option<Tenure> {
    let (partition, number) = word.split_once('.')?;
    let tenure = Tenure {
        partition: partition.parse().ok()?,
        number: number.parse().ok()?,
    };
    // Nothing but what `name` writes: no signs, no zeros in front.
    (format!("{}.{}", tenure.partition, tenure.number) == word).then_some(tenure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_and_others_are_left_alone() {
        let tenure = Tenure {
            partition: u32::MAX,
            number: u64::MAX,
        };
        for producer in ["p", "", "p\x001.2", "\0", "\u{fc}"] {
            let name = tenure.name(producer);
            assert_eq!(Tenure::split(&name), (producer, Some(tenure)));
            assert_eq!(name.len(), producer.len() + Tenure::BYTES_MAX);
        }
        for name in [
            "",
            "p",
            "p\0",
            "p\x001",
            "p\x001.",
            "p\x00+1.2",
            "p\x0001.2",
            "p\x001.2.3",
            "p\x001.2 ",
        ] {
            assert_eq!(Tenure::split(name), (name, None));
        }
    }
}
