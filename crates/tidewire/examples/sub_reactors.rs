//! One loop accepts, four serve: an acceptor with sub-reactors. A new connection goes to the loop that carries the fewest.
//!
//! ```text
//! cargo run --example sub_reactors
//! printf hello | nc -N 127.0.0.1 PORT
//! ```
//!
//! At its end each loop says how many bytes it has received.

use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire::{Builder, Listen, Placement, on_input};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let mut builder = Builder::new();
    builder.engine(engine.parse()?);
    // `Placement::Acceptor` hands connections out in turn; `Shared`, the default, has every loop accept for itself.
    builder.loops(4).placement(Placement::LeastConnections);
    let echo = builder.service(on_input(|input, link| link.forward_all(input)));
    builder.name(echo, "echo");
    builder.listen(echo, Listen::at("127.0.0.1:0"));
    let running = builder.start()?;
    println!(
        "listening on {} by {}",
        running.addrs()[0],
        running.engine()
    );
    Signals::new([SIGINT, SIGTERM])?.forever().next();
    for each in running.observer().loops() {
        println!("{}: {} bytes received", each.name, each.counters.bytes_in);
    }
    println!("{}", running.stop(Duration::from_secs(5)));
    Ok(())
}
