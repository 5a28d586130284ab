//! `serve --memory`: the limit that is asked for is the limit there is, on every engine.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use crate::common::{PATIENCE, addr, engines, tidewire};
use rustix::process::{Pid, Signal, kill_process};

/// Sends from clients that do not read until it is told to end, or for as long as patience lasts.
fn flood(to: std::net::SocketAddr, over: &AtomicBool) {
    let mut clients: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(to).unwrap()).collect();
    for client in &clients {
        client.set_nonblocking(true).unwrap();
    }
    let begin = Instant::now();
    while !over.load(SeqCst) && begin.elapsed() < PATIENCE {
        for client in &mut clients {
            let _ = client.write(&[b'.'; 64 << 10]);
        }
        thread::yield_now();
    }
}

#[test]
fn memory_is_limited_to_what_was_asked_for() {
    for engine in engines() {
        let listen = ["--listen", "echo=127.0.0.1:0"];
        let args = ["serve", "echo", "--memory", "1M", "--engine", engine];
        let mut child = tidewire(&[&args[..], &listen].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let to = addr(line.trim_end());
        let pid = Pid::from_child(&child);
        let over = AtomicBool::new(false);
        let said = thread::scope(|scope| {
            scope.spawn(|| {
                flood(to, &over);
                // Ends the wait for a line that never comes, too.
                kill_process(pid, Signal::TERM).unwrap();
            });
            let stderr = BufReader::new(child.stderr.take().unwrap());
            let mut said = String::new();
            for line in stderr.lines() {
                let line = line.unwrap();
                if line.contains("connections hold much memory") {
                    over.store(true, SeqCst);
                    said = line;
                }
            }
            said
        });
        stdout.read_to_string(&mut line).unwrap();
        assert!(said.contains("limit=1048576"), "{engine}: {said:?}");
        assert!(child.wait().unwrap().success());
    }
}
