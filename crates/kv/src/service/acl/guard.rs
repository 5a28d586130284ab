//! The rights of a connection: brought up to date, checked before every command, and written to ACL
//! LOG.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewire::Cx;

use super::denied::Denied;
use super::log::{Reason, Where};
use super::rights::name_of_call;
use crate::commands::Error;
use crate::service::clients::Card;
use crate::service::conn::RespConn;
use crate::service::shared::Shared;
use crate::service::table::{Entry, table};

/// Where a command runs: on the loop of its connection, or, within a script, on the thread for scripts.
pub(crate) trait Place {
    fn shared(&self) -> &Shared;
    /// Milliseconds of the loops' clock.
    fn now_ms(&self) -> u64;
    /// The time of day, since the epoch.
    fn wall(&self) -> Duration;
}

impl Place for Cx<'_, RespConn> {
    fn shared(&self) -> &Shared {
        &self.local.shared
    }

    fn now_ms(&self) -> u64 {
        self.link.now().as_nanos() / 1_000_000
    }

    fn wall(&self) -> Duration {
        self.link.wall()
    }
}

impl RespConn {
    /// Whether the user of this connection may run a call; the error reply if not, which is logged.
    pub(crate) fn permit(
        &mut self,
        entry: &Entry,
        args: &[&[u8]],
        place: Where,
        here: &dyn Place,
    ) -> Result<(), Error> {
        self.session.heed(here.shared());
        if self.session.is_free() {
            return Ok(());
        }
        let denied = match self.session.rights().check(entry, args) {
            Ok(()) => return Ok(()),
            Err(denied) => denied,
        };
        Err(self.refuse(entry, args, denied, place, here))
    }

    /// The error reply to a call that is refused, which is logged.
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        entry: &Entry,
        args: &[&[u8]],
        denied: Denied<'_>,
        place: Where,
        here: &dyn Place,
    ) -> Error {
        let call = name_of_call(entry, args);
        let user = self.session.account().name.clone();
        if place != Where::Script {
            // As in Redis, a refused command counts as the client's last command.
            let id = u32::from(entry.id);
            self.card().command.store(id, Ordering::Relaxed);
        }
        let noted = match denied {
            Denied::Command => Some((Reason::Command, call.as_bytes())),
            Denied::Key(_, key) => Some((Reason::Key, key)),
            Denied::Channel(channel) => Some((Reason::Channel, channel)),
            Denied::Pattern(_) => None,
        };
        if let Some((reason, object)) = noted {
            let acl = &here.shared().acl;
            let client = line_of(self.card(), here.shared(), here.now_ms());
            let most = acl.log_max.load(std::sync::atomic::Ordering::Relaxed);
            let wall_ms = here.wall().as_millis() as u64;
            acl.log
                .add((reason, place), object, &user, client, wall_ms, most);
        }
        match place {
            Where::TopLevel | Where::Queued => denied.error("NOPERM", "", &user, &call),
            Where::Multi => {
                let why = match denied {
                    Denied::Command => "no permission to execute the command",
                    Denied::Key(..) | Denied::Pattern(_) => {
                        "no permission to touch the specified keys"
                    }
                    Denied::Channel(_) => {
                        "no permission to access one of the channels used as arguments to the command"
                    }
                };
                Error::text(format!(
                    "NOPERM ACLs rules changed between the moment the transaction was accumulated \
                     and the EXEC call. This command is no longer allowed for the following \
                     reason: {why}"
                ))
            }
            Where::Script => denied.error("ERR", "ACL failure in script: ", &user, &call),
        }
    }

    /// Whether this connection may go on listening to all that it has subscribed to.
    pub(crate) fn may_go_on_listening(&mut self, shared: &Shared) -> bool {
        self.session.heed(shared);
        if self.session.account().is_gone() {
            return false;
        }
        let rights = self.session.rights().clone();
        let listening = self.session.listening.as_deref();
        listening.is_none_or(|listening| rights.may_go_on(listening))
    }
}

/// The line of CLIENT LIST for a connection, with its names shortened.
pub(super) fn line_of(card: &Card, shared: &Shared, now_ms: u64) -> String {
    let command = card.command.load(std::sync::atomic::Ordering::Relaxed);
    let command = u16::try_from(command).map_or("NULL", |id| table().name(id));
    card.logged_line(&shared.local_addr(), now_ms, command)
}
