//! Tests of `tidewire bench` and `tidewire lab` as a user runs them. One program, because many would each be built and linked.

mod bench;
mod bench_faults;
mod bench_http;
mod bench_kv;
mod bench_lies;
mod bench_limits;
mod bench_processes;
mod bench_rates;
mod bench_tls;
mod bench_work;
mod count;
mod lab;
mod manners;
mod pages;

use tidewire_testkit as common;
