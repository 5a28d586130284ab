//! Letting no new handshake begin at a listener that is to be closed, while handshakes under way
//! come to their end.
//!
//! Closing a listener resets clients in its accept queue. Such a close also resets clients that are
//! connected on their side while their last segment is still on its way. So before the last look
//! into the queue, a filter (`SO_ATTACH_FILTER`, socket(7)) drops the first segments of new
//! handshakes. A client whose segment was dropped is not connected yet: it sends the segment again
//! after a second, and finds the process that listens then, or none.

use std::io;
use std::os::fd::AsFd;

use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET};
use socket2::{SockFilter, SockRef};

/// Where a TCP header has its flags (RFC 9293, 3.1). The kernel runs the filter from the header on.
const FLAGS: u32 = 13;
const SYN: u32 = 0x02;
const ACK: u32 = 0x10;

/// Drops segments with SYN and without ACK. The last segment of a handshake, which the kernel shows
/// to the listener's filter too, passes, as does all that connections ever see: sockets accepted
/// from now on inherit the filter.
pub(crate) fn begin_no_more(listener: impl AsFd) -> io::Result<()> {
    let op = |code: u32, k, yes, no| SockFilter::new(code as u16, yes, no, k);
    SockRef::from(&listener).attach_filter(&[
        op(BPF_LD | BPF_B | BPF_ABS, FLAGS, 0, 0),
        op(BPF_ALU | BPF_AND | BPF_K, SYN | ACK, 0, 0),
        op(BPF_JMP | BPF_JEQ | BPF_K, SYN, 0, 1),
        op(BPF_RET | BPF_K, 0, 0, 0),
        op(BPF_RET | BPF_K, u32::MAX, 0, 0),
    ])
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    use socket2::{Domain, Socket, Type};

    use super::*;

    /// A connection that is begun and not waited for.
    fn begin(to: SocketAddr) -> Socket {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let begun = socket.connect(&to.into()).unwrap_err();
        assert_eq!(begun.raw_os_error(), Some(libc::EINPROGRESS));
        socket
    }

    /// The result of an attempt to connect, once the attempt has ended.
    fn outcome(socket: &Socket) -> Option<io::Error> {
        let mut fds = [rustix::event::PollFd::new(
            socket,
            rustix::event::PollFlags::OUT,
        )];
        let bound = rustix::event::Timespec {
            tv_sec: 30,
            tv_nsec: 0,
        };
        assert_eq!(rustix::event::poll(&mut fds, Some(&bound)).unwrap(), 1);
        socket.take_error().unwrap()
    }

    fn a_late_client_is_refused_and_never_connected(at: &str) {
        let Ok(listener) = TcpListener::bind(at) else {
            return eprintln!("skipped: nothing can listen at {at} here");
        };
        let at = listener.local_addr().unwrap();
        let mut early = TcpStream::connect(at).unwrap();
        begin_no_more(&listener).unwrap();
        let late = begin(at);
        listener.set_nonblocking(true).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        assert_eq!(
            listener.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        assert!(late.peer_addr().is_err(), "its handshake has not begun");
        drop(listener);
        let refused = outcome(&late).map(|e| e.kind());
        assert_eq!(refused, Some(io::ErrorKind::ConnectionRefused));
        // The connection that inherited nothing, and its end, are as ever.
        early.write_all(b"x").unwrap();
        early.shutdown(std::net::Shutdown::Write).unwrap();
        let mut got = Vec::new();
        served.set_nonblocking(false).unwrap();
        served
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        served.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"x");
    }

    #[test]
    fn a_late_client_is_refused_and_never_connected_on_ipv4() {
        a_late_client_is_refused_and_never_connected("127.0.0.1:0");
    }

    #[test]
    fn a_late_client_is_refused_and_never_connected_on_ipv6() {
        a_late_client_is_refused_and_never_connected("[::1]:0");
    }

    /// A client that is connected on its side, and whose last segment the listener has not taken,
    /// gets in behind the filter. A listener that defers leaves handshakes in that state until data
    /// comes.
    #[test]
    fn a_handshake_under_way_comes_to_its_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        crate::kernel::sys::defer_accept(&listener).unwrap();
        let mut early = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let waits = listener.accept().unwrap_err().kind();
        assert_eq!(waits, io::ErrorKind::WouldBlock);
        begin_no_more(&listener).unwrap();
        early.write_all(b"x").unwrap();
        listener.set_nonblocking(false).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        let mut got = [0];
        served.read_exact(&mut got).unwrap();
        assert_eq!(got, *b"x");
    }
}
