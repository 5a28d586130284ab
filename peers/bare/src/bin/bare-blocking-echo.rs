//! Echo, one blocking thread for each connection: the yardstick for lock-step round trips.
//!
//! Nothing stands between the socket and the reply: receive, send everything, again. Whatever an engine
//! adds to a round trip shows against this.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use bare::Args;

const CHUNK_BYTES: usize = 64 * 1024;

fn main() {
    let args = Args::parse("bare-blocking-echo [--addr HOST:PORT] [--cpu N]");
    args.pin();
    for stream in args.listen().incoming().flatten() {
        thread::spawn(move || echo(stream));
    }
}

/// Echoes until the peer has finished or the connection breaks.
fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let received = stream.read(&mut buffer)?;
        if received == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..received])?;
    }
}
