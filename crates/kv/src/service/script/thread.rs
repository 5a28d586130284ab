//! The way to the thread for scripts, whatever it is given to do.

use std::any::Any;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

/// The way to the thread, which is started with the first script for it. What goes there knows what all loops share, which
/// has this: so the way does not know what that is.
#[derive(Debug, Default)]
pub(super) struct Thread(Mutex<Option<Box<dyn Any + Send>>>);

impl Thread {
    /// Whether there is a thread, or one can be had.
    pub(super) fn is_there<J: Send + 'static>(
        &self,
        start: impl FnOnce() -> Option<Sender<J>>,
    ) -> bool {
        self.with(start, |_| ()).is_some()
    }

    /// False if there is no thread to be had.
    pub(super) fn give<J: Send + 'static>(
        &self,
        job: J,
        start: impl FnOnce() -> Option<Sender<J>>,
    ) -> bool {
        self.with(start, |to| to.send(job).is_ok()).unwrap_or(false)
    }

    fn with<J: Send + 'static, R>(
        &self,
        start: impl FnOnce() -> Option<Sender<J>>,
        act: impl FnOnce(&Sender<J>) -> R,
    ) -> Option<R> {
        let mut way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if way.is_none() {
            *way = start().map(|to| Box::new(to) as Box<dyn Any + Send>);
        }
        way.as_ref()?.downcast_ref().map(act)
    }
}
