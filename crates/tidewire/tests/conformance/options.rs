//! TCP options, read back from the sockets that carry connections.

use std::net::SocketAddr;
use std::time::Duration;

use socket2::Socket;
use tidewire::{Dial, Listen, TcpOptions};

use crate::case::{Case, case};
use crate::fixture::Setup;
use crate::roles::Echo;
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    // Alone: for a moment it holds the descriptors of the whole process twice.
    vec![case!(tcp_options_reach_both_kinds_of_connections, alone)]
}

/// The socket of this process that is connected to `peer`, found among all its descriptors.
fn socket_towards(peer: SocketAddr) -> Option<Socket> {
    let me = rustix::process::pidfd_open(
        rustix::process::getpid(),
        rustix::process::PidfdFlags::empty(),
    );
    let me = me.ok()?;
    for entry in std::fs::read_dir("/proc/self/fd").expect("procfs") {
        let name = entry.expect("procfs").file_name();
        let number: i32 = name.to_str()?.parse().ok()?;
        let flags = rustix::process::PidfdGetfdFlags::empty();
        if let Ok(fd) = rustix::process::pidfd_getfd(&me, number, flags) {
            let socket = Socket::from(fd);
            let towards = socket.peer_addr().ok().and_then(|a| a.as_socket());
            if towards == Some(peer) {
                return Some(socket);
            }
        }
    }
    None
}

fn tcp_options_reach_both_kinds_of_connections(v: Variant) {
    for (nodelay, inherited) in [(true, false), (false, false), (true, true), (false, true)] {
        let options = TcpOptions {
            nodelay,
            keepalive: Some(Duration::from_secs(77)),
            congestion: Some("reno".into()),
            ..TcpOptions::default()
        };
        let here = if inherited {
            Listen::inherited(std::net::TcpListener::bind("127.0.0.1:0").expect("a port"))
        } else {
            Listen::at(([127, 0, 0, 1], 0))
        };
        let server = Setup::on(v)
            .listen(here.options(options.clone()))
            .tune(|b| {
                b.dial_options(options);
            })
            .start(|| Echo);
        let mut client = server.connect();
        client.send(b"x");
        client.expect(b"x");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let there = listener.local_addr().expect("bound");
        server.dial(Dial::to(there));
        let (dialled, _) = listener.accept().expect("dialled");
        server.until("both open", |c| c.open == 2);
        for peer in [client.socket().local_addr().expect("bound"), there] {
            let Some(theirs) = socket_towards(peer) else {
                return eprintln!("not allowed to look at the descriptors of this process");
            };
            assert_eq!(theirs.tcp_nodelay().expect("an option"), nodelay);
            assert!(theirs.keepalive().expect("an option"));
            let idle = theirs.tcp_keepalive_time().expect("an option");
            assert_eq!(idle, Duration::from_secs(77));
            let congestion = theirs.tcp_congestion().expect("an option");
            assert!(congestion.starts_with(b"reno"), "{congestion:?}");
        }
        drop((client, dialled));
        server.until("both ends", |c| c.open == 0);
        server.stop();
    }
}
