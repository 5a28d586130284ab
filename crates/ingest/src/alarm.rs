//! The alarm that a log rings.

use std::sync::Arc;

use tidewire::Alarm;
use tidewire_log::{Log, Wake, Watch};

/// An alarm that `log` rings for as long as the watch is kept.
pub(crate) fn of<M: Send + 'static>(log: &dyn Log) -> (Arc<Alarm<M>>, Watch) {
    let alarm = Arc::new(Alarm::default());
    let rung = alarm.clone();
    let wake: Wake = Arc::new(move || rung.ring());
    (alarm, log.watch(wake))
}
