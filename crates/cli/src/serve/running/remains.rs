//! What is left of servers of this process that made way for a successor which has not come to serve: loops that accept
//! nothing, and finish what they had begun.

use tidewire::{Drain, Phase};

/// The stops of these servers, in the order in which they made way. Each has the deadline of its own stop, so none outlasts a later one.
#[derive(Default)]
pub(crate) struct Remains(Vec<Drain>);

impl Remains {
    /// Loops that are ending.
    pub(crate) fn add(&mut self, drain: Drain) {
        self.0.push(drain);
    }

    /// Whether all have ended.
    pub(crate) fn are_over(&mut self) -> bool {
        let (over, left) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|drain| drain.progress().phase == Phase::Over);
        self.0 = left;
        let over: Vec<Drain> = over;
        for drain in over {
            let counters = drain.wait();
            tracing::info!(%counters, "connections from before a takeover that failed have ended");
        }
        self.0.is_empty()
    }

    /// Whether some are past their deadline.
    pub(crate) fn are_cut(&self) -> bool {
        let is_cut = |drain: &Drain| drain.progress().phase == Phase::Cutting;
        self.0.iter().any(is_cut)
    }

    /// Cuts their connections.
    pub(crate) fn stop_now(&self) {
        for drain in &self.0 {
            drain.stopper().stop_now();
        }
    }
}
