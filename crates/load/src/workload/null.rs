//! A server that answers from nothing: it stores nothing, looks nothing up, and knows each reply beforehand.
//!
//! The idea: what a generator reaches against it is what the generator can do at all, on this machine and with this load.
//! It is no check of the generator's own requests, of which it reads no more than it takes to know how long they are.

use std::net::SocketAddr;
use std::sync::Arc;

use tidewire::{
    Builder, Cx, EngineChoice, Input, Limits, Link, LoopHandle, Next, Peer, Protocol, Refusal,
    Running, Service, StartError,
};

use super::kv::KvLoad;
use super::pattern::Pattern;
use super::{HttpLoad, Wire, Workload};

/// Starts it for a load, on one loop of any free port of 127.0.0.1; `None` where replies cannot be known beforehand:
/// acknowledgements, commands of the user's own, several requests.
///
/// # Errors
/// The engine cannot be started.
pub fn null_server(
    workload: &Workload,
    engine: EngineChoice,
) -> Option<Result<Running, StartError>> {
    let replies = Arc::new(Replies::of(workload)?);
    let limits = Limits {
        connections: usize::MAX,
        idle: None,
        ..Limits::default()
    };
    let mut builder = Builder::new();
    let null = builder
        .engine(engine)
        .loops(1)
        .service_with(Null(replies), limits);
    builder.listen(null, SocketAddr::from(([127, 0, 0, 1], 0)));
    Some(builder.start())
}

/// What is known beforehand.
enum Replies {
    /// What came.
    Same,
    Nothing,
    Http {
        request: usize,
        reply: Vec<u8>,
        close: bool,
    },
    Kv {
        load: KvLoad,
        pattern: Box<Pattern>,
    },
}

impl Replies {
    fn of(workload: &Workload) -> Option<Replies> {
        match workload {
            Workload::Echo(_) | Workload::Idle(_) | Workload::Connect(_) => Some(Replies::Same),
            Workload::Discard(_) => Some(Replies::Nothing),
            Workload::Http(load) => match load.requests {
                [request] => Some(Replies::Http {
                    request: request.bytes.len(),
                    reply: http(load),
                    close: load.close,
                }),
                _ => None,
            },
            Workload::Kv(load) if load.command.is_none() => Some(Replies::Kv {
                load: *load,
                pattern: Box::new(Pattern::new()),
            }),
            Workload::Kv(_) | Workload::Ack(_) | Workload::Native(_) => None,
        }
    }
}

fn http(load: &HttpLoad) -> Vec<u8> {
    let length = load.length.map_or(2, |length| length as usize);
    let body = load.body.map_or_else(|| vec![b'x'; length], <[u8]>::to_vec);
    let mut reply = format!("HTTP/1.1 {} Null\r\n", load.status).into_bytes();
    // Statuses that have no body, and no length of one.
    if matches!(load.status, 204 | 304) {
        reply.extend_from_slice(b"\r\n");
        return reply;
    }
    reply.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    if !load.head {
        reply.extend_from_slice(&body);
    }
    reply
}

struct Null(Arc<Replies>);

struct NullConn {
    replies: Arc<Replies>,
    out: Vec<u8>,
}

impl Service for Null {
    type Conn = NullConn;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, _: &mut ()) -> Result<NullConn, Refusal> {
        Ok(NullConn {
            replies: self.0.clone(),
            out: Vec::new(),
        })
    }
}

impl Protocol for NullConn {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let link = &mut cx.link;
        match &*self.replies {
            Replies::Same => return link.forward_all(input),
            Replies::Nothing => input.consume(input.bytes().len()),
            Replies::Http {
                request,
                reply,
                close,
            } => {
                let requests = input.bytes().len() / request;
                for _ in 0..requests {
                    self.out.extend_from_slice(reply);
                }
                input.consume(requests * request);
                say(&mut self.out, link);
                if *close && requests > 0 {
                    link.finish();
                }
            }
            Replies::Kv { load, pattern } => {
                let mut at = 0;
                while let Some(n) = load.answer(&input.bytes()[at..], pattern, &mut self.out) {
                    at += n;
                }
                input.consume(at);
                say(&mut self.out, link);
            }
        }
        Next::More
    }
}

