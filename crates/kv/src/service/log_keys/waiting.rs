//! Which connections wait for which streams, so that a commit to one stream does not wake
//! connections that wait for others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tidewire::ConnId;

/// The connections that wait, by their streams.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_stream: HashMap<Arc<str>, Followed>,
    conns: BTreeMap<ConnId, Box<[Arc<str>]>>,
}

/// The end of a stream at the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// The stream was not looked at since the first waiter came.
    Never,
    At(Option<u64>),
}

/// A stream that a connection waits for.
#[derive(Debug)]
struct Followed {
    /// The stream's next position when it was last looked at, if there was one.
    next: Seen,
    conns: BTreeSet<ConnId>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// A connection waits for these streams.
    pub(super) fn add(&mut self, conn: ConnId, streams: impl Iterator<Item = Arc<str>>) {
        self.remove(conn);
        let mut names = Vec::new();
        for stream in streams {
            names.push(stream.clone());
            let new = || Followed {
                next: Seen::Never,
                conns: BTreeSet::new(),
            };
            let followed = self.by_stream.entry(stream).or_insert_with(new);
            followed.conns.insert(conn);
        }
        self.conns.insert(conn, names.into());
    }

    pub(super) fn remove(&mut self, conn: ConnId) {
        for stream in self.conns.remove(&conn).into_iter().flatten() {
            if let Some(followed) = self.by_stream.get_mut(&stream) {
                followed.conns.remove(&conn);
                if followed.conns.is_empty() {
                    self.by_stream.remove(&stream);
                }
            }
        }
    }

    /// All waiting connections.
    pub(super) fn all(&self) -> Vec<ConnId> {
        self.conns.keys().copied().collect()
    }

    /// Connections that wait for a stream that has grown since the last call; `next` returns the
    /// next position of a stream.
    pub(super) fn moved(&mut self, next: impl Fn(&str) -> Option<u64>) -> Vec<ConnId> {
        let mut moved = BTreeSet::new();
        #[expect(clippy::iter_over_hash_type, reason = "what moved is put in order")]
        for (stream, followed) in &mut self.by_stream {
            let now = Seen::At(next(stream));
            if followed.next != now {
                followed.next = now;
                moved.extend(&followed.conns);
            }
        }
        moved.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_woken_whose_stream_has_moved() {
        let mut waiting = Waiting::default();
        let conn = ConnId::from_bits;
        let on = |streams: &[&str]| -> std::vec::IntoIter<Arc<str>> {
            let streams: Vec<_> = streams.iter().map(|&stream| stream.into()).collect();
            streams.into_iter()
        };
        waiting.add(conn(1), on(&["a"]));
        waiting.add(conn(2), on(&["a", "b"]));
        waiting.add(conn(3), on(&["b", "b"]));
        let moved = |waiting: &mut Waiting, a: Option<u64>, b: Option<u64>| -> Vec<u64> {
            let moved = waiting.moved(|stream| if stream == "a" { a } else { b });
            moved.into_iter().map(ConnId::to_bits).collect()
        };
        assert_eq!(moved(&mut waiting, Some(5), None), [1, 2, 3]);
        assert_eq!(moved(&mut waiting, Some(5), None), []);
        assert_eq!(moved(&mut waiting, Some(6), None), [1, 2]);
        assert_eq!(moved(&mut waiting, Some(6), Some(0)), [2, 3]);
        // A client that begins to wait before the others have looked must not hide news from the
        // others.
        waiting.add(conn(4), on(&["a"]));
        assert_eq!(moved(&mut waiting, Some(7), Some(0)), [1, 2, 4]);
        assert_eq!(waiting.all(), [1, 2, 3, 4].map(conn));
        for id in [1, 2, 3, 4, 4] {
            waiting.remove(conn(id));
        }
        assert!(waiting.is_empty() && waiting.by_stream.is_empty());
    }
}
