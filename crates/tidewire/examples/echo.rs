//! The smallest server: sends back what it gets.
//!
//! ```text
//! cargo run --example echo
//! printf hello | nc -N 127.0.0.1 PORT
//! ```

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use tidewire::{Cx, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service};

/// One connection.
struct Echo;

impl Protocol for Echo {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain; // the peer does not read: stop until it does
        }
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }
}

/// Makes connections.
struct EchoService;

impl Service for EchoService {
    type Conn = Echo;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Echo, Refusal> {
        Ok(Echo)
    }
}

fn main() {
    let args = common::args();
    let (running, _) = common::start(&args, EchoService);
    if args.self_test {
        let mut client = TcpStream::connect(&running.addrs()[0]).expect("connect");
        client.write_all(b"hello").expect("write");
        client
            .shutdown(std::net::Shutdown::Write)
            .expect("half-close");
        let mut back = String::new();
        client.read_to_string(&mut back).expect("read");
        assert_eq!(back, "hello");
    }
    common::end(&args, running);
}
