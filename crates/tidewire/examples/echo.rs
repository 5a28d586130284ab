//! The smallest server: sends back what it gets.
//!
//! ```text
//! cargo run --example echo
//! printf hello | nc -N 127.0.0.1 PORT
//! ```

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

fn main() {
    let args = common::args();
    let (running, _) = common::start(
        &args,
        tidewire::on_input(|input, link| link.forward_all(input)),
    );
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
