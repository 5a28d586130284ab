//! Servers that failed under a workload. Such a server is left out of that workload only.

use tidewire_command::exit::{Failure, WRONG};

use super::record::Place;

/// What went wrong, by workload and server.
#[derive(Default)]
pub(super) struct Faults(Vec<(String, String, Failure)>);

impl Faults {
    /// The server of this place has failed under its workload.
    pub(super) fn add(&mut self, place: &Place, failure: Failure) {
        show_line!("fault: {}", failure.message);
        let (workload, server) = (place.workload.clone(), place.server.clone());
        self.0.push((workload, server, failure));
    }

    /// What went wrong with the server of this place.
    pub(super) fn of(&self, place: &Place) -> Option<&str> {
        self.at(&place.workload, &place.server)
    }

    /// What went wrong with this server under this workload.
    pub(super) fn at(&self, workload: &str, server: &str) -> Option<&str> {
        let mut all = self.0.iter();
        let found = all.find(|(of, by, _)| of == workload && by == server);
        found.map(|(.., failure)| &*failure.message)
    }

    /// What the whole matrix ends with: wrong answers before what could not be done.
    pub(super) fn failure(&self) -> Option<Failure> {
        let statuses = self.0.iter().map(|(.., failure)| failure.status);
        let worst = statuses.max_by_key(|status| (*status == WRONG, *status))?;
        let messages: Vec<&str> = self
            .0
            .iter()
            .map(|(.., failure)| &*failure.message)
            .collect();
        Some(Failure {
            status: worst,
            message: messages.join("\n"),
        })
    }
}
