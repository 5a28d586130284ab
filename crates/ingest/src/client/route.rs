//! The server to which a producer connects: the configured server, or another one that this server
//! names.

use super::connect::Server;

/// The choice of the next server, described in the module. The choice alternates, and pauses in between: after a failed
/// connection to the named server the producer tries the first server, which may name another; and the other way round.
#[derive(Debug)]
pub(super) struct Route {
    first: Server,
    /// The server that was named last.
    named: Option<Server>,
    at_named: bool,
    /// Followed since the last welcome or pause.
    moves: u32,
    moves_max: u32,
}

impl Route {
    pub(super) fn new(first: Server, moves_max: u32) -> Route {
        Route {
            first,
            named: None,
            at_named: false,
            moves: 0,
            moves_max,
        }
    }

    /// The server to connect to.
    pub(super) fn server(&self) -> &Server {
        let named = self.named.as_ref().filter(|_| self.at_named);
        named.unwrap_or(&self.first)
    }

    /// The server has named another one; whether to connect there at once.
    pub(super) fn moved(&mut self, place: &str) -> bool {
        if self.moves >= self.moves_max {
            return false;
        }
        // The first server's settings say how the named one is reached, whichever server named it.
        let Some(named) = self.first.named_by(place) else {
            return false;
        };
        self.moves += 1;
        self.named = Some(named);
        self.at_named = true;
        true
    }

    /// Notes a welcome.
    pub(super) fn welcomed(&mut self) {
        self.moves = 0;
    }

    /// The connection ended, or was not to be had; there is a pause now.
    pub(super) fn failed(&mut self) {
        self.moves = 0;
        self.at_named = !self.at_named && self.named.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::To;

    fn route(moves: u32) -> Route {
        Route::new(Server::named(To::from("a:1")).unwrap(), moves)
    }

    #[test]
    fn a_named_server_is_followed_so_often_and_then_asked_in_turn_with_the_first() {
        let mut route = route(2);
        route.failed();
        assert_eq!(route.server().name, "a:1");
        assert!(route.moved("b:1") && route.moved("c:1"));
        assert_eq!(route.server().name, "c:1");
        assert!(!route.moved("d:1"));
        route.failed();
        assert_eq!(route.server().name, "a:1");
        route.failed();
        assert_eq!(route.server().name, "c:1");
        route.welcomed();
        assert!(route.moved("d:1"));
        assert_eq!(route.server().name, "d:1");
    }

    #[test]
    fn what_is_no_place_elsewhere_is_not_followed() {
        let mut route = route(2);
        for place in ["", "b", "b:x", "unix:/tmp/socket", "unix:@name:1"] {
            assert!(!route.moved(place), "{place}");
        }
        assert_eq!(route.server().name, "a:1");
    }
}
