//! What callbacks and reports of a driver leave to be done by their loop, which has the driver at hand.

use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::dial::Dial;

/// Something that concerns others than the connection that is called.
pub(crate) enum Errand {
    /// An outgoing connection, for which service, and which connection has asked for it.
    Dial {
        service: u16,
        dial: Dial,
        by: Option<ConnId>,
    },
    /// An attempt of this dial to a host has ended.
    GoOn(ConnId),
    /// This dial to a host has become a connection.
    Won(ConnId),
    /// This connection has ended, and had dials under way that are tied to it.
    Orphaned(ConnId),
    /// This connection gives up its tied dials that have this token.
    Cancel { by: ConnId, token: u64 },
}
