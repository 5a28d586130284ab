//! The connections of one service on one loop that hold output, so that the cost of releasing a
//! mark for all depends on the waiting connections only.

use crate::vocabulary::conn_id::ConnId;

/// The released marks of a loop's services, by their index.
#[derive(Default)]
pub(crate) struct Barriers(Vec<Barrier>);

#[derive(Default)]
struct Barrier {
    /// Marks up to this one are released for all.
    released: u64,
    /// Connections that held output when they were added.
    holding: Vec<ConnId>,
    /// How many of these have gone since.
    gone: usize,
}

impl Barriers {
    /// Up to which mark all connections of a service are released.
    pub(crate) fn released(&self, service: u16) -> u64 {
        let barrier = self.0.get(usize::from(service));
        barrier.map_or(0, |b| b.released)
    }

    /// Notes that this connection holds output.
    pub(crate) fn list(&mut self, service: u16, id: ConnId) {
        self.of(service).holding.push(id);
    }

    /// A connection that was listed has gone. `is_there` says of which that is not so.
    pub(crate) fn forget(&mut self, service: u16, is_there: impl Fn(ConnId) -> bool) {
        let barrier = self.of(service);
        barrier.gone += 1;
        // Now and then for all of them, so that no crowd pays for looking through the list.
        if barrier.gone * 2 > barrier.holding.len() {
            barrier.gone = 0;
            barrier.holding.retain(|id| is_there(*id));
            barrier.holding.shrink_to(64);
        }
    }

    /// Releases marks for all, including connections to come, unless they were released already.
    /// Returns the connections that held output; the ones that still do are to be
    /// [kept](Barriers::keep).
    pub(crate) fn release(&mut self, service: u16, upto: u64) -> Option<Vec<ConnId>> {
        let barrier = self.of(service);
        if upto <= barrier.released {
            return None;
        }
        barrier.released = upto;
        barrier.gone = 0;
        Some(std::mem::take(&mut barrier.holding))
    }

    /// Takes back the connections among them that still hold output.
    pub(crate) fn keep(&mut self, service: u16, holding: Vec<ConnId>) {
        self.of(service).holding = holding;
    }

    fn of(&mut self, service: u16) -> &mut Barrier {
        let at = usize::from(service);
        if self.0.len() <= at {
            self.0.resize_with(at + 1, Barrier::default);
        }
        &mut self.0[at]
    }
}