/// Writes what there is and keeps the room.
fn say(out: &mut Vec<u8>, link: &mut Link<'_>) {
    if !out.is_empty() {
        link.write(out);
        out.clear();
    }
}

impl KvLoad {
    /// Answers the command at the front of `bytes` as if every key were set; how long it is, if all of it is there.
    fn answer(&self, bytes: &[u8], pattern: &Pattern, out: &mut Vec<u8>) -> Option<usize> {
        let (is_read, head) = match self.wire {
            // *2 and *3 with a name of three bytes, then the key's length.
            Wire::Resp => (*bytes.get(1)? == b'2', 16 + decimals(self.key_size)),
            Wire::Binary => (*bytes.first()? == 1, 4),
        };
        let key = bytes.get(head..head + self.key_size)?;
        let digits = key[4..].iter();
        let number = digits.fold(0u64, |n, digit| {
            n.wrapping_mul(10)
                .wrapping_add(u64::from(digit.wrapping_sub(b'0')))
        });
        let value = self.value(pattern, number);
        let behind = match (self.wire, is_read) {
            (Wire::Resp, true) => 2,
            (Wire::Resp, false) => 7 + decimals(value.len()) + value.len(),
            (Wire::Binary, true) => 0,
            (Wire::Binary, false) => 1 + value.len(),
        };
        let all = head + self.key_size + behind;
        if bytes.len() < all {
            return None;
        }
        match (self.wire, is_read) {
            (Wire::Resp, false) => out.extend_from_slice(b"+OK\r\n"),
            (Wire::Resp, true) => {
                out.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
            (Wire::Binary, _) => {
                out.extend_from_slice(&[3, value.len() as u8]);
                out.extend_from_slice(value);
            }
        }
        Some(all)
    }
}

fn decimals(n: usize) -> usize {
    n.max(1).ilog10() as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{
        Arrivals, EchoLoad, Extent, Generator, HttpRequest, KeyChoice, Plan, Target, ValueSizes,
        run,
    };

    /// The generator checks every reply, so a run that succeeds is the proof.
    fn answers(workload: Workload, messages: u64) {
        let null = null_server(&workload, EngineChoice::Epoll)
            .unwrap()
            .unwrap();
        let addr = null.addrs()[0].to_string().parse().unwrap();
        let plan = Plan {
            workload,
            connections: 3,
            arrivals: Arrivals::Closed,
            extent: Extent::Count(messages),
        };
        let target = Target {
            addr,
            process: None,
            cores: 1,
        };
        let outcome = run(&plan, &Generator::default(), &target, &mut |_| true).unwrap();
        assert_eq!(outcome.requests, messages, "{workload:?}");
        null.stop(std::time::Duration::from_secs(10));
    }

    #[test]
    fn every_reply_from_nothing_is_right() {
        answers(
            Workload::Echo(EchoLoad {
                size: 3_000,
                pipeline: 7,
                batch: 0,
            }),
            500,
        );
        for wire in [Wire::Resp, Wire::Binary] {
            for size in [ValueSizes::Fixed(9), ValueSizes::Range(1, 255)] {
                answers(
                    Workload::Kv(KvLoad {
                        wire,
                        key_size: 105,
                        keys: 1_000,
                        size,
                        pipeline: 16,
                        reads: 0.5,
                        choice: KeyChoice::Uniform,
                        command: None,
                        filled: false,
                    }),
                    2_000,
                );
            }
        }
        let request = |text: &str| -> &'static [HttpRequest] {
            let request = HttpRequest {
                bytes: text.into(),
                weight: 1.0,
            };
            Box::leak([request].into())
        };
        let get = HttpLoad {
            requests: request("GET / HTTP/1.1\r\nHost: h\r\n\r\n"),
            shown: "GET /",
            head: false,
            status: 200,
            length: Some(77),
            body: None,
            pipeline: 5,
            close: false,
        };
        answers(Workload::Http(get), 500);
        let head = HttpLoad {
            head: true,
            status: 404,
            ..get
        };
        answers(Workload::Http(head), 50);
        let none = HttpLoad {
            status: 204,
            length: None,
            ..get
        };
        answers(Workload::Http(none), 50);
        let close = HttpLoad {
            requests: request("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"),
            pipeline: 1,
            close: true,
            ..get
        };
        answers(Workload::Http(close), 50);
    }
}
