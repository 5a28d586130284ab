//! What the main thread of a server does while the loops serve.

use rustix::process::{Resource, Rlimit, Signal, prlimit};

use crate::common::durable::assert_code;
use crate::common::{Running, stderr};

/// `poll` fails for ever where a process may have fewer descriptors than are waited for.
#[test]
fn a_server_that_cannot_wait_says_so_once_and_still_hears_signals() {
    let mut server = Running::start(&["serve", "echo", "--listen", "echo=0", "--engine", "epoll"]);
    assert!(server.line().starts_with("listening "));
    let limit = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    prlimit(Some(server.pid()), Resource::Nofile, limit).unwrap();
    // Has it come back from the wait that it began before.
    server.signal(Signal::HUP);
    server.hear("cannot wait for signals");
    server.signal(Signal::TERM);
    let output = server.end();
    assert_code(&output, 0);
    let said = stderr(&output);
    assert_eq!(said.matches("cannot wait for signals").count(), 1, "{said}");
}
