//! Classic acknowledged messages, sync mode, one blocking thread for each connection: the yardstick for
//! parsing.
//!
//! A message is `id[8] | size:u32 LE | payload[size]`, split anywhere. Each receive that completes at least
//! one message is answered with one `id[8] | skipped:u32 LE`, naming the last and counting the others.
//! Messages are parsed where they were received; only a header cut in two is ever moved.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use bare::Args;

const HEADER_BYTES: usize = 12;
/// A larger payload closes the connection.
const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;

fn main() {
    let args = Args::parse("bare-ack-sink [--addr HOST:PORT] [--cpu N] [--buffer BYTES]");
    args.pin();
    let buffer_bytes = args
        .value("--buffer")
        .unwrap_or(64 * 1024)
        .max(HEADER_BYTES);
    for stream in args.listen().incoming().flatten() {
        thread::spawn(move || serve(stream, buffer_bytes));
    }
}

/// Serves until the peer has finished, the connection breaks, or a message is too large.
fn serve(mut stream: TcpStream, buffer_bytes: usize) -> std::io::Result<()> {
    let mut buffer = vec![0; buffer_bytes];
    let mut parser = Parser::default();
    loop {
        let carried = parser.carried;
        let received = stream.read(&mut buffer[carried..])?;
        if received == 0 {
            return Ok(());
        }
        let Some(done) = parser.feed(&mut buffer[..carried + received]) else {
            return Ok(());
        };
        if done.messages > 0 {
            let mut ack = [0; HEADER_BYTES];
            ack[..8].copy_from_slice(&done.last_id);
            ack[8..].copy_from_slice(&(done.messages - 1).to_le_bytes());
            stream.write_all(&ack)?;
        }
    }
}

/// What one receive completed.
#[derive(Default)]
struct Done {
    messages: u32,
    last_id: [u8; 8],
}

/// Where the stream stands between two receives.
#[derive(Default)]
struct Parser {
    /// Bytes of an incomplete header, at the front of the buffer.
    carried: usize,
    /// Payload still to come of the message whose header was last.
    payload_left: usize,
    current_id: [u8; 8],
}

impl Parser {
    /// Takes every message that ends in `input`, or `None` at one that is too large. An incomplete header
    /// is moved to the front of `input` and counted in `carried`.
    fn feed(&mut self, input: &mut [u8]) -> Option<Done> {
        let mut done = Done::default();
        let mut at = 0;
        if self.payload_left > 0 {
            at = self.payload_left.min(input.len());
            self.payload_left -= at;
            if self.payload_left == 0 {
                done = Done {
                    messages: 1,
                    last_id: self.current_id,
                };
            }
        }
        while let Some((header, rest)) = input[at..].split_first_chunk::<HEADER_BYTES>() {
            let (id, size) = header.split_at(8);
            let size = u32::from_le_bytes(size.try_into().expect("four bytes")) as usize;
            let id = id.try_into().expect("eight bytes");
            if size > PAYLOAD_BYTES_MAX {
                return None;
            }
            if rest.len() < size {
                self.current_id = id;
                self.payload_left = size - rest.len();
                at = input.len();
                break;
            }
            done.last_id = id;
            done.messages += 1;
            at += HEADER_BYTES + size;
        }
        self.carried = input.len() - at;
        input.copy_within(at.., 0);
        Some(done)
    }
}
