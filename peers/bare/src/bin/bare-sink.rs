//! Receives and drops, one blocking thread for each connection: what loopback alone can carry.
//!
//! Bytes a second here are the ceiling for everything that has to look at what it receives.

use std::io::Read;
use std::net::TcpStream;
use std::thread;

use bare::Args;

fn main() {
    let args = Args::parse("bare-sink [--addr HOST:PORT] [--cpu N] [--buffer BYTES]");
    args.pin();
    let buffer_bytes = args.value("--buffer").unwrap_or(64 * 1024);
    for stream in args.listen().incoming().flatten() {
        thread::spawn(move || drain(stream, buffer_bytes));
    }
}

/// Receives until the peer has finished or the connection breaks.
fn drain(mut stream: TcpStream, buffer_bytes: usize) -> std::io::Result<()> {
    let mut buffer = vec![0; buffer_bytes];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}
