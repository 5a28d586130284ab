//! The example `socks5`, with curl and a client of our own, on each engine.

#[path = "shared/example.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod example;
#[path = "shared/socks5.rs"]
mod socks5;

fn main() {
    let trials = socks5::trials("socks5");
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit();
}
