//! Memory of the server beside keys and values, for INFO, MEMORY and the metrics.

use super::shared::Shared;

/// Bytes of memory, by their use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// All clients together, see [`Card::memory`](super::clients::Card::memory).
    pub(super) clients: u64,
    /// Notes for CLIENT TRACKING of clients that have gone.
    pub(super) tracking: u64,
    /// SLOWLOG and ACL LOG.
    pub(super) logs: u64,
    /// Scripts and their interpreters.
    pub(super) scripts: u64,
    /// Libraries of functions.
    pub(super) functions: u64,
    /// Users, with their rules and passwords.
    pub(super) users: u64,
    /// Published messages on their way to subscribers.
    pub(super) messages: u64,
}

impl Held {
    /// Goes through all clients and logs.
    pub(super) fn of(shared: &Shared) -> Held {
        let (clients, tracked) = shared.clients.memory();
        let noted = shared.store.tracking().bytes() as u64;
        Held {
            clients,
            tracking: noted.saturating_sub(tracked),
            logs: (shared.slowlog.bytes() + shared.acl.log.bytes()) as u64,
            scripts: super::script::memory(shared),
            functions: shared.store.library_bytes() as u64,
            users: shared.acl.bytes() as u64,
            messages: shared.hub.queued_bytes() as u64,
        }
    }

    /// The sum of all parts.
    pub(super) fn sum(&self) -> u64 {
        let told = self.clients + self.tracking + self.logs + self.messages;
        told + self.scripts + self.functions + self.users
    }
}
