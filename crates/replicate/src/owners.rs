//! Which member owns a partition, for the code that says welcome.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewire_log::Wake;

use crate::hold::Hold;

/// The owner of a partition's producers.
#[derive(Clone, Debug)]
pub enum Whose {
    /// A partition that this node owns.
    Held(Arc<Hold>),
    /// The partition belongs to the node there.
    At(Arc<str>),
    /// The partition has no owner now, as far as is known.
    Nobody,
}

/// The table of all partitions. Clones share one table.
#[derive(Clone, Default)]
pub struct Owners(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    held: BTreeMap<u32, Arc<Hold>>,
    places: BTreeMap<u32, Arc<str>>,
    /// Called after changes.
    wakes: Vec<Wake>,
}

impl std::fmt::Debug for Owners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Owners({:?})", self.table().held)
    }
}

/// Whether both share one table.
impl PartialEq for Owners {
    fn eq(&self, other: &Owners) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Owners {}

impl Owners {
    /// The owner of a partition.
    #[must_use]
    pub fn of(&self, partition: u32) -> Whose {
        let table = self.table();
        match (table.held.get(&partition), table.places.get(&partition)) {
            (Some(hold), _) => Whose::Held(hold.clone()),
            (None, Some(place)) => Whose::At(place.clone()),
            (None, None) => Whose::Nobody,
        }
    }

    /// From now on `wake` is called after every change, of the table or of [how it is](Hold::ending) with a hold; it
    /// must be quick.
    pub fn watch(&self, wake: Wake) {
        self.table().wakes.push(wake);
    }

    /// Sets the owners; returns whether they have changed. For a node, and for tests of its
    /// callers.
    #[doc(hidden)]
    pub fn change(&self, held: BTreeMap<u32, Arc<Hold>>, places: BTreeMap<u32, Arc<str>>) -> bool {
        let mut table = self.table();
        let is_same = held.len() == table.held.len()
            && (held.iter().zip(&table.held)).all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(a.1, b.1));
        if is_same && places == table.places {
            return false;
        }
        (table.held, table.places) = (held, places);
        true
    }

    /// Wakes the watchers; see [`Owners::change`].
    #[doc(hidden)]
    pub fn wake(&self) {
        let wakes = self.table().wakes.clone();
        wakes.iter().for_each(|wake| wake());
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
