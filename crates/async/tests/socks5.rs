//! The example `socks5_async`, held to what `socks5` is: with curl and a client of our own, on each engine.

#![allow(
    clippy::disallowed_methods,
    reason = "clients and servers of the test are none of ours"
)]

#[path = "../../tidewire/tests/shared/example.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod example;
#[path = "../../tidewire/tests/shared/socks5.rs"]
mod socks5;

fn main() {
    let trials = socks5::trials("socks5_async");
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit();
}
