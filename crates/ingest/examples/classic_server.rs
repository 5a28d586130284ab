//! All dialects of the classic protocol on one set of loops, each on the port that its clients
//! expect. Counts messages and drops them; ends with its input and prints what it counted.
//!
//!     cargo run --release -p tidewire-ingest --example classic_server -- [ENGINE]

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidewire::{Builder, EngineChoice, Listen};
use tidewire_ingest::Counted;
use tidewire_ingest::classic::{Classic, ClassicService, Mode};

fn main() -> Result<(), Box<dyn Error>> {
    let engine: EngineChoice = std::env::args()
        .nth(1)
        .as_deref()
        .unwrap_or("auto")
        .parse()?;
    let mut builder = Builder::new();
    builder.engine(engine);
    let mut services = Vec::new();
    for mode in Mode::ALL {
        let classic = Classic::preset(mode);
        let service = Arc::new(ClassicService::new(classic, Counted::default()));
        let id = builder.service_with(service.clone(), classic.limits());
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, mode.default_port()));
        builder.listen(id, Listen::at(addr));
        services.push((mode, service));
    }
    let running = builder.start()?;
    for (addr, (mode, _)) in running.addrs().iter().zip(&services) {
        println!("{mode:<13} on {addr} by {}", running.engine());
    }

    io::copy(&mut io::stdin(), &mut io::sink())?;
    let loops = running.stop(Duration::from_secs(5));
    for (mode, service) in &services {
        println!("{mode:<13} {}", service.counters());
    }
    println!("{:<13} {loops}", "loops");
    Ok(())
}
