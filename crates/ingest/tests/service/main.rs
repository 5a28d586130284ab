//! Tests of the service and its clients. One program, because many would each be built and linked; `memory` and
//! `system` have theirs.

mod chunking;
mod classic_levels;
mod classic_stall;
mod client;
mod client_sim;
#[path = "../common/mod.rs"]
mod common;
mod engines;
mod fuzz_smoke;
#[path = "../common/native.rs"]
mod native;
mod native_chunking;
mod native_edges;
mod native_engines;
mod native_fleet;
mod native_fuzz_smoke;
mod native_many;
mod native_producer;
mod native_reader;
mod native_replicated;
mod native_vectors;
#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../tidewire/tests/shared/worked.rs"]
mod worked;
