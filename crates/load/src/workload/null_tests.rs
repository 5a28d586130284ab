//! The server that answers from nothing, loaded with each kind of load that it knows.

use super::run::run;
use crate::workload::{
    Arrivals, Baseline, EchoLoad, Extent, Generator, HttpLoad, HttpRequest, KeyChoice, KvLoad,
    Plan, Target, ValueSizes, Wire, Workload, null_server,
};
use tidewire::EngineChoice;

/// The generator checks every reply, so a run that succeeds is the proof.
fn answers(workload: Workload, messages: u64) {
    let Baseline::Null(replies) = workload.baseline() else {
        panic!("{workload:?} has replies that are known beforehand");
    };
    let null = null_server(replies, EngineChoice::Epoll).unwrap();
    let addr = null.addrs()[0].to_string().parse().unwrap();
    let plan = Plan {
        workload: workload.clone(),
        connections: 3,
        arrivals: Arrivals::Closed,
        extent: Extent::Count(messages),
    };
    let target = Target {
        addr,
        process: None,
        cores: 1,
    };
    let outcome = run(&plan, &Generator::default(), &target, &mut |_| true).unwrap();
    assert_eq!(outcome.requests, messages, "{workload:?}");
    null.stop(std::time::Duration::from_secs(10));
}

#[test]
fn every_reply_from_nothing_is_right() {
    answers(
        Workload::of(EchoLoad {
            size: 3_000,
            pipeline: 7,
            batch: 0,
        }),
        500,
    );
    for wire in [Wire::Resp, Wire::Binary] {
        for size in [ValueSizes::Fixed(9), ValueSizes::Range(1, 255)] {
            answers(
                Workload::of(KvLoad {
                    wire,
                    key_size: 105,
                    keys: 1_000,
                    size,
                    pipeline: 16,
                    reads: 0.5,
                    choice: KeyChoice::Uniform,
                    command: None,
                    filled: false,
                }),
                2_000,
            );
        }
    }
    let request = |text: &str| -> &'static [HttpRequest] {
        let request = HttpRequest {
            bytes: text.into(),
            weight: 1.0,
        };
        Box::leak([request].into())
    };
    let get = HttpLoad {
        requests: request("GET / HTTP/1.1\r\nHost: h\r\n\r\n"),
        shown: "GET /",
        head: false,
        status: 200,
        length: Some(77),
        body: None,
        pipeline: 5,
        close: false,
    };
    answers(Workload::of(get), 500);
    let head = HttpLoad {
        head: true,
        status: 404,
        ..get
    };
    answers(Workload::of(head), 50);
    let none = HttpLoad {
        status: 204,
        length: None,
        ..get
    };
    answers(Workload::of(none), 50);
    let close = HttpLoad {
        requests: request("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"),
        pipeline: 1,
        close: true,
        ..get
    };
    answers(Workload::of(close), 50);
}
