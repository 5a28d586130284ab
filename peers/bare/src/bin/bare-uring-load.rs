//! Echo client, one thread, one io_uring loop written by hand, that verifies nothing: the yardstick for what the load
//! generator costs.
//!
//! Each connection has one message in flight: a send and the receive of its echo are pushed together, and the next
//! pair when the whole echo is there (MSG_WAITALL). Latencies are not taken. It prints one line of JSON: messages,
//! seconds and the CPU time of the client in nanoseconds, of the measured time alone. Status 1 if it cannot connect, 2 if
//! a connection is lost.

use std::fs;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::exit;
use std::time::{Duration, Instant};

use bare::Args;
use io_uring::types::Fd;
use io_uring::{IoUring, SubmissionQueue, opcode};
use rustix::net::{RecvFlags, SendFlags};

const USAGE: &str = "bare-uring-load --addr HOST:PORT [--connections N] [--size BYTES] [--seconds N] [--warmup MILLISECONDS] [--cpu N]";
const SEND: u64 = 1 << 32;

struct Conn {
    socket: TcpStream,
    reply: Vec<u8>,
}

fn main() -> std::io::Result<()> {
    let args = Args::parse(USAGE);
    args.pin();
    let addr: String = args.value("--addr").unwrap_or_default();
    let connections: usize = args.value("--connections").unwrap_or(50).clamp(1, 8_000);
    let size: usize = args.value("--size").unwrap_or(512).clamp(1, 1 << 20);
    let measured = Duration::from_secs(args.value("--seconds").unwrap_or(3));
    let warm_up = Duration::from_millis(args.value("--warmup").unwrap_or(300));
    let mut conns = Vec::new();
    for _ in 0..connections {
        let socket = TcpStream::connect(&addr).unwrap_or_else(|e| {
            eprintln!("cannot connect to {addr:?}: {e}");
            exit(1)
        });
        socket.set_nodelay(true)?;
        let reply = vec![0; size];
        conns.push(Conn { socket, reply });
    }
    let message = vec![b'x'; size];
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_cqsize(32_768)
        .build(16_384)?;
    let (submitter, mut queue, mut completions) = ring.split();
    for (number, conn) in conns.iter_mut().enumerate() {
        push(&mut queue, number, conn, &message);
    }
    let (began, mut from) = (Instant::now(), None);
    let mut messages = 0u64;
    loop {
        queue.sync();
        submitter.submit_and_wait(1)?;
        completions.sync();
        for completion in &mut completions {
            if completion.result() <= 0 {
                eprintln!("a connection was lost: {}", completion.result());
                exit(2);
            }
            if completion.user_data() & SEND == 0 {
                messages += 1;
                let number = completion.user_data() as usize;
                push(&mut queue, number, &mut conns[number], &message);
            }
        }
        let elapsed = began.elapsed();
        match from {
            None if elapsed >= warm_up => from = Some((Instant::now(), messages, cpu_ns())),
            Some((at, before, cpu)) if at.elapsed() >= measured => {
                println!(
                    "{{\"messages\":{},\"seconds\":{:.6},\"cpu_ns\":{}}}",
                    messages - before,
                    at.elapsed().as_secs_f64(),
                    cpu_ns() - cpu
                );
                // The kernel still writes to the connections' buffers: they are never freed.
                std::mem::forget(conns);
                return Ok(());
            }
            _ => {}
        }
    }
}

fn push(queue: &mut SubmissionQueue<'_>, number: usize, conn: &mut Conn, message: &[u8]) {
    let fd = Fd(conn.socket.as_raw_fd());
    let all = RecvFlags::WAITALL.bits() as i32;
    let send = opcode::Send::new(fd, message.as_ptr(), message.len() as u32)
        .flags(SendFlags::NOSIGNAL.bits() as i32 | all)
        .build()
        .user_data(SEND | number as u64);
    let receive = opcode::Recv::new(fd, conn.reply.as_mut_ptr(), conn.reply.len() as u32)
        .flags(all)
        .build()
        .user_data(number as u64);
    // SAFETY: the message lives until the process ends, a reply's buffer as long as its connection, which is never
    // dropped, and there is one receive into it at a time.
    let pushed = unsafe { queue.push_multiple(&[send, receive]) };
    // A pair for each connection at most: the queue has room for all of them.
    pushed.expect("room for a pair of each connection");
}

/// CPU time of this process so far, which has one thread.
fn cpu_ns() -> u64 {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let first = text.split_ascii_whitespace().next();
    first.and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
