//! An MQTT 3.1.1 broker: QoS 0 and 1, retained publications and wills, on four loops. Sessions end with their connections.
//!
//! ```text
//! cargo run --example mqtt -- auto 127.0.0.1:1883
//! mosquitto_sub -q 1 -t 'a/#' & mosquitto_pub -q 1 -t a/b -m hello
//! ```
//!
//! A subscriber that does not read makes publishers to it wait, and is cut after some seconds: the third argument, 10 if it is not
//! given; 0 waits for ever.

mod broker;
mod packet;

use std::time::Duration;

use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;
use tidewire::{Builder, Limits, Listen, Placement};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let engine = args.next().unwrap_or_else(|| "auto".into());
    let at = args.next().unwrap_or_else(|| "127.0.0.1:0".into());
    let patience_s = args.next().map_or(Ok(10), |text| text.parse())?;
    let limits = Limits {
        // Clients say themselves for how long they may be silent.
        idle: None,
        write: (patience_s > 0).then(|| Duration::from_secs(patience_s)),
        ..Limits::default()
    };
    let mut builder = Builder::new();
    builder.engine(engine.parse()?);
    builder.loops(4).placement(Placement::LeastConnections);
    let broker = builder.service_with(broker::Broker::default(), limits);
    builder.listen(broker, Listen::at(at.as_str()));
    let running = builder.start()?;
    println!(
        "listening on {} by {}",
        running.addrs()[0],
        running.engine()
    );
    Signals::new(TERM_SIGNALS)?.forever().next();
    println!("{}", running.stop(Duration::from_secs(5)));
    Ok(())
}
