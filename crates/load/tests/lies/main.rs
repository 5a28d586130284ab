//! Servers that are legal and unusual, which pass, and servers that lie, which are found out: in the clear and over TLS.

mod tls_front;

/// The connections reach the server itself.
mod plain {
    mod front {
        use std::net::SocketAddr;

        pub(super) fn of(server: SocketAddr) -> SocketAddr {
            server
        }

        pub(super) fn client() -> Option<tidewire_tls::TlsClient> {
            None
        }
    }

    include!("cases.rs");
    include!("refused.rs");
}

/// TLS stands in front of the server.
mod tls {
    use crate::tls_front as front;

    include!("cases.rs");

    /// A TCP connection that ends without TLS saying so may have been cut on the way.
    #[test]
    fn an_end_that_tls_does_not_tell_is_no_end_of_a_body() {
        let whole = || {
            server(|_, mut socket| {
                if request(&mut socket) {
                    let _ = socket.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello");
                    drain(socket);
                }
            })
        };
        assert_eq!(load(http(1), 20, whole(), false).unwrap().requests, 20);
        let generator = Generator {
            stall: Duration::from_secs(5),
            tls: front::client(),
            ..Generator::default()
        };
        let plan = Plan {
            workload: http(1),
            connections: 2,
            arrivals: Arrivals::Closed,
            extent: Extent::Count(20),
        };
        let target = Target {
            addr: front::that_says_no_end(whole()),
            process: None,
            cores: 1,
        };
        let failure = run(&plan, &generator, &target, &mut |_| true).unwrap_err();
        assert!(failure.is_wrong_answer(), "{failure}");
    }
}
