//! One page for all requests of one turn of the loop.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tidewire::Instant;

/// The last page that was made, and its turn. Making a page costs far more than sending it, and a
/// client that sends a hundred requests at once must not delay others by a hundred pages. Within a
/// turn, no client gets an older page than if its request had come first.
#[derive(Default)]
pub(crate) struct PageOfTurn(Mutex<Option<(Instant, Bytes)>>);

impl PageOfTurn {
    /// The page of the turn that began at `now`.
    pub(crate) fn get(&self, now: Instant, make: impl FnOnce() -> String) -> Bytes {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((made, page)) if *made == now => page.clone(),
            _ => {
                // The old page is dropped while the new one is made: two are never needed.
                *last = None;
                let page = Bytes::from(make());
                last.insert((now, page)).1.clone()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_made_once_a_turn() {
        let pages = PageOfTurn::default();
        let (first, second) = (Instant::from_nanos(5), Instant::from_nanos(6));
        assert_eq!(pages.get(first, || "one".into()), "one");
        assert_eq!(pages.get(first, || unreachable!("it is there")), "one");
        assert_eq!(pages.get(second, || "two".into()), "two");
        // A page of an earlier turn is not kept.
        assert_eq!(pages.get(first, || "three".into()), "three");
    }
}
