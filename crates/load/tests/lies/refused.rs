// Servers that refuse connections. Included where nothing stands in front of a server, which would accept for it.

#[test]
fn a_server_that_accepts_no_more_is_to_blame() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut sockets: Vec<TcpStream> = (0..2).map(|_| listener.accept().unwrap().0).collect();
        drop(listener);
        for socket in &mut sockets {
            assert!(request(socket));
            socket
                .write_all(&reply("Connection: close\r\n", b"hello"))
                .unwrap();
        }
        sockets.into_iter().for_each(drain);
    });
    let failure = load(http(1), 100, addr, false).unwrap_err();
    assert!(failure.is_wrong_answer(), "{failure}");
    assert!(failure.to_string().contains("close in the middle"));
}

#[test]
fn a_server_that_starts_anew_is_waited_for_where_that_is_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (tell, refused) = std::sync::mpsc::channel::<()>();
    thread::spawn(move || {
        let mut sockets: Vec<TcpStream> = (0..2).map(|_| listener.accept().unwrap().0).collect();
        let mut bytes = [0; 64];
        sockets[0].read_exact(&mut bytes).unwrap();
        drop(listener);
        drop(sockets);
        // Long enough that both are refused at least once, whatever else runs.
        let _ = refused.recv_timeout(Duration::from_millis(200));
        let listener = loop {
            if let Ok(listener) = TcpListener::bind(addr) {
                break listener;
            }
            thread::sleep(Duration::from_millis(10));
        };
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            thread::spawn(move || {
                let mut bytes = [0; 64];
                while socket.read_exact(&mut bytes).is_ok() && socket.write_all(&bytes).is_ok() {}
            });
        }
    });
    let outcome = load(echo_load(), 100, addr, true).unwrap();
    let reconnects = outcome.reconnects.unwrap();
    assert_eq!((reconnects.connections, reconnects.lost), (2, 2));
    assert_eq!(outcome.requests, 98);
    drop(tell);
}
