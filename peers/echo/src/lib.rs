//! What the peers share: where to listen, and saying so.

use std::net::{SocketAddr, TcpListener};

/// A listening socket on the address after `--addr`, a free port of the loopback interface if there is
/// none. Says `listening addr=...` on standard output.
pub fn listen() -> TcpListener {
    let listener = TcpListener::bind(wanted()).expect("an address to listen on");
    say(listener.local_addr().expect("it is bound"));
    listener
}

/// The address after `--addr`.
pub fn wanted() -> SocketAddr {
    let mut words = std::env::args().skip_while(|word| word != "--addr").skip(1);
    let addr = words.next().unwrap_or_else(|| "127.0.0.1:0".into());
    addr.parse().expect("--addr is followed by HOST:PORT")
}

pub fn say(addr: SocketAddr) {
    println!("listening addr={addr}");
}
