//! One direction of a simulated stream: a send buffer, a wire and a receive buffer in a row.
//!
//! All bytes live in one queue. The front of the queue has *arrived*, the middle is *in flight*,
//! the rest waits in the send buffer; so no byte can be lost, doubled or overtaken.

use std::collections::VecDeque;

/// How far the writer's end of output has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fin {
    /// The writer may go on.
    No,
    /// Behind what waits in the send buffer.
    Waiting,
    InFlight,
    Arrived,
}

pub(super) struct Pipe {
    bytes: VecDeque<u8>,
    arrived: usize,
    in_flight: usize,
    send_buffer: usize,
    receive_buffer: usize,
    pub(super) fin: Fin,
    /// When the last piece sent so far arrives: none overtakes it. Nanoseconds.
    pub(super) last_arrival: u64,
    /// The writer found the send buffer full and is to be told of room.
    pub(super) writer_waits: bool,
    /// The writer is told only after a while, room or not.
    pub(super) writer_held: bool,
    /// The news that the reader has made room is on its way to the writer's side.
    pub(super) room_told: bool,
}

impl Pipe {
    pub(super) fn new(send_buffer: usize, receive_buffer: usize) -> Pipe {
        assert!(send_buffer > 0 && receive_buffer > 0);
        Pipe {
            bytes: VecDeque::new(),
            arrived: 0,
            in_flight: 0,
            send_buffer,
            receive_buffer,
            fin: Fin::No,
            last_arrival: 0,
            writer_waits: false,
            writer_held: false,
            room_told: false,
        }
    }

    /// Bytes that the send buffer has room for.
    pub(super) fn room(&self) -> usize {
        self.send_buffer - self.unsent()
    }

    pub(super) fn unsent(&self) -> usize {
        self.bytes.len() - self.arrived - self.in_flight
    }

    pub(super) fn not_arrived(&self) -> usize {
        self.bytes.len() - self.arrived
    }

    /// Bytes that may leave the send buffer now: the receive buffer has room for them.
    pub(super) fn sendable(&self) -> usize {
        let window = self.receive_buffer - self.arrived - self.in_flight;
        self.unsent().min(window)
    }

    /// Bytes that the reader may take.
    pub(super) fn arrived(&self) -> usize {
        self.arrived
    }

    /// The writer's bytes enter the send buffer, which has room for them.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.room() && self.fin == Fin::No);
        self.bytes.extend(bytes);
    }

    /// `n` bytes leave the send buffer.
    pub(super) fn depart(&mut self, n: usize) {
        assert!(n <= self.sendable());
        self.in_flight += n;
    }

    /// `n` bytes come out of the wire.
    pub(super) fn arrive(&mut self, n: usize) {
        self.in_flight -= n;
        self.arrived += n;
    }

    /// The reader takes bytes that have arrived, as many as fit `into`.
    pub(super) fn read(&mut self, into: &mut [u8]) -> usize {
        let n = self.arrived.min(into.len());
        for (to, from) in into.iter_mut().zip(self.bytes.drain(..n)) {
            *to = from;
        }
        self.arrived -= n;
        n
    }

    /// Drops all: nothing will be read or written any more.
    pub(super) fn drop_all(&mut self) {
        self.bytes = VecDeque::new();
        (self.arrived, self.in_flight) = (0, 0);
    }

    /// Forgets the bytes that have not been read yet, as a reset does.
    pub(super) fn drop_arrived(&mut self) {
        self.bytes.drain(..self.arrived);
        self.arrived = 0;
    }
}
