//! An echo server behind TLS: the service knows nothing of it.
//!
//! ```text
//! cargo run -p tidewire-tls --example tls_echo
//! openssl s_client -connect 127.0.0.1:7443
//! ```
//!
//! An address to listen at may be given instead of that one.

use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire::{
    Builder, Cx, Input, Layered, Listen, LoopHandle, Next, Peer, Protocol, Refusal, Service,
};
use tidewire_tls::{Certificate, Server};

/// Sends back what it gets.
struct Echo;

impl Protocol for Echo {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }
}

impl Service for Echo {
    type Conn = Echo;
    fn on_loop(&self, _: LoopHandle<()>) {}
    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Echo, Refusal> {
        Ok(Echo)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes())?;
    let tls = Server::new(certificate).build()?;

    let mut builder = Builder::new();
    let echo = builder.service(Layered::new(tls, Echo));
    let at = std::env::args().nth(1);
    let at = at.unwrap_or_else(|| "127.0.0.1:7443".to_owned());
    builder.listen(echo, Listen::at(at.as_str()));
    let running = builder.start()?;
    println!(
        "listening on {} by {}",
        running.addrs()[0],
        running.engine()
    );

    Signals::new([SIGINT, SIGTERM])?.forever().next();
    running.stop(Duration::from_secs(5));
    Ok(())
}
