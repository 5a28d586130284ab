//! Echo on may: a coroutine for each connection, on one worker.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, IntoRawFd};

use may::net::TcpListener;

fn main() {
    may::config().set_workers(1);
    // SAFETY: the descriptor is a listening socket's, and is given up here.
    let listener = unsafe { TcpListener::from_raw_fd(echo_peers::listen().into_raw_fd()) };
    while let Ok((mut socket, _)) = listener.accept() {
        let _ = socket.set_nodelay(true);
        may::go!(move || {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                match socket.read(&mut buffer) {
                    Ok(0) | Err(_) => return,
                    Ok(n) => {
                        if socket.write_all(&buffer[..n]).is_err() {
                            return;
                        }
                    }
                }
            }
        });
    }
}
