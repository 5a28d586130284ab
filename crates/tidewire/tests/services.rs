//! What the toolkit brings with it, on simulated networks of every shape, with accidents: the proxy among the
//! examples, the PROXY protocol's layer, faults and traces around an echo.

#[path = "shared/converse.rs"]
mod converse;
#[path = "../examples/proxy.rs"]
#[allow(dead_code, reason = "an example has a main function too")]
mod proxy;
#[path = "../../log/tests/simulated/twice.rs"]
mod twice;

use std::time::Duration;

use converse::{converse, exactly};
use tidewire::fault::Faults;
use tidewire::proxy::Proxy;
use tidewire::sim::for_each_seed;
use tidewire::trace::Tracer;
use tidewire::{Layered, Limits, on_input};

/// What each of a few says.
fn talks(seed: u64) -> Vec<Vec<u8>> {
    let len = |n: u64| ((seed * 7919 + n * 104_729) % 2500) as u32;
    let talk = |n| (0..1 + len(n)).map(|i| (i * 31 + n as u32) as u8).collect();
    (0..3).map(talk).collect()
}

fn echo() -> impl tidewire::Service {
    on_input(|input, link| link.forward_all(input))
}

#[test]
fn a_proxy_passes_on_what_is_said() {
    for_each_seed(800, |seed| {
        let talks = talks(seed);
        converse(
            seed,
            |sim| {
                let upstream = sim.serve(echo(), Limits::default());
                (proxy::Proxy { upstream }, Limits::default())
            },
            &talks,
            &|n, got, whole| exactly(got, &talks[n], whole),
        )
    });
}

#[test]
fn a_header_of_the_proxy_protocol_names_the_client() {
    const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n";
    for_each_seed(500, |seed| {
        let said = talks(seed);
        let with_header: Vec<Vec<u8>> = said.iter().map(|said| [HEADER, said].concat()).collect();
        converse(
            seed,
            |_| {
                let networks = ["10.0.0.0/8".parse().unwrap()];
                // The header may come in single bytes, on a slow network.
                let proxy = Proxy::from(networks).deadline(Duration::from_secs(60));
                (Layered::new(proxy, echo()), Limits::default())
            },
            &with_header,
            &|n, got, whole| exactly(got, &said[n], whole),
        )
    });
}

#[test]
fn faults_and_traces_do_not_show_in_what_is_said() {
    for_each_seed(500, |seed| {
        let talks = talks(seed);
        converse(
            seed,
            |_| {
                let delay = Duration::from_micros(10)..=Duration::from_millis(3);
                let faults = Faults::none(seed).delays(5, delay).splits(3, 200);
                let tracer = Tracer::named("echo").pcap(std::io::sink());
                let service = Layered::new(tracer, Layered::new(faults, echo()));
                (service, Limits::default())
            },
            &talks,
            &|n, got, whole| exactly(got, &talks[n], whole),
        )
    });
}

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "a_proxy_passes_on_what_is_said",
        "a_header_of_the_proxy_protocol_names_the_client",
        "faults_and_traces_do_not_show_in_what_is_said",
    ];
    for test in tests {
        (0..6).for_each(|seed| twice::says_the_same(test, seed, "network: "));
    }
}
