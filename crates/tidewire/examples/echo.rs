//! The smallest server: sends back what it gets.
//!
//! ```text
//! cargo run --example echo
//! printf hello | nc -N 127.0.0.1 PORT
//! ```

use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire::{Builder, Listen, on_input};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // threads, epoll, uring, or auto: the best that works here.
    let engine = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let mut builder = Builder::new();
    builder.engine(engine.parse()?);
    let echo = builder.service(on_input(|input, link| link.forward_all(input)));
    builder.listen(echo, Listen::at("127.0.0.1:0"));
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
