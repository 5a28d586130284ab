//! What the peers share: where to listen, and saying so; and, for acknowledgements, counting messages.

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

/// An acknowledgement goes out with this many chunks that have none,
pub const CHUNKS: u32 = 22;

/// or this long after the last of them.
pub const DELAY: std::time::Duration = std::time::Duration::from_millis(5);

/// Where the bytes of a connection stand in `id[8] | size: u32 LE | payload[size]`.
#[derive(Default)]
pub struct Messages {
    head: [u8; 12],
    /// How much of the head is there.
    has: usize,
    /// How much of the payload is still to come.
    payload: usize,
}

/// Messages that have no acknowledgement yet.
#[derive(Clone, Copy, Default)]
pub struct Unacknowledged {
    pub chunks: u32,
    count: u32,
    last: [u8; 8],
}

impl Messages {
    /// Takes a chunk; what it completes is added to `to`.
    pub fn take(&mut self, mut chunk: &[u8], to: &mut Unacknowledged) {
        let before = to.count;
        while !chunk.is_empty() {
            let n = (12 - self.has).min(chunk.len());
            self.head[self.has..self.has + n].copy_from_slice(&chunk[..n]);
            (self.has, chunk) = (self.has + n, &chunk[n..]);
            if self.has < 12 {
                break;
            }
            if n > 0 {
                self.payload = u32::from_le_bytes(self.head[8..].try_into().unwrap()) as usize;
            }
            let n = self.payload.min(chunk.len());
            (self.payload, chunk) = (self.payload - n, &chunk[n..]);
            if self.payload == 0 {
                self.has = 0;
                to.count += 1;
                to.last = self.head[..8].try_into().unwrap();
            }
        }
        to.chunks += u32::from(to.count > before);
    }
}

impl Unacknowledged {
    /// Later messages of the same connection.
    pub fn add(&mut self, later: Unacknowledged) {
        self.chunks += later.chunks;
        self.count += later.count;
        self.last = later.last;
    }

    /// The last id, and how many messages before it are acknowledged with it; what is left is nothing.
    pub fn acknowledge(&mut self) -> [u8; 12] {
        let mut words = [0; 12];
        words[..8].copy_from_slice(&self.last);
        words[8..].copy_from_slice(&(self.count - 1).to_le_bytes());
        *self = Unacknowledged::default();
        words
    }
}
