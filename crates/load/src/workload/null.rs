//! A server that answers from nothing: it stores nothing, looks nothing up, and knows each reply beforehand.
//!
//! The idea: the generator's rate against the null server is the most that the generator can reach, on this machine and
//! with this load. The null server does not check the requests; it reads only as much as it needs to find their lengths.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tidewire::{
    Builder, Cx, EngineChoice, Input, Limits, Link, LoopHandle, Next, Peer, Protocol, Refusal,
    Running, Service, StartError,
};

/// The answers of the null server.
pub enum Replies {
    /// The request itself.
    Same,
    /// The null server answers nothing.
    Nothing,
    /// The replies that this maker makes.
    Made(Box<dyn Answers>),
}

/// Makes replies to requests with a content.
pub trait Answers: Send + Sync {
    /// Answers the whole requests at the front of `input`; how many bytes they are.
    fn answer(&self, input: &[u8], out: &mut Vec<u8>) -> usize;

    /// Whether a connection ends behind the first reply.
    fn closes(&self) -> bool {
        false
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replies")
    }
}

/// Starts the null server, on one loop at any free port of 127.0.0.1.
///
/// # Errors
/// The engine cannot be started.
pub fn null_server(replies: Replies, engine: EngineChoice) -> Result<Running, StartError> {
    let limits = Limits {
        connections: usize::MAX,
        idle: None,
        ..Limits::default()
    };
    let mut builder = Builder::new();
    let null = builder
        .engine(engine)
        .loops(1)
        .service_with(Null(Arc::new(replies)), limits);
    builder.listen(null, SocketAddr::from(([127, 0, 0, 1], 0)));
    builder.start()
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
            Replies::Made(answers) => {
                let answered = answers.answer(input.bytes(), &mut self.out);
                input.consume(answered);
                say(&mut self.out, link);
                if answered > 0 && answers.closes() {
                    link.finish();
                }
            }
        }
        Next::More
    }
}

/// Writes the pending replies and keeps the buffer.
fn say(out: &mut Vec<u8>, link: &mut Link<'_>) {
    if !out.is_empty() {
        link.write(out);
        out.clear();
    }
}
