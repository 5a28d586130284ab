//! A TCP proxy: for each connection that comes in, one is dialled, and what either side sends goes
//! to the other.
//!
//! The two halves live on the same loop and know each other by name. They *tell* each other what
//! happens; chunks are moved, not copied. Each direction is paced: a half that its peer does not
//! empty tells the other to stop reading, so a stuck side costs no more than its output mark. An end
//! of sending is passed on alone (half-close), a reset as a reset.
//!
//! ```text
//! cargo run --example proxy                        # forwards to an echo server of its own
//! cargo run --example proxy auto 127.0.0.1:8080    # forwards to what listens there
//! ```

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire::{
    Builder, Chunk, Closed, ConnId, Cx, Dial, Endpoint, Input, Listen, LoopHandle, Next, Origin,
    Peer, Protocol, Refusal, Service, Turn,
};

/// Listens, and dials `upstream` for each connection.
pub(crate) struct Proxy {
    pub(crate) upstream: Endpoint,
}

/// One side of a proxied connection.
pub(crate) struct Half {
    /// The other side. Known to the dialled one from the start, to the accepted one once that is there.
    other: Option<ConnId>,
    /// To dial, for the accepted side.
    upstream: Endpoint,
    /// The other side was told to stop reading.
    held_back: bool,
}

/// What the halves tell each other.
pub(crate) enum News {
    /// I am the one that was dialled for you.
    Connected(ConnId),
    Data(Chunk),
    /// My peer does not take what you send: stop reading.
    Stop,
    /// My peer takes again what you send: go on reading.
    Go,
    /// My peer has said all.
    Finished,
    /// My peer has gone otherwise.
    Gone,
}

impl Half {
    fn tell(&self, news: News, cx: &mut Cx<'_, Self>) {
        if let Some(other) = self.other
            && cx.tell(other, news).is_err()
        {
            cx.link
                .abort_because("too many messages between the halves");
        }
    }
}

impl Protocol for Half {
    type Local = ();
    type Message = News;

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        let me = cx.link.id();
        if self.other.is_some() {
            self.tell(News::Connected(me), cx);
        } else {
            // Nothing is read before the upstream is connected.
            cx.link.pause();
            cx.dial(Dial::to(self.upstream.clone()).token(me.to_bits()));
        }
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let chunk = input.take(input.len());
        self.tell(News::Data(chunk), cx);
        Next::More
    }

    fn posted(&mut self, news: News, cx: &mut Cx<'_, Self>) {
        match news {
            News::Connected(other) => {
                self.other = Some(other);
                cx.link.resume();
            }
            News::Data(chunk) => {
                cx.link.write_chunk(chunk);
                if cx.link.full() && !self.held_back {
                    self.held_back = true;
                    self.tell(News::Stop, cx);
                }
            }
            News::Stop => cx.link.pause(),
            News::Go => cx.link.resume(),
            News::Finished => cx.link.finish_writing(),
            News::Gone => cx.link.abort(),
        }
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        if std::mem::take(&mut self.held_back) {
            self.tell(News::Go, cx);
        }
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        self.tell(News::Finished, cx); // and go on writing: the other side may have more to say
    }

    /// A proxy cannot know where a conversation may be cut: it goes on until the ends have finished,
    /// or the stop's deadline has come.
    fn draining(&mut self, _: &mut Cx<'_, Self>) {}

    /// The other half is gone, and its own news with it.
    fn undelivered(&mut self, _: ConnId, _: News, cx: &mut Cx<'_, Self>) {
        cx.link.abort();
    }

    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        if let Some(other) = self.other
            && why != Closed::Finished
        {
            let _ = turn.tell(other, News::Gone);
        }
    }
}

impl Service for Proxy {
    type Conn = Half;

    fn on_loop(&self, _: LoopHandle<News>) {}

    fn accept(&self, from: &Peer, _: &mut ()) -> Result<Half, Refusal> {
        Ok(Half {
            other: match from.origin {
                Origin::Dialled(token) => Some(ConnId::from_bits(token)),
                Origin::Accepted(_) => None,
            },
            upstream: self.upstream.clone(),
            held_back: false,
        })
    }

    fn dial_failed(&self, token: u64, error: &std::io::Error, turn: &mut Turn<'_, Half>) {
        eprintln!("cannot reach {}: {error}", self.upstream);
        let _ = turn.tell(ConnId::from_bits(token), News::Gone);
    }
}

/// Answers one connection after the other: takes all there is, and only then sends it back.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        let mut all = Vec::new();
        if let Ok(mut stream) = stream
            && stream.read_to_end(&mut all).is_ok()
        {
            let _ = stream.write_all(&all);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // threads, epoll, uring, or auto: the best that works here.
    let engine = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    // An upstream for when none is named.
    let upstream = match std::env::args().nth(2) {
        Some(upstream) => upstream.parse()?,
        None => {
            let listener = TcpListener::bind(("127.0.0.1", 0))?;
            let upstream = listener.local_addr()?.into();
            std::thread::spawn(move || serve(&listener));
            upstream
        }
    };
    let mut builder = Builder::new();
    builder.engine(engine.parse()?);
    let proxy = builder.service(Proxy { upstream });
    builder.listen(proxy, Listen::at("127.0.0.1:0"));
    let running = builder.start()?;
    println!(
        "listening on {} by {}",
        running.addrs()[0],
        running.engine()
    );
    Signals::new([SIGINT, SIGTERM])?.forever().next();
    println!("{}", running.stop(Duration::from_secs(5)));
    Ok(())
}
